"""Configs compared: paired by seed, at equal budget, and the same however often it was interrupted."""

import importlib
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from lab import SharedRun, lab

from rlvr_jax.runs.compare import compare, lanes_of, load_config, to_curves, with_budget
from rlvr_jax.runs.lab_run import LabResult, Point

room = importlib.import_module("rlvr_jax.runs.compare")  # `runs.compare` is the function of that name
BUDGET = 100

CONFIG = """
from lab import SFT, lab


def get_config(task):
  tree = dict(name="token_tree", branching=8, depth=1, num_right=dict(easy=4, hard=2)[task], num_prompts=4)
  return lab(task=tree, stages=[SFT, dict(kind="rl")], {changes})
"""


@pytest.fixture(scope="module", autouse=True)
def quick_compiles():
  jax.config.update("jax_disable_most_optimizations", True)
  yield
  jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def shared(monkeypatch):
  monkeypatch.setattr(room, "LabRun", SharedRun)


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
  """Files: GRPO as the baseline, and leave-one-out."""
  folder = tmp_path_factory.mktemp("configs")
  credit = 'credit=[dict(name="leave_one_out"), dict(name="spread_over_tokens")]'
  for name, changes in dict(first="", second=credit).items():
    (folder / f"{name}.py").write_text(CONFIG.format(changes=changes))
  return [str(folder / f"{name}.py") for name in ("first", "second")]


def accuracy(folder):
  """Config -> [s k], as the report has it."""
  report = json.loads((folder / "report.json").read_text())
  return {name: np.array(curve["accuracy"]) for name, curve in report["curves"]["easy"].items()}


def without_secs(folder):
  report = json.loads((folder / "report.json").read_text())
  for curve in report["curves"]["easy"].values():
    del curve["seconds"]
  for row in report["rows"]:
    del row["seconds"]
  return report


class Killed(Exception):
  pass


@pytest.mark.slow
def test_two_configs_end_to_end(shared, configs, tmp_path):
  """Paired: both begin from the same weights and the same supervised stage, so each seed's first accuracy is the same.
  Interrupted after the first cell and within the second, the report is the same (but for seconds)."""
  told = []
  ask = dict(tasks=["easy"], seeds=[0, 1], budget_tokens=BUDGET)
  rows = compare(configs, workdir=tmp_path / "whole", on_progress=lambda *x: told.append(x), **ask)
  assert [(row.task, row.config, row.verdict) for row in rows][0] == ("easy", "first", "baseline")
  assert rows[0].comparison is None and rows[1].comparison is not None and rows[1].config == "second"
  for name in ("report.md", "report.json", "curves.png"):
    assert (tmp_path / "whole" / name).stat().st_size > 0
  found = accuracy(tmp_path / "whole")
  np.testing.assert_array_equal(found["first"][:, 0], found["second"][:, 0])
  assert found["first"].shape[0] == 2 and found["first"].shape[1] > 2
  for row in rows:
    assert BUDGET <= row.generated_tokens < BUDGET + 2 * 4 * 3
  assert told[0][:3] == (0, 2, "first on easy") and told[-1][:2] == (2, 2)
  assert [x[0] for x in told] == sorted(x[0] for x in told)

  def kill(done, total, name, row):
    if name == "second on easy" and row:
      raise Killed

  with pytest.raises(Killed):
    compare(configs, workdir=tmp_path / "parts", on_progress=kill, **ask)
  assert not (tmp_path / "parts" / "report.md").exists()
  compare(configs, workdir=tmp_path / "parts", **ask)
  assert without_secs(tmp_path / "parts") == without_secs(tmp_path / "whole")
  check_other_settings_are_refused(configs, tmp_path / "whole", ask)


def check_other_settings_are_refused(configs, folder, ask):
  before = (folder / "report.json").read_bytes()
  for changes in (
    dict(seeds=[0, 1, 2]),
    dict(budget_tokens=BUDGET + 1),
    dict(changes={"optimiser.clip_norm": 0.1}),
  ):
    with pytest.raises(ValueError, match="curves.json was made with another config, seeds or budget"):
      compare(configs, workdir=folder, **(ask | changes))
  assert (folder / "report.json").read_bytes() == before


@pytest.mark.slow
def test_a_sweep_is_further_curves(shared, configs, tmp_path):
  """Without learning the curve is flat; each value is paired with the baseline, which is the first."""
  rows = compare(
    configs[:1], ["easy"], seeds=[0, 1], budget_tokens=40, workdir=tmp_path,
    sweep={"stages[0].optimiser.learning_rate": [0.01, 0.0]},
  )  # fmt: skip
  assert [row.config for row in rows] == ["first learning_rate=0.01", "first learning_rate=0"]
  found = accuracy(tmp_path)
  assert (found["first learning_rate=0.01"][:, 0] != found["first learning_rate=0"][:, 0]).any()


def test_a_finished_cell_is_read(monkeypatch, tmp_path):
  """Nothing is run again."""
  config = lab()
  identity = dict(config=with_budget(config), seeds=[0], sweep={}, budget=9)
  curve = dict(tokens=[0, 9], accuracy=[[0.25, 0.5]], update_tokens=[0, 9], seconds=[0, 1], seeds=[0])
  text = json.dumps(dict(identity=identity, curves=dict(first=curve)))
  (tmp_path / "curves.json").write_text(text)
  monkeypatch.setattr(room, "LabRun", lambda *_: pytest.fail("ran"))
  found = room.run_cell("first", config, [0], {}, 9, tmp_path, {}, lambda row: None)
  assert found["first"].accuracy.tolist() == [[0.25, 0.5]]
  with pytest.raises(ValueError, match="another config, seeds or budget"):
    room.run_cell("first", config, [0, 1], {}, 9, tmp_path, {}, lambda row: None)


