"""Checkpoints: every bit comes back; what is damaged, half-written or of another run is never used in silence."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from rlvr_jax.sharding import make_mesh
from rlvr_jax.train import TrainState, checkpoint
from rlvr_jax.train.checkpoint import Checkpointer


@pytest.fixture
def open_in(tmp_path):
  """`open_in(name)` opens a Checkpointer whose messages are collected in `.messages`; all are closed at the end."""
  opened = []

  def make(name="run", **kwargs):
    messages = []
    kwargs = dict(config=dict(lr=0.1), data_fingerprint="data", on_message=messages.append) | kwargs
    opened.append(Checkpointer(tmp_path / name, **kwargs))
    opened[-1].messages = messages
    return opened[-1]

  yield make
  for checkpointer in opened:
    checkpointer.close()


def small_state(step: int):
  return dict(w=jnp.arange(6.0).reshape(2, 3) + step, step=jnp.int32(step))


def same_bits(a, b) -> bool:
  if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
    return a.dtype == b.dtype and same_bits(jax.random.key_data(a), jax.random.key_data(b))
  return a.dtype == b.dtype and a.shape == b.shape and np.asarray(a).tobytes() == np.asarray(b).tobytes()


def assert_same(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  assert jax.tree.all(jax.tree.map(same_bits, a, b))


def save_steps(checkpointer, steps, metrics=None):
  for i, step in enumerate(steps):
    checkpointer.save(step, small_state(step), dict(cursor=step), metrics[i] if metrics else None)
  checkpointer.wait()
  return sorted(checkpointer._steps_on_disk())


@pytest.mark.parametrize("template", ["arrays", "shapes"])
def test_every_bit_comes_back(open_in, template):
  params = {"a/b.c": jnp.array([0.1, -0.0, jnp.nan, 1e-45, jnp.inf]), "half": jnp.array([1 / 3, -2e38], jnp.bfloat16)}
  optimiser = optax.chain(
    optax.clip_by_global_norm(1.0), optax.masked(optax.adamw(1e-3), {"a/b.c": True, "half": False})
  )
  state = TrainState(
    params=params,
    opt_state=optimiser.init(params),
    credit=dict(first=(), second=jnp.asarray(np.uint32([0, 2**31, 2**32 - 1]))),
    selection=dict(keys=jax.random.split(jax.random.key(1), 3), other=jax.random.key(2, impl="rbg"), nothing=None),
    step=jnp.asarray(np.int32(-(2**31))),
    seed=jnp.asarray(np.uint32(2**32 - 1)),
    anchors={},
  )
  checkpointer = open_in()
  position = dict(loader=dict(epoch=1, order=[3, 1]), best=0.1 + 0.2, none=None, text="é")
  checkpointer.save(7, state, position, 0.5)
  checkpointer.wait()
  restored = open_in().restore(state if template == "arrays" else jax.eval_shape(lambda: state))
  assert restored.step == 7 and restored.position == position
  assert_same(restored.state, state)


def test_a_donated_state_is_saved_as_it_was(open_in):
  mesh = make_mesh()
  step = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
  big = np.arange(2**19, dtype=np.float32).reshape(1024, 512)
  checkpointer = open_in()
  for i in range(3):
    state = {
      "one": jnp.asarray(big) + i,
      "sharded": jax.device_put(big + i, NamedSharding(mesh, PartitionSpec(("data", "fsdp")))),
      "replicated": jax.device_put(big + i, NamedSharding(mesh, PartitionSpec())),
    }
    template = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    checkpointer.save(i, state, {})
    for _ in range(4):  # overwrites the buffers while the save runs
      state = step(state)
    jax.block_until_ready(state)
    saved = checkpointer.restore(template).state
    assert all(np.array_equal(x, big + i) for x in saved.values())


def test_save_returns_before_the_files_are_committed(open_in, monkeypatch):
  go = threading.Event()
  write = checkpoint.write_manifest
  monkeypatch.setattr(checkpoint, "write_manifest", lambda path: (go.wait(30), write(path)))
  checkpointer = open_in()
  position = dict(seen=[1])
  assert checkpointer.save(1, small_state(1), position)
  assert not (checkpointer.directory / "step_1").exists()
  position["seen"].append(2)  # the saved one is a copy
  go.set()
  assert checkpointer.latest() == 1  # waits
  assert checkpointer.restore(small_state(0)).position == dict(seen=[1])
  assert not checkpointer.save(1, small_state(1), {})  # already there


@pytest.mark.parametrize("call", ["save", "wait", "latest", "best", "restore", "close"])
def test_a_failed_save_surfaces_at_the_next_call(open_in, monkeypatch, call):
  checkpointer = open_in(keep_last=1)
  save_steps(checkpointer, [1])

  def fail(path):
    raise OSError("disk is full")

  with monkeypatch.context() as m:
    m.setattr(checkpoint, "write_manifest", fail)
    checkpointer.save(2, small_state(2), {})
    with pytest.raises(OSError, match="disk is full"):
      dict(
        save=lambda: checkpointer.save(3, small_state(3), {}), restore=lambda: checkpointer.restore(small_state(0))
      ).get(call, getattr(checkpointer, call))()
  again = open_in(keep_last=1) if call == "close" else checkpointer
  assert again.latest() == 1  # what the failed save was to replace is still there
  assert save_steps(again, [2]) == [2]


def test_keeps_the_last_and_the_best(open_in):
  checkpointer = open_in(keep_last=2)
  assert checkpointer.latest() is None and checkpointer.best() is None and checkpointer.restore(small_state(0)) is None
  assert save_steps(checkpointer, [1, 2, 3, 4], [0.1, 0.9, 0.3, None]) == [2, 3, 4]
  assert checkpointer.best() == 2
  again = open_in(keep_last=2)  # another process knows the best too
  assert save_steps(again, [5, 6, 7], [0.2, 0.95, None]) == [6, 7]
  assert again.best() == 6
  assert save_steps(again, [8, 9, 10]) == [6, 9, 10]
  assert again.restore(small_state(0), again.best()).state["step"] == 6


def test_keeps_only_the_last_when_asked(open_in):
  checkpointer = open_in(keep_last=1, keep_best=False)
  assert save_steps(checkpointer, [1, 2, 3], [0.9, 0.1, None]) == [3]
  assert checkpointer.best() is None


def test_bad_arguments_are_named(open_in):
  checkpointer = open_in()
  with pytest.raises(ValueError, match="keep_last >= 1, got 0"):
    open_in("other", keep_last=0)
  with pytest.raises(ValueError, match="metric must be finite or None, got nan"):
    checkpointer.save(1, small_state(1), {}, float("nan"))
  with pytest.raises(ValueError, match=r"position.loader.state\[1\] must be JSON-able, got bytes"):
    checkpointer.save(1, small_state(1), dict(loader=dict(state=[0, b"x"])))
  with pytest.raises(ValueError, match="position.seen must have string keys .* got 3"):
    checkpointer.save(1, small_state(1), dict(seen={3: 1}))
  with pytest.raises(ValueError, match=r"jax arrays only, \['n'\] is a int"):
    checkpointer.save(1, dict(n=3), {})
  with pytest.raises(ValueError, match="no sound checkpoint of step 5"):
    save_steps(checkpointer, [1])
    checkpointer.restore(small_state(0), 5)


def flip(file: Path, where: float = 0.5):
  content = bytearray(file.read_bytes())
  content[int(where * (len(content) - 1))] ^= 0x01
  file.write_bytes(content)


def truncate(file: Path):
  os.truncate(file, file.stat().st_size // 2)


ORBAX_TIMES = ("_CHECKPOINT_METADATA", "commit_success.txt")  # written after the manifest; nothing in them is read


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink], ids=lambda f: f.__name__)
def test_damage_to_any_file_is_detected_and_the_one_before_is_used(open_in, tmp_path, damage):
  checkpointer = open_in("good")
  save_steps(checkpointer, [4, 8])
  checkpointer.close()
  files = [p.relative_to(checkpointer.directory) for p in (checkpointer.directory / "step_8").rglob("*") if p.is_file()]
  assert len(files) > 8
  for i, file in enumerate(files):
    shutil.copytree(checkpointer.directory, tmp_path / f"run{i}")
    damage(tmp_path / f"run{i}" / file)
    again = open_in(f"run{i}")
    restored = again.restore(small_state(0))
    if file.name in ORBAX_TIMES and file.parent.name == "step_8" and restored.step == 8:
      assert_same(restored.state, small_state(8))
      continue
    assert restored.step == 4 and restored.position == dict(cursor=4), file
    assert_same(restored.state, small_state(4))
    assert len(again.messages) == 1 and "DAMAGED CHECKPOINT" in again.messages[0] and "step_8" in again.messages[0]
    assert (again.directory / "step_8.damaged").is_dir() and not (again.directory / "step_8").exists()


def test_a_run_goes_on_after_damage(open_in):
  checkpointer = open_in()
  save_steps(checkpointer, [4, 8])
  for _ in range(2):  # the second time the name of the damaged one is taken
    flip(checkpointer.directory / "step_8" / "host" / "metadata")
    checkpointer = open_in()
    assert checkpointer.latest() == 4
    assert save_steps(checkpointer, [8]) == [4, 8]
  assert {p.name for p in checkpointer.directory.glob("*.damaged*")} == {"step_8.damaged", "step_8.damaged.1"}
  assert_same(open_in().restore(small_state(0)).state, small_state(8))


def test_nothing_is_restored_where_all_are_damaged(open_in):
  checkpointer = open_in()
  save_steps(checkpointer, [4, 8])
  for step in (4, 8):
    shutil.rmtree(checkpointer.directory / f"step_{step}" / "state")
  with pytest.warns(UserWarning, match="DAMAGED CHECKPOINT .*state/.* is missing"):
    checkpointer = Checkpointer(checkpointer.directory, config={}, data_fingerprint="")
  assert checkpointer.restore(small_state(0)) is None
  checkpointer.close()


def test_half_written_and_half_removed_ones_are_cleaned(open_in):
  checkpointer = open_in()
  save_steps(checkpointer, [4, 8])
  checkpointer.close()
  shutil.copytree(checkpointer.directory / "step_8", checkpointer.directory / "step_16.orbax-checkpoint-tmp")
  shutil.copytree(checkpointer.directory / "step_8" / "state", checkpointer.directory / "removed" / "step_2" / "state")
  again = open_in()
  assert again.latest() == 8 and not again.messages
  assert save_steps(again, [12]) == [8, 12]
  assert {p.name for p in again.directory.iterdir()} == {"step_8", "step_12"}


def test_a_state_of_another_form_is_refused_by_name(open_in):
  checkpointer = open_in()
  save_steps(checkpointer, [1])
  good = small_state(0)
  for change, message in [
    (dict(w=jnp.zeros((2, 4))), r"\['w'\]: float32\[2, 3\] -> float32\[2, 4\]"),
    (dict(w=jnp.zeros((2, 3), jnp.bfloat16)), r"\['w'\]: float32\[2, 3\] -> bfloat16\[2, 3\]"),
    (dict(extra=jnp.zeros(2)), r"\['extra'\]: \(absent\) -> float32\[2\]"),
    (dict(step=None), r"\['step'\]: int32\[\] -> \(absent\)"),
    (dict(step=jax.random.key(0)), r"\['step'\]: int32\[\] -> key<fry>\[\]"),
  ]:
    with pytest.raises(ValueError, match=message):
      checkpointer.restore(good | change)
  assert checkpointer.latest() == 1 and not checkpointer.messages


def test_arrays_come_back_in_the_layout_of_the_template(open_in):
  mesh = make_mesh(2, 4)
  on = lambda *axes: NamedSharding(mesh, PartitionSpec(*axes))
  value = np.arange(32.0, dtype=np.float32).reshape(8, 4)
  layouts = dict(rows=on(("data", "fsdp")), columns=on(None, "fsdp"), all=on(), one=jnp.zeros(()).sharding)
  for name, saved_on in layouts.items():
    checkpointer = open_in(name)
    checkpointer.save(1, dict(x=jax.device_put(value, saved_on), key=jax.device_put(jax.random.key(1), on())), {})
    for wanted in layouts.values():
      template = dict(
        x=jax.ShapeDtypeStruct(value.shape, jnp.float32, sharding=wanted), key=jax.device_put(jax.random.key(0), on())
      )
      restored = checkpointer.restore(template).state
      assert restored["x"].sharding == wanted and np.array_equal(restored["x"], value)
      assert restored["key"].sharding.is_equivalent_to(on(), 0) and same_bits(restored["key"], jax.random.key(1))


def test_another_config_or_data_set_is_refused_by_key(open_in):
  config = dict(lr=0.1, steps=10, credit=[dict(name="a", eps=1e-6)], display=dict(width=3), limit=float("inf"))
  checkpointer = open_in(config=config)
  assert checkpointer.check_compatible(dict(other=1), "x") == []  # nothing saved yet
  save_steps(checkpointer, [1])
  again = open_in()
  same = config | dict(credit=(dict(name="a", eps=1e-6),))  # a tuple is JSON's list
  assert again.check_compatible(same, "data") == []
  changed = dict(
    lr=0.2, steps=20, credit=[dict(name="a", eps=1e-4)], display=dict(width=4), limit=float("inf"), new=True
  )
  expected = ["credit[0].eps: 1e-06 -> 0.0001", "lr: 0.1 -> 0.2", "new: (absent) -> true"]
  with pytest.raises(ValueError) as error:
    again.check_compatible(changed, "other", free=("steps", "display"))
  assert str(error.value).split("\n  ")[1:] == expected + ["data_fingerprint: 'data' -> 'other'"]
  assert again.check_compatible(changed, "data", allow_changes=True, free=("steps", "display")) == expected
  assert "lr: 0.1 -> 0.2" in again.messages[0]
  assert len(again.check_compatible(config | dict(lr=0.3), "data", allow_changes=True, free=("l",))) == 1  # whole keys


CHILD = """
  import os, shutil, signal, sys
  from pathlib import Path
  import jax, jax.numpy as jnp
  from rlvr_jax.train import checkpoint

  directory, kill_at, arg = sys.argv[1:]
  assert jax.device_count() == 1
  state = lambda step: dict(w=jnp.full((256, 1024), step, jnp.float32), step=jnp.int32(step))
  die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
  def half_remove(path, **_):
    for file in Path(path).rglob("manifest.ocdbt"):
      file.unlink()
      die()
  checkpointer = checkpoint.Checkpointer(directory, keep_last=1, config={}, data_fingerprint="")
  write = checkpoint.write_manifest
  for step in range(1, 100):
    if step == 3:
      checkpointer.wait()
    if step == 3 and kill_at == "before_manifest":
      checkpoint.write_manifest = die
    if step == 3 and kill_at == "after_manifest":
      checkpoint.write_manifest = lambda path: (write(path), die())
    if step == 3 and kill_at == "removing":
      shutil.rmtree = half_remove  # the old one, at the next call
    checkpointer.save(step, state(step), dict(cursor=step), float(arg) * step)
    if step == 3 and kill_at == "writing":
      die()
    print(step, flush=True)
