"""Runs a laboratory experiment to its end: scans, evaluations, stop rules, checkpoints, metrics."""

import contextlib
import json
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlvr_jax.evals import EvalResult, compare, curve, summarise_eval
from rlvr_jax.runs.display import Display
from rlvr_jax.runs.lab_run import SPENT, LabResult, LabRun, Lanes, Point
from rlvr_jax.runs.laboratory import Evaluated
from rlvr_jax.runs.settings import plain as plain_config
from rlvr_jax.runs.stop import check_stop, stalled
from rlvr_jax.runs.writers import MetricWriter, write_json_atomic
from rlvr_jax.tasks import EVAL_ID
from rlvr_jax.train import Checkpointer

FREE = ("log", "verify", "checkpoint")  # config keys that change no number of a run


class Progress:
  """Where a run stands: what a checkpoint holds besides the lanes."""

  def __init__(self):
    self.stage, self.done, self.iteration = 0, 0, 0  # of the run; iterations done in this stage, and in all
    self.points: list[Point] = []

  def to_json(self) -> dict[str, Any]:
    lists = lambda spent: {name: x.tolist() for name, x in spent.items()}
    points = [p._asdict() | dict(accuracy=p.accuracy.tolist(), spent=lists(p.spent)) for p in self.points]
    return dict(stage=self.stage, done=self.done, iteration=self.iteration, points=points)

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> "Progress":
    progress = cls()
    progress.stage, progress.done, progress.iteration = values["stage"], values["done"], values["iteration"]
    for p in values["points"]:
      spent = {name: np.asarray(p["spent"][name]) for name in SPENT}
      progress.points.append(Point(p["iteration"], p["stage"], np.asarray(p["accuracy"]), spent, p["secs"]))
    return progress


def prefix_key(run: LabRun, stages: int) -> str:
  """What decides the lanes after the first `stages` stages: two runs with one key may share them."""
  shared = {name: run.config.get(name) for name in ("task", "model", "critic")}
  configs = [{k: v for k, v in c.items() if k not in FREE} for c in run.stage_configs[:stages]]
  for config in configs:
    if config.get("kind") == "sft":  # a supervised stage reads none of these
      for name in ("rollout", "rewards", "credit", "selection", "refill", "replay", "screen", "views", "eval", "seed"):
        config.pop(name, None)
  values = {path: np.asarray(v).tolist() for path, v in run.values.items()}
  if any(config.get("stop") for config in configs):  # evaluations, which are the last stage's, decide when to stop
    shared |= {f"stop.{name}": run.stage_configs[-1].get(name) for name in ("eval", "rollout")}
  return json.dumps([shared, configs, np.asarray(run.seeds).tolist(), values, run.budget], sort_keys=True)


class Host:
  """The host's side of a run: what it writes, shows and saves."""

  def __init__(self, run: LabRun, workdir: Path | None, stack: contextlib.ExitStack, on_progress, allow_changes: bool):
    self.run, self.workdir, self.on_progress = run, workdir, on_progress
    self.metrics = self.checkpointer = None
    if workdir is None:
      return
    workdir.mkdir(parents=True, exist_ok=True)
    identity = dict(
      config=run.config, seeds=np.asarray(run.seeds).tolist(), budget=run.budget,
      values={path: np.asarray(v).tolist() for path, v in run.values.items()},
    )  # fmt: skip
    self.checkpointer = stack.enter_context(
      contextlib.closing(
        Checkpointer(workdir / "checkpoints", keep_last=1, keep_best=False, config=identity, data_fingerprint="graph")
      )
    )
    free = tuple(f"config.{name}" for name in FREE)
    self.checkpointer.check_compatible(identity, "graph", allow_changes=allow_changes, free=free)
    write_json_atomic(workdir / "config.json", run.config)

  def open_metrics(self, stack: contextlib.ExitStack, iteration: int) -> None:
    if self.workdir is not None:
      self.metrics = stack.enter_context(contextlib.closing(MetricWriter(self.workdir, resume_step=iteration)))

  def write(self, first: int, metrics: Mapping[str, Any], secs: float) -> dict[str, float]:
    """One row per iteration, the mean over lanes that moved. Returns the last row."""
    arrays = {name: np.asarray(x) for name, x in jax.device_get(dict(metrics)).items()}
    length = next(iter(arrays.values())).shape[1]
    row: dict[str, float] = {}
    for i in range(length):
      moved = {name: x[:, i][~np.isnan(x[:, i])] for name, x in arrays.items()}
      row = {name: float(x.mean()) for name, x in moved.items() if x.size}
      row["time/secs"] = secs / length
      if self.metrics is not None and row:
        self.metrics.write(first + i, row)
    return row

  def write_point(self, point: Point) -> None:
    if self.metrics is None:
      return
    mean, n = float(point.accuracy.mean()), len(point.accuracy)
    half = 1.96 * float(point.accuracy.std(ddof=1)) / n**0.5 if n > 1 else 0.0
    row = {"eval/accuracy": mean} | {f"budget/{name}_sum": float(x.mean()) for name, x in point.spent.items()}
    if n > 1:
      row |= {"eval/accuracy_low": mean - half, "eval/accuracy_high": mean + half}
    self.metrics.write(point.iteration, row)


