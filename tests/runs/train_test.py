"""One small run from config to summary, in process; every file it leaves is looked at."""

import json
import struct
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from small import small
from tensorboardX.proto.event_pb2 import Event

from rlvr_jax.evals import EvalResult, read_rows
from rlvr_jax.runs import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("run")
  before, after = train(small(), str(workdir), plain=True)
  return workdir, before, after


def test_metrics_have_a_row_per_step_with_phases_and_budget(run):
  rows = [r for r in read_rows(run[0] / "metrics.jsonl") if "loss" in r]
  assert [r["step"] for r in rows] == [1, 2, 3, 4]
  for row in rows[2:]:
    assert row["time/sample_secs"] > 0 and row["time/train_secs"] > 0 and row["time/generated_tokens_per_sec"] > 0
    assert 0 <= row["reward/mean"] <= 1 and row["reward/exact"] == pytest.approx(row["reward/mean"])
    assert row["entropy"] > 0 and row["grad_norm"] >= 0
    assert row["sampler_mismatch_max"] < 1e-4  # temperature 1, mixed prompt lengths: the first ratio is 1
  assert rows[3]["budget/generated_tokens"] > rows[2]["budget/generated_tokens"] > 0


def test_evaluations_stand_at_every_border_of_a_stage(run):
  workdir, before, after = run
  results = {p.stem: EvalResult.from_json(json.loads(p.read_text())) for p in (workdir / "evals").iterdir()}
  assert set(results) == {"step_000000", "step_000002", "step_000004"}
  assert all(r.scores.shape == (6, 2) for r in results.values())
  np.testing.assert_array_equal(results["step_000002"].scores, before.scores)
  np.testing.assert_array_equal(results["step_000004"].scores, after.scores)
  logged = [r["step"] for r in read_rows(workdir / "metrics.jsonl") if "eval/accuracy" in r]
  assert logged == [0, 2, 4]


def test_rollouts_tell_prompt_completion_verdict_and_reason(run):
  rows = read_rows(run[0] / "rollouts.jsonl")
  assert {r["step"] for r in rows} == {3, 4}
  for row in rows:
    assert row["prompt"].endswith("=") and row["statuses"]["exact"] in ("ok", "wrong", "unparsable")
    assert row["reasons"]["exact"] and row["length"] >= 1 and row["reference"].isdecimal()


def test_events_config_and_curve_are_there(run):
  workdir = run[0]
  data = b"".join(p.read_bytes() for p in (workdir / "tensorboard").iterdir())
  tags, at = set(), 0
  while at < len(data):
    (size,) = struct.unpack("<Q", data[at : at + 8])
    tags |= {v.tag for v in Event.FromString(data[at + 12 : at + 12 + size]).summary.value}
    at += 16 + size
  assert {"loss", "reward/mean", "eval/accuracy"} <= tags
  assert json.loads((workdir / "config.json").read_text())["rollout"]["group_size"] == 4
  assert (workdir / "curve.png").read_bytes()[:4] == b"\x89PNG"
  assert [p.name for p in (workdir / "checkpoints").iterdir() if p.name == "step_4"]


def test_running_again_finds_everything_done(run, capsys):
  workdir, before, after = run
  rows = read_rows(workdir / "metrics.jsonl")
  again_before, again_after = train(small(), str(workdir), plain=True)
  np.testing.assert_array_equal(again_before.scores, before.scores)
  np.testing.assert_array_equal(again_after.scores, after.scores)
  assert read_rows(workdir / "metrics.jsonl") == rows
  out = capsys.readouterr().out
  assert "going on after step 4" in out and "accuracy" in out


def test_another_config_refuses_and_names_what_differs(run):
  with pytest.raises(ValueError, match=r"optimiser\.learning_rate: 0\.001 -> 0\.5"):
    train(small(optimiser=dict(name="adamw", learning_rate=0.5)), str(run[0]), plain=True)


@pytest.mark.slow
def test_eight_devices_learn_what_one_learns(run, tmp_path):
  """The same tokens and verdicts; metrics to rounding. Data, fsdp and tensor axes are all used."""
  train(small(mesh=dict(num_devices=8, data=2, fsdp=2, tensor=2)), str(tmp_path), plain=True)
  one, eight = (read_rows(d / "rollouts.jsonl") for d in (run[0], tmp_path))
  assert [r["completion"] for r in one] == [r["completion"] for r in eight]
  one, eight = (read_rows(d / "metrics.jsonl") for d in (run[0], tmp_path))
  for a, b in zip(one, eight, strict=True):
    for key in a.keys() - {k for k in a if k.startswith("time/")}:
      assert b[key] == pytest.approx(a[key], rel=1e-3, abs=1e-4), key


def test_the_notebook_reads_this_run(run, monkeypatch, capsys):
  notebook = json.loads((Path(__file__).parents[2] / "notebooks" / "read_a_run.ipynb").read_text(encoding="utf-8"))
  shown = ModuleType("IPython.display")  # the notebooks extra brings the real one
  pictures = []
  shown.Image, shown.display = lambda path: path, pictures.append
  monkeypatch.setitem(sys.modules, "IPython.display", shown)
  monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
  monkeypatch.setenv("WORKDIR", str(run[0]))
  scope = {}
  for cell in notebook["cells"]:
    if cell["cell_type"] == "code":
      exec("".join(cell["source"]), scope)
  out = capsys.readouterr().out
  assert pictures == [run[0] / "curve.png"] and "accuracy" in out and "reason" in out