"""


def child(tmp_path, directory, kill_at, arg="1"):
  script = tmp_path / "child.py"
  script.write_text(textwrap.dedent(CHILD))
  env = os.environ | dict(XLA_FLAGS="", PYTHONPATH=os.getcwd())
  return subprocess.Popen(
    [sys.executable, str(script), str(directory), kill_at, arg], env=env, stdout=subprocess.PIPE, text=True
  )


def assert_good_after_kill(directory, at_least: int):
  """The newest is whole and is that of its step; nothing is called damaged; and the run can go on."""
  template = dict(w=jnp.zeros((256, 1024)), step=jnp.int32(0))
  messages = []
  checkpointer = Checkpointer(directory, keep_last=1, config={}, data_fingerprint="", on_message=messages.append)
  step, state, position = checkpointer.restore(template)
  assert step >= at_least and step == checkpointer.latest() and not messages
  assert position == dict(cursor=step) and int(state["step"]) == step and bool((state["w"] == step).all())
  checkpointer.save(step + 1, state, {}, 1e9)
  assert checkpointer.latest() == step + 1 and checkpointer.best() == step + 1
  checkpointer.close()
  assert [p.name for p in checkpointer.directory.iterdir()] == [f"step_{step + 1}"]


@pytest.mark.parametrize("kill_at", ["writing", "before_manifest", "after_manifest", "removing"])
def test_kill_at_a_chosen_point_of_a_save_leaves_a_good_one(tmp_path, kill_at):
  process = child(tmp_path, tmp_path / "run", kill_at)
  process.communicate(timeout=120)
  assert process.returncode == -signal.SIGKILL
  assert_good_after_kill(tmp_path / "run", at_least=2)


@pytest.mark.parametrize("delay_secs", [0.0, 0.013, 0.031, 0.057])
def test_kill_at_any_time_leaves_a_good_one(tmp_path, delay_secs):
  process = child(tmp_path, tmp_path / "run", "never", "-1")  # the first stays the best
  lines = iter(process.stdout.readline, "")
  assert any(line.strip() == "4" for line in lines)
  threading.Event().wait(delay_secs)
  process.kill()
  process.communicate(timeout=60)
  assert_good_after_kill(tmp_path / "run", at_least=3)


def test_manifest_lists_every_file_but_those_orbax_writes_after_it(open_in):
  checkpointer = open_in()
  save_steps(checkpointer, [1])
  path = checkpointer.directory / "step_1"
  files = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}
  assert files - set(json.loads((path / "manifest.json").read_text())) - {"manifest.json"} <= set(ORBAX_TIMES)
