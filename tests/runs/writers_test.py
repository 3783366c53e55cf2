"""Files that survive kills, odd text and odd numbers."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from rlvr_jax.rewards.verdict import Sample, verdict
from rlvr_jax.runs import writers
from rlvr_jax.runs.writers import MetricWriter, RolloutLog, plain_json, write_json_atomic

ODD_TEXT = "a\u2028b\u2029c\u0085d\x0b\x1c\r\n\ud800 é 数 \U0001f600"


def strict(line: str):
  def refuse(constant):
    raise AssertionError(f"not strict JSON: {constant}")

  return json.loads(line, parse_constant=refuse)


def rows(path):
  text = path.read_bytes().decode("ascii")
  assert text.endswith("\n")
  assert text.splitlines() == text.split("\n")[:-1]  # the naive and the right way of reading lines agree
  return [strict(line) for line in text.splitlines()]


def raw_events(folder):
  """Every event, by the TFRecord framing: length, its crc, payload, its crc."""
  found = []
  for path in sorted(folder.glob("events*")):
    data = path.read_bytes()
    while data:
      size = int.from_bytes(data[:8], "little")
      found.append(Event.FromString(data[12 : 12 + size]))
      data = data[12 + size + 4 :]
  return found


def events(folder):
  """(step, tag, value) of every scalar."""
  return [(e.step, v.tag, v.simple_value) for e in raw_events(folder) for v in e.summary.value]


def test_metrics_and_events(tmp_path):
  writer = MetricWriter(tmp_path)
  writer.write(1, {"reward/mean": np.float32(0.5), "loss": jnp.float32(2.0), "count": np.int64(3)})
  writer.write(2, {"reward/mean": float("nan"), "loss": float("-inf"), "count": 4})
  assert rows(tmp_path / "metrics.jsonl")[0] == {"step": 1, "reward/mean": 0.5, "loss": 2.0, "count": 3.0}  # flushed
  writer.close()
  assert rows(tmp_path / "metrics.jsonl")[1] == {
    "step": 2, "reward/mean": None, "loss": None, "count": 4.0, "not_finite": {"reward/mean": "nan", "loss": "-inf"},
  }  # fmt: skip
  assert events(tmp_path / "tensorboard") == [
    (1, "reward/mean", 0.5), (1, "loss", 2.0), (1, "count", 3.0), (2, "count", 4.0),
  ]  # fmt: skip


def test_metric_must_be_a_scalar(tmp_path):
  writer = MetricWriter(tmp_path)
  with pytest.raises(ValueError, match=r"metric 'loss' must be a scalar, got shape \(2,\)"):
    writer.write(1, {"loss": np.zeros(2)})
  writer.close()
  assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def write_steps(folder, steps, resume_step=None):
  writer = MetricWriter(folder, resume_step)
  for step in steps:
    writer.write(step, {"loss": 1 / step})
  writer.close()


def test_resumed_file_equals_the_uninterrupted_one(tmp_path):
  write_steps(tmp_path / "whole", range(1, 11), resume_step=0)
  cut = tmp_path / "cut"
  write_steps(cut, range(1, 8), resume_step=0)
  with open(cut / "metrics.jsonl", "a") as f:
    f.write('{"step": 8, "lo')  # killed in the middle of a line
  write_steps(cut, range(5, 11), resume_step=4)
  assert (cut / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()
  assert not list(cut.glob(".*"))


def test_tensorboard_forgets_what_came_after_the_resumed_step(tmp_path):
  write_steps(tmp_path, range(1, 8), resume_step=0)
  write_steps(tmp_path, range(5, 7), resume_step=4)
  purges = [e.step for e in raw_events(tmp_path / "tensorboard") if e.WhichOneof("what") == "session_log"]
  assert purges == [5]  # TensorBoard drops earlier events from this step on
  assert sorted(step for step, _, _ in events(tmp_path / "tensorboard")) == [1, 2, 3, 4, 5, 5, 6, 6, 7]


def test_half_a_line_is_dropped_even_when_it_is_json(tmp_path):
  write_steps(tmp_path, [1])
  with open(tmp_path / "metrics.jsonl", "a") as f:
    f.write('{"step": 2, "loss": 1}')
  write_steps(tmp_path, [3])
  assert [r["step"] for r in rows(tmp_path / "metrics.jsonl")] == [1, 3]


@pytest.mark.parametrize("line", ["{broken", "[1, 2]", '{"loss": 1}', ""])
def test_damage_inside_the_file_is_named(tmp_path, line):
  (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n{{"step": 2}}\n')
  with pytest.raises(ValueError, match=r"metrics.jsonl:2 is not a JSON object with a 'step'"):
    MetricWriter(tmp_path, resume_step=1)


def test_kill_minus_nine_loses_no_written_step(tmp_path):
  code = """
    import runpy, sys
    writer = runpy.run_path(sys.argv[2])["MetricWriter"](sys.argv[1])  # the file alone starts faster than the room
    step = 0
    while True:
      step += 1
      writer.write(step, {"x": 0.5})
      print(step, flush=True)
  """
  command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), writers.__file__]
  child = subprocess.Popen(command, stdout=subprocess.PIPE)
  for _ in range(50):
    printed = int(child.stdout.readline())
  os.kill(child.pid, signal.SIGKILL)
  child.wait()
  child.stdout.close()
  MetricWriter(tmp_path).close()
  steps = [r["step"] for r in rows(tmp_path / "metrics.jsonl")]
  assert steps == list(range(1, len(steps) + 1)) and len(steps) >= printed


def scored_batch(num_prompts=2, group=3):
  n = num_prompts * group
  samples = [Sample(f"{i}{ODD_TEXT}", {"answer": np.int64(i)}, f"prompt {i // group}{ODD_TEXT}") for i in range(n)]
  verdicts = [
    {
      "math": verdict(0.0, "error", "worker died") if i == 1 else verdict(1.0, "ok", "equal"),
      "format": verdict(0.5, "ok"),
    }
    for i in range(n)
  ]
  mask = np.arange(n) != 1
  mixed = SimpleNamespace(reward=np.where(mask, np.float32(1.05), np.float32(0)), row_mask=mask)
  scored = SimpleNamespace(
    samples=samples, verdicts=verdicts, mixed=mixed, lengths=np.arange(n), truncated=np.arange(n) == 2
  )
  return SimpleNamespace(prompt_id=np.arange(num_prompts) + 40), scored


def test_rollout_rows(tmp_path):
  log = RolloutLog(tmp_path, max_per_step=100)
  batch, scored = scored_batch()
  log.write(7, batch, scored, advantages=np.linspace(-1, 1, 6))
  found = rows(tmp_path / "rollouts.jsonl")
  log.close()
  assert [r["prompt_id"] for r in found] == [40, 40, 40, 41, 41, 41]
  assert found[1] == dict(
    step=7, prompt_id=40, prompt=f"prompt 0{ODD_TEXT}", completion=f"1{ODD_TEXT}", reference={"answer": 1},
    rewards={"math": None, "format": 0.5}, reward=None, statuses={"math": "error", "format": "ok"},
    reasons={"math": "worker died", "format": ""}, length=1, truncated=False, advantage=pytest.approx(-0.6),
  )  # fmt: skip
  assert found[2]["reward"] == pytest.approx(1.05) and found[2]["truncated"] is True


def test_rollouts_are_limited_and_spread(tmp_path):
  log = RolloutLog(tmp_path, max_per_step=2)
  batch, scored = scored_batch()
  for step in (6, 7):
    log.write(step, batch, scored)
  log.close()
  found = rows(tmp_path / "rollouts.jsonl")
  assert [(r["step"], r["prompt_id"], r["length"]) for r in found] == [(6, 40, 0), (6, 41, 3), (7, 40, 1), (7, 41, 4)]
  RolloutLog(tmp_path, resume_step=6).close()
  assert [r["step"] for r in rows(tmp_path / "rollouts.jsonl")] == [6, 6]


def test_rollout_errors(tmp_path):
  with pytest.raises(ValueError, match="max_per_step must be >= 0"):
    RolloutLog(tmp_path, max_per_step=-1)
  batch, scored = scored_batch()
  batch.prompt_id = np.arange(4)
  log = RolloutLog(tmp_path)
  with pytest.raises(ValueError, match="6 completions are not a multiple of 4 prompts"):
    log.write(1, batch, scored)
  log.close()


def test_atomic_json(tmp_path):
  path = tmp_path / "config.json"
  write_json_atomic(path, dict(a=(1, np.float32(0.5)), b=np.arange(2), c=ODD_TEXT, d=np.bool_(True), e=float("inf")))
  assert strict(path.read_text()) == dict(a=[1, 0.5], b=[0, 1], c=ODD_TEXT, d=True, e=None)
  before = path.read_bytes()
  with pytest.raises(ValueError, match="cannot be written as JSON: object"):
    write_json_atomic(path, dict(a=1, b=object()))
  assert path.read_bytes() == before and os.listdir(tmp_path) == ["config.json"]


def test_plain_json_keeps_types():
  assert plain_json(True) is True and plain_json(np.int32(3)) == 3 and plain_json(None) is None
  assert plain_json({1: np.str_("x")}) == {"1": "x"}
