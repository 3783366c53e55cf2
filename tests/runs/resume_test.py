"""The real main, killed and stopped at chosen points: what it leaves at the end is what an undisturbed run leaves.

Each run is a process of its own. `SIGNAL_AT="9:module:attribute:n"` makes it send itself signal 9 as it enters the n-th
call of `attribute`, so a kill falls at the same point of a run whatever the speed of the machine.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orbax.checkpoint as ocp
import pytest

NUM_STEPS = 6  # 2 supervised, 4 of reinforcement learning; saved every 2, evaluated every 3
REPOSITORY = Path(__file__).parents[2]

CONFIG = """
  from configs.quickstart import get_config as quickstart

  def get_config():
    c = quickstart()
    fields = dict(reference="answer", demonstration="answer")
    c.task = dict(name="jsonl", path={data!r}, eval_fraction=0.2, fields=fields)
    c.prompts = dict(per_step=2, max_tokens=8)
    c.rollout = dict(name="groups", group_size=8, max_new_tokens=4, temperature=1.0)
    c.rewards = (dict(name="exact", weight=1.0), dict(name="length", weight=0.5, max_tokens=1, slack=3))
    c.train = dict(num_steps=4)
    c.eval = dict(every=3, num_prompts=4, prompts_per_batch=4, rollout=dict(temperature=0.0))
    c.checkpoint = dict(every=2, keep_last=2)
    sft = dict(objective=(dict(name="negative_log_likelihood"),), optimiser=dict(learning_rate=1e-2))
    c.stages = (dict(kind="sft", train=dict(num_steps=2), prompts=dict(per_step=4), **sft), dict(kind="rl"))
    return c
"""

MAIN = """
  import functools, importlib, os, sys
  from absl import app
  import experiments.train

  def signal_at(number, module, attribute, n):
    *owners, name = attribute.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    original, calls = getattr(owner, name), []
    def wrapped(*args, **kwargs):
      calls.append(1)
      if len(calls) == int(n):
        os.kill(os.getpid(), int(number))
      return original(*args, **kwargs)
    setattr(owner, name, wrapped)

  if os.environ.get("SIGNAL_AT"):
    signal_at(*os.environ["SIGNAL_AT"].split(":"))
  app.run(experiments.train.main)
