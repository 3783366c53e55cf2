"""Configs compared at equal budget: the same seeds, initial weights, prompts and sampling keys for each.

A cell is one config on one task over all seeds, one laboratory run. Finished cells are kept on disk, and a cell under
way goes on from its last checkpoint, so an interrupted comparison continues where it was.
"""

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlvr_jax.evals import CurveData, write_report
from rlvr_jax.runs.lab_run import LabResult, LabRun
from rlvr_jax.runs.lab_train import run_lab
from rlvr_jax.runs.laboratory import set_path
from rlvr_jax.runs.settings import plain
from rlvr_jax.runs.writers import write_json_atomic

ENDLESS = 10**6  # steps of the last stage: the budget ends it


def load_config(path: str | Path, task: str) -> dict[str, Any]:
  """`get_config(task)` of a config file, as a plain dict."""
  path = Path(path)
  if not path.is_file():
    raise ValueError(f"there is no config {str(path)!r}")
  spec = importlib.util.spec_from_file_location(f"config_{path.stem}", path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return plain(module.get_config(task))


def with_budget(config: Mapping[str, Any]) -> dict[str, Any]:
  """The config whose last stage goes on until its tokens are spent."""
  config = plain(config)
  stages = config.get("stages") or [dict(kind="rl")]
  last = dict(stages[-1])
  if last.get("kind") == "sft":
    raise ValueError("a budget of generated tokens never ends a comparison whose last stage is of kind 'sft'")
  if not config.get("eval", {}).get("every"):
    raise ValueError("a comparison needs config.eval.every >= 1: between evaluations it sees whether a budget is spent")
  last["train"] = dict(last.get("train", {}), num_steps=ENDLESS)
  return config | dict(stages=[*stages[:-1], last])


def names_of(configs: Sequence[str]) -> list[str]:
  return [Path(path).stem for path in configs]


def lanes_of(seeds: Sequence[int], sweep: Mapping[str, Sequence[float]]) -> tuple[list[int], dict[str, list[float]]]:
  """One lane for each seed and each value of the one swept path."""
  if not sweep:
    return list(seeds), {}
  if len(sweep) > 1:
    raise ValueError(f"a comparison sweeps one number at a time, got {sorted(sweep)}")
  ((path, numbers),) = sweep.items()
  return [s for _ in numbers for s in seeds], {path: [v for v in numbers for _ in seeds]}


def to_curves(name: str, result: LabResult, num_seeds: int) -> dict[str, CurveData]:
  """One curve per config, or per swept value, of the last stage."""
  last = max(p.stage for p in result.points)
  points = [p for p in result.points if p.stage == last]
  groups = {name: slice(0, num_seeds)}
  for path, numbers in result.values.items():
    distinct = numbers[::num_seeds]
    short = path.rpartition(".")[2]
    groups = {f"{name} {short}={v:g}": slice(i * num_seeds, (i + 1) * num_seeds) for i, v in enumerate(distinct)}
  curves = {}
  for label, lanes in groups.items():
    mean = lambda key, lanes=lanes: np.array([p.spent[key][lanes].mean() for p in points])
    tokens = mean("generated_tokens")
    new = np.concatenate([[True], np.diff(tokens) > 0])  # these lanes may have stopped before others
    curves[label] = CurveData(
      tokens=tokens[new],
      accuracy=np.stack([p.accuracy[lanes] for p in points], axis=1)[:, new],
      update_tokens=(mean("update_tokens") + mean("scored_tokens"))[new],
      seconds=np.array([p.secs - points[0].secs for p in points])[new],
      seeds=result.seeds[lanes],
    )
  return curves


def run_cell(
  name: str, config: Mapping[str, Any], seeds, sweep, budget_tokens: int, folder: Path, warm, on_progress
) -> dict[str, CurveData]:
  """The curves of one cell, read where they are finished. Raises ValueError where other settings finished them."""
  config = with_budget(config)
  identity = dict(config=config, seeds=list(seeds), sweep={k: list(v) for k, v in sweep.items()}, budget=budget_tokens)
  path = folder / "curves.json"
  if path.exists():
    saved = json.loads(path.read_text(encoding="utf-8"))
    if saved["identity"] != json.loads(json.dumps(identity)):
      raise ValueError(f"{path} was made with another config, seeds or budget; use another --workdir, or delete it")
    return {k: CurveData(**{f: np.asarray(x) for f, x in c.items()}) for k, c in saved["curves"].items()}
  lanes, values = lanes_of(seeds, sweep)
  run = LabRun(config, lanes, values, budget_tokens)
  told = lambda done, total, row: on_progress(row)
  curves = to_curves(name, run_lab(run, folder, warm=warm, on_progress=told), len(seeds))
  written = {k: {f: x.tolist() for f, x in c._asdict().items()} for k, c in curves.items()}
  write_json_atomic(path, dict(identity=identity, curves=written, compile_secs=run.compile_secs, jax=jax.__version__))
  return curves


def compare(
  configs: Sequence[str],
  tasks: Sequence[str],
  *,
  seeds: Sequence[int],
  budget_tokens: int,
  workdir: str | Path,
  sweep: Mapping[str, Sequence[float]] | None = None,
  changes: Mapping[str, Any] | None = None,
  on_progress: Callable[[int, int, str, Mapping[str, float]], None] = lambda done, total, name, row: None,
):
  """Runs every config on every task and writes report.md, curves.png and report.json to `workdir`.

  Args:
    configs:       files whose `get_config(task)` is a laboratory config; the first is the baseline.
    seeds:         training seeds, the same for all.
    budget_tokens: generated tokens a run may spend, over all its stages and rounds.
    sweep:         config path -> numbers, as further lanes of the same programs.
    changes:       config path -> value, for every config.
    on_progress:   told (finished cells, of how many, name of the cell, last row of metrics).

  Returns the rows of the report.
  """
  workdir, curves, done = Path(workdir), {}, 0
  for what, given in (("seeds", list(seeds)), ("tasks", list(tasks)), ("names of configs", names_of(configs))):
    if not given or len(set(given)) < len(given):
      raise ValueError(f"compare: {what} must differ, and there must be one, got {given}")
  cells = []
  for task in tasks:
    for path in configs:
      config = load_config(path, task)
      for where, value in (changes or {}).items():
        config = set_path(config, where, value)
      # Whatever is wrong is wrong before the first cell runs.
      LabRun(with_budget(config), *lanes_of(seeds, sweep or {}), budget_tokens)
      cells.append((task, *names_of([path]), config))
  for task in tasks:
    warm, curves[task] = {}, {}
    for _, name, config in (c for c in cells if c[0] == task):
      label = f"{name} on {task}"
      on_progress(done, len(cells), label, {})
      told = lambda row, label=label, done=done: on_progress(done, len(cells), label, row)
      folder = workdir / task / name
      curves[task] |= run_cell(name, config, seeds, sweep or {}, budget_tokens, folder, warm, told)
      done += 1
  on_progress(done, len(cells), "", {})
  return write_report(curves, workdir)