def run_lab(
  run: LabRun,
  workdir: str | Path | None = None,
  *,
  warm: MutableMapping[str, Lanes] | None = None,
  on_progress: Callable[[int, int, Mapping[str, float]], None] = lambda done, total, row: None,
  allow_changes: bool = False,
) -> LabResult:
  """All stages of a run, going on from the newest checkpoint in `workdir` where there is one.

  Args:
    warm:        lanes after earlier stages, by `prefix_key`: runs that begin alike compute their beginning once.
    on_progress: told (iterations done, of how many, last row of metrics) after every scan.
  """
  with contextlib.ExitStack() as stack:
    host = Host(run, None if workdir is None else Path(workdir), stack, on_progress, allow_changes)
    progress, lanes = _resume(run, host, warm)
    host.open_metrics(stack, progress.iteration)
    while progress.stage < len(run.stages):
      lanes = _run_stage(run, host, progress, lanes)
      last = progress.stage == len(run.stages) - 1
      if not last:
        if warm is not None:
          warm[prefix_key(run, progress.stage + 1)] = lanes
        lanes = run.enter(progress.stage + 1, lanes)
        progress.done = 0
      progress.stage += 1
    if host.checkpointer is not None:
      host.checkpointer.wait()
    final = jax.device_get(run.evaluate(lanes.state.params))
    seeds, values = np.asarray(run.seeds), {path: np.asarray(v) for path, v in run.values.items()}
    return LabResult(
      seeds, values, tuple(progress.points), final, lanes.state.params, run.compile_secs, run.run_secs
    )  # fmt: skip


def _resume(run: LabRun, host: Host, warm) -> tuple[Progress, Lanes]:
  progress = Progress()
  step = host.checkpointer.latest() if host.checkpointer is not None else None
  if step is not None:
    return _restore(run, host, step, run.start())
  for count in range(len(run.stages) - 1, 0, -1):
    found = (warm or {}).get(prefix_key(run, count))
    if found is not None:
      progress.stage = count
      progress.iteration = int(np.max(found.state.step))
      return progress, run.enter(count, found)
  return progress, run.start()


def _restore(run: LabRun, host: Host, step: int, lanes: Lanes) -> tuple[Progress, Lanes]:
  position = host.checkpointer.position(step)
  progress = Progress.from_json(position)
  run.run_secs = progress.points[-1].secs
  for index in range(progress.stage):
    lanes = _saving(run, index, lanes)
    lanes = run.enter(index + 1, lanes)
  return progress, host.checkpointer.restore(lanes, step).state


def _saving(run: LabRun, index: int, lanes: Lanes) -> Lanes:
  name = run.stage_configs[index].get("save_as")
  if not name:
    return lanes
  return lanes._replace(saved=dict(lanes.saved) | {name: jax.tree.map(jnp.copy, lanes.state.params)})