"""


class Lab(NamedTuple):
  """A folder with the data, the config and the main, shared by the runs of this file."""

  path: Path

  @property
  def data(self) -> Path:
    return self.path / "data.jsonl"

  def run(self, name: str, *flags: str, signal_at: str = "", cache: bool = True) -> tuple[int, str]:
    """(exit status, output) of one life of run `name`. Every process it started must be gone soon after."""
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    env |= dict(PYTHONPATH=str(REPOSITORY), JAX_PLATFORMS="cpu", SIGNAL_AT=signal_at)
    if cache:  # compiling is most of such a run
      env |= dict(JAX_COMPILATION_CACHE_DIR=str(self.path / "jax"), JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")
    command = [sys.executable, "main.py", "--config=tiny.py", f"--workdir={name}", "--plain", *flags]
    log = self.path / f"{name}.log"
    with open(log, "wb") as f:
      process = subprocess.Popen(
        command, cwd=self.path, env=env, stdout=f, stderr=subprocess.STDOUT, start_new_session=True
      )
    try:
      status = process.wait(timeout=600)
      assert_gone(process.pid)
    finally:
      if group_lives(process.pid):
        os.killpg(process.pid, signal.SIGKILL)
    return status, log.read_text(encoding="utf-8")


def group_lives(group: int) -> bool:
  try:
    os.killpg(group, 0)
  except ProcessLookupError:
    return False
  return True


def assert_gone(group: int):
  deadline = time.monotonic() + 30
  while group_lives(group):
    assert time.monotonic() < deadline, "worker processes outlive the run that started them"
    time.sleep(0.1)


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Lab:
  lab = Lab(tmp_path_factory.mktemp("resume"))
  rows = [dict(prompt=f"{a}+{b}=", answer=str(a + b)) for a in range(8) for b in range(8)]
  lab.data.write_text("".join(json.dumps(row) + "\n" for row in rows))
  (lab.path / "tiny.py").write_text(textwrap.dedent(CONFIG.format(data=str(lab.data))))
  (lab.path / "main.py").write_text(textwrap.dedent(MAIN))
  return lab


@pytest.fixture(scope="module")
def undisturbed(lab) -> Path:
  status, output = lab.run("undisturbed")
  assert status == 0, output
  rows = metrics(lab.path / "undisturbed")
  assert max(row.get("grad_norm", 0) for row in rows if row["step"] > 2) > 0, "nothing is learned: nothing is compared"
  return lab.path / "undisturbed"


def metrics(workdir: Path) -> list[dict]:
  """Rows of metrics.jsonl without the wall-clock."""
  rows = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
  return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def last_checkpoint(workdir: Path) -> tuple[dict[str, np.ndarray], dict]:
  path = workdir / "checkpoints" / f"step_{NUM_STEPS}"
  state = ocp.StandardCheckpointer().restore(path / "state")
  return {k: np.asarray(v) for k, v in state.items()}, json.loads((path / "host" / "metadata").read_text())


def assert_same_end(a: Path, b: Path):
  """Bit for bit: metrics, sampled completions, evaluations, and in the last checkpoint every array and the position."""
  assert metrics(a) == metrics(b)
  assert (a / "rollouts.jsonl").read_bytes() == (b / "rollouts.jsonl").read_bytes()
  evals = lambda path: {p.name: json.loads(p.read_text()) for p in (path / "evals").iterdir()}
  assert evals(a) == evals(b)
  (state_a, host_a), (state_b, host_b) = last_checkpoint(a), last_checkpoint(b)
  assert host_a == host_b and state_a.keys() == state_b.keys()
  assert len(state_a) > 10
  differ = [k for k in state_a if state_a[k].dtype != state_b[k].dtype or state_a[k].tobytes() != state_b[k].tobytes()]
  assert not differ


IN_STEP = "rlvr_jax.runs.loop:score"  # between sampling and the update
BEFORE_SAVE = "rlvr_jax.train.checkpoint:Checkpointer.save"  # the metrics of the step are written, its state is not
IN_SAVE = "rlvr_jax.train.checkpoint:write_manifest"  # files written, not yet committed; in the saving thread
IN_EVAL = "rlvr_jax.runs.loop:Run.evaluate"
IN_METRICS = "rlvr_jax.runs.writers:MetricWriter.write"


def test_a_run_killed_again_and_again_ends_as_if_nothing_had_happened(lab, undisturbed):
  for point in (f"{IN_STEP}:2", f"{IN_SAVE}:1", f"{BEFORE_SAVE}:1"):
    status, output = lab.run("killed", signal_at=f"9:{point}")
    assert status == -signal.SIGKILL, output
    assert "DAMAGED" not in output
  status, output = lab.run("killed")
  assert status == 0 and "after step 2" in output and "DAMAGED" not in output, output
  assert_same_end(lab.path / "killed", undisturbed)


def test_sigterm_saves_and_exits_with_0(lab, undisturbed):
  status, output = lab.run("stopped", signal_at=f"15:{IN_STEP}:1")  # in step 3, which is no step to save at
  assert status == 0 and "stopped after step 3" in output, output
  assert (lab.path / "stopped" / "checkpoints" / "step_3" / "manifest.json").exists()
  status, output = lab.run("stopped")
  assert status == 0 and "after step 3" in output, output
  assert_same_end(lab.path / "stopped", undisturbed)


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(lab, undisturbed):
  subprocess.run(["cp", "-r", undisturbed, lab.path / "damaged"], check=True)
  (file,) = (lab.path / "damaged" / "checkpoints" / f"step_{NUM_STEPS}" / "state" / "d").iterdir()
  file.write_bytes(file.read_bytes()[:-1])
  status, output = lab.run("damaged")
  assert status == 0 and "DAMAGED CHECKPOINT" in output and "after step 4" in output, output
  assert_same_end(lab.path / "damaged", undisturbed)


def test_another_config_or_data_set_is_refused_by_name(lab, undisturbed):
  before = metrics(undisturbed)
  status, output = lab.run("undisturbed", "--config.optimiser.clip_norm=0.5")
  assert status != 0 and "optimiser.clip_norm: 1.0 -> 0.5" in output, output
  text = lab.data.read_text()
  try:
    lab.data.write_text(text.replace('"answer": "14"', '"answer": "15"'))
    status, output = lab.run("undisturbed")
  finally:
    lab.data.write_text(text)
  assert status != 0 and "data_fingerprint: " in output and "clip_norm" not in output, output
  assert metrics(undisturbed) == before


@pytest.mark.slow
@pytest.mark.parametrize("point", [
  f"{IN_STEP}:1", f"{IN_STEP}:3", f"{BEFORE_SAVE}:2", f"{IN_SAVE}:1", f"{IN_SAVE}:2", f"{IN_SAVE}:3",
  f"{IN_EVAL}:1", f"{IN_EVAL}:3", f"{IN_EVAL}:4", f"{IN_METRICS}:3", f"{IN_METRICS}:7",
])  # fmt: skip
def test_a_kill_at_any_point_changes_nothing(lab, undisturbed, point):
  name = point.replace(":", "-")
  status, output = lab.run(name, signal_at=f"9:{point}")
  assert status == -signal.SIGKILL, output
  status, output = lab.run(name)
  assert status == 0 and "DAMAGED" not in output, output
  assert_same_end(lab.path / name, undisturbed)


@pytest.mark.slow
def test_a_resumed_run_that_compiles_anew_changes_nothing(lab, undisturbed):
  assert lab.run("anew", signal_at=f"9:{IN_STEP}:3", cache=False)[0] == -signal.SIGKILL
  status, output = lab.run("anew", cache=False)
  assert status == 0, output
  assert_same_end(lab.path / "anew", undisturbed)


@pytest.mark.slow
def test_changes_are_allowed_when_told(lab, undisturbed):
  subprocess.run(["cp", "-r", undisturbed, lab.path / "changed"], check=True)
  status, output = lab.run("changed", "--config.train.num_steps=5", "--allow_changes")
  assert status == 0 and "train.num_steps: 4 -> 5" in output, output
  assert metrics(lab.path / "changed")[-1]["step"] == NUM_STEPS + 1