def test_lanes_of_a_sweep():
  assert lanes_of([3, 5], {}) == ([3, 5], {})
  assert lanes_of([3, 5], {"a": [0.1, 0.2]}) == ([3, 5, 3, 5], {"a": [0.1, 0.1, 0.2, 0.2]})
  with pytest.raises(ValueError, match="sweeps one number at a time"):
    lanes_of([3], {"a": [1.0], "b": [2.0]})


def test_curves_are_of_the_last_stage_and_end_where_the_tokens_do():
  """Two lanes of two swept values; value 0.1 stops generating at iteration 4, where value 0.2 goes on."""

  def point(iteration, stage, accuracy, tokens):
    spent = dict(
      generated_tokens=np.array(tokens), update_tokens=np.array(tokens) // 2, scored_tokens=np.array([1, 1, 1, 1])
    )
    return Point(iteration, stage, np.array(accuracy), spent, 2.0 * iteration)

  points = (
    point(0, 0, [0, 0, 0, 0], [0, 0, 0, 0]), point(2, 1, [0.1, 0.2, 0.1, 0.2], [0, 0, 0, 0]),
    point(4, 1, [0.3, 0.4, 0.5, 0.6], [10, 14, 20, 20]), point(6, 1, [0.3, 0.4, 0.7, 0.8], [10, 14, 30, 34]),
  )  # fmt: skip
  values = {"optimiser.learning_rate": np.float32([0.1, 0.1, 0.2, 0.2])}
  result = LabResult(np.array([3, 5, 3, 5]), values, points, None, None, 0.0, 0.0)
  found = to_curves("grpo", result, 2)
  assert list(found) == ["grpo learning_rate=0.1", "grpo learning_rate=0.2"]
  short, long = found.values()
  assert short.tokens.tolist() == [0, 12] and short.accuracy.tolist() == [[0.1, 0.3], [0.2, 0.4]]
  assert long.tokens.tolist() == [0, 20, 32] and long.accuracy.tolist() == [[0.1, 0.5, 0.7], [0.2, 0.6, 0.8]]
  assert long.update_tokens.tolist() == [1, 11, 17] and long.seconds.tolist() == [0, 4, 8]
  assert long.seeds.tolist() == [3, 5]


def test_a_budget_makes_the_last_stage_go_on():
  config = lab(stages=[dict(kind="sft", train=dict(num_steps=1)), dict(kind="rl", train=dict(num_epochs=2))])
  first, last = with_budget(config)["stages"]
  assert first["train"] == dict(num_steps=1) and last["train"] == dict(num_epochs=2, num_steps=10**6)
  assert with_budget(lab())["stages"] == [dict(kind="rl", train=dict(num_steps=10**6))]
  assert lab()["train"] == dict(num_steps=4)


@pytest.mark.parametrize(
  "ask, message",
  [
    (dict(changes={"optimiser.rate": 1}), r"config has no 'optimiser\.rate'"),
    (dict(sweep={"optimiser.rate": [1.0]}), r"config has no 'optimiser\.rate'"),
    (dict(sweep={"optimiser.learning_rate": [1.0], "credit[0].eps": [1.0]}), "sweeps one number at a time"),
    (dict(sweep={"task.branching": [1.0]}), r"'task\.branching' cannot be swept"),
    (dict(changes={"eval.every": 0}), r"a comparison needs config\.eval\.every >= 1"),
    (dict(changes={"stages": [dict(kind="sft")]}), "whose last stage is of kind 'sft'"),
    (dict(seeds=[]), r"seeds must differ, and there must be one, got \[\]"),
    (dict(seeds=[1, 1]), r"seeds must differ, and there must be one, got \[1, 1\]"),
    (dict(tasks=[]), r"tasks must differ, and there must be one, got \[\]"),
    (dict(budget_tokens=0), r"budget_tokens must be >= 1, got 0"),
  ],
)
def test_what_is_wrong_is_said_before_anything_runs(configs, tmp_path, monkeypatch, ask, message):
  monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *_, **__: pytest.fail("compiled"))
  with pytest.raises(ValueError, match=message):
    compare(configs, workdir=tmp_path, **(dict(tasks=["easy"], seeds=[0], budget_tokens=9) | ask))
  assert not list(tmp_path.iterdir())


def test_a_fault_of_the_last_config_is_said_before_the_first_runs(configs, tmp_path, monkeypatch):
  monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *_, **__: pytest.fail("compiled"))
  ask = dict(tasks=["easy"], seeds=[0], budget_tokens=9, workdir=tmp_path)
  with pytest.raises(ValueError, match=r"config has no 'credit\[0\]\.eps'"):  # leave_one_out has none
    compare(configs, sweep={"credit[0].eps": [0.1]}, **ask)
  with pytest.raises(ValueError, match="there is no config 'nowhere.py'"):
    compare([*configs, "nowhere.py"], **ask)
  other = tmp_path / "first.py"
  other.write_text(Path(configs[0]).read_text())
  with pytest.raises(ValueError, match=r"names of configs must differ, .* \['first', 'first'\]"):
    compare([configs[0], str(other)], **ask)


def test_a_config_is_plain(configs):
  assert load_config(configs[0], "hard")["task"]["num_right"] == 2