def _run_stage(run: LabRun, host: Host, progress: Progress, lanes: Lanes) -> Lanes:
  """From where the stage stands to its end: its number of steps, its stop rule, or the budget of every lane."""
  stage, index = run.stages[progress.stage], progress.stage
  total, every = stage.settings["train"].num_steps, stage.settings["eval"].every
  stop, save_every = check_stop(run.stage_configs[index].get("stop"), every), stage.settings["checkpoint"].every
  whole = sum(s.settings["train"].num_steps for s in run.stages)
  if progress.done == 0:
    _look(run, host, progress, lanes)
  while progress.done < total and not _finished(run, lanes):
    length = min(every or total, total - progress.done)
    before = run.run_secs
    lanes, metrics = run.chunk(index, lanes, length)
    row = host.write(progress.iteration + 1, metrics, run.run_secs - before)
    progress.done += length
    progress.iteration += length
    point = _look(run, host, progress, lanes)
    if stop:
      mine = [p.accuracy for p in progress.points if p.stage == index]
      lanes = lanes._replace(stopped=lanes.stopped | jnp.asarray(stalled(mine, **stop)))
    host.on_progress(progress.iteration, whole, row | _told(point))
    due = progress.done // save_every > (progress.done - length) // save_every
    if host.checkpointer is not None and (due or progress.done >= total or _finished(run, lanes)):
      host.checkpointer.save(progress.iteration, lanes, progress.to_json())
  return _saving(run, index, lanes)


def _finished(run: LabRun, lanes: Lanes) -> bool:
  """Whether no lane moves any more, in this stage."""
  return bool((np.asarray(lanes.stopped) | run.over(lanes)).all())


def _told(point: Point) -> dict[str, float]:
  return dict(accuracy=float(point.accuracy.mean()), spent=float(point.spent["generated_tokens"].mean()))


def _look(run: LabRun, host: Host, progress: Progress, lanes: Lanes) -> Point:
  """An evaluation of every lane, once per iteration."""
  if progress.points and (progress.points[-1].iteration, progress.points[-1].stage) == (
    progress.iteration,
    progress.stage,
  ):
    return progress.points[-1]
  seen = jax.device_get(run.evaluate(lanes.state.params))
  correct = seen.correct
  spent = {name: np.asarray(lanes.spent[name]) for name in SPENT}
  point = Point(progress.iteration, progress.stage, correct.mean(axis=(1, 2), dtype=np.float64), spent, run.run_secs)
  progress.points.append(point)
  host.write_point(point)
  if host.workdir is not None and len(run.seeds) == 1:
    folder = host.workdir / "evals"
    folder.mkdir(exist_ok=True)
    result = eval_result(run, seen, lane=0)
    write_json_atomic(folder / f"stage_{point.stage}_step_{point.iteration:06d}.json", result.to_json())
  return point


def eval_result(run: LabRun, seen: Evaluated, lane: int) -> EvalResult:
  """The held-out evaluation of one lane, with intervals over prompts."""
  evaluation = run.stages[-1].settings["eval"]
  correct = seen.correct[lane]
  right, parsed = int((correct == 1).sum()), int((seen.answer_id[lane] >= 0).sum())
  statuses = dict(correct=dict(ok=right, wrong=parsed - right, unparsable=correct.size - parsed))
  return summarise_eval(
    EVAL_ID + np.arange(len(correct)), correct, seen.lengths[lane], seen.truncated[lane], statuses,
    answers=seen.answer_id[lane],
    settings=dict(run.stage_configs[-1]["rollout"]) | dict(evaluation.rollout) | dict(group_size=correct.shape[1]),
  )  # fmt: skip


def train_lab(config: Mapping[str, Any], workdir: str, *, allow_changes: bool = False, plain: bool | None = None):
  """Runs a laboratory config with its one seed, as `runs.train` runs a text one. Returns (before, after)."""
  config = plain_config(config)
  run = LabRun(config, [int(config.get("seed", 0))])
  total = sum(stage.settings["train"].num_steps for stage in run.stages)
  workdir = Path(workdir)
  with Display(total, title=str(workdir), plain=plain) as display:
    last = [run.run_secs, 0]

    def show(done: int, _: int, row: Mapping[str, float]) -> None:
      secs, steps = run.run_secs - last[0], done - last[1]
      display.update(done, row, {f"{steps} iterations": secs})
      last[:] = run.run_secs, done

    result = run_lab(run, workdir, on_progress=show, allow_changes=allow_changes)
    final_stage = len(run.stages) - 1
    start, end = (next(p for p in points if p.stage == final_stage) for points in (result.points, result.points[::-1]))
    before, after = (
      EvalResult.from_json(json.loads((workdir / "evals" / f"stage_{p.stage}_step_{p.iteration:06d}.json").read_text()))
      for p in (start, end)
    )
    curve(workdir / "metrics.jsonl", workdir / "curve.png", title=workdir.name)
    counts = {name: int(end.spent[name][0]) for name in SPENT}
    display.summary(before, after, compare(before, after), counts)
  return before, after
