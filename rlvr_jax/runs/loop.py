"""The host loop: sample, verify, step, evaluate, save. It decides nothing about the method."""

import contextlib
import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlvr_jax.core import Rollout
from rlvr_jax.evals import EvalResult, compare, curve, read_rows
from rlvr_jax.rewards import VerifierPool
from rlvr_jax.runs.build import Experiment, Stage, build_experiment, enter_stage, prompt_arrays
from rlvr_jax.runs.contexts import attach_jitted, encode
from rlvr_jax.runs.display import Display
from rlvr_jax.runs.evaluate import make_evaluator
from rlvr_jax.runs.health import RewardHealth
from rlvr_jax.runs.host_collect import Collector, Seen
from rlvr_jax.runs.stop import stalled
from rlvr_jax.runs.verify import Scored, score, with_rewards
from rlvr_jax.runs.writers import MetricWriter, RolloutLog, write_json_atomic
from rlvr_jax.sharding import place, replicate
from rlvr_jax.tasks import DemonstrationBatch
from rlvr_jax.train import Checkpointer

FREE = ("log", "verify", "checkpoint", "mesh")  # config keys that change no number of a run: a resume may change them


class Stopped(Exception):
  """The run was asked to stop (SIGTERM); its state is saved."""


class Phases:
  """Wall-clock of the named phases of one iteration."""

  def __init__(self):
    self.secs: dict[str, float] = {}
    self._last = time.perf_counter()

  def mark(self, name: str) -> None:
    now = time.perf_counter()
    self.secs[name] = self.secs.get(name, 0.0) + now - self._last
    self._last = now

  def take(self) -> dict[str, float]:
    out, self.secs = self.secs, {}
    return out


def data_fingerprint(experiment: Experiment) -> str:
  parts = [(s.task.fingerprint, s.loader.fingerprint) for s in experiment.stages]
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def to_floats(metrics: Mapping[str, Any]) -> dict[str, float]:
  """The one place where metrics leave the device. 0 where nothing was counted, as in `Stat.mean`."""
  return {k: float(v.total / v.weight) if v.weight > 0 else 0.0 for k, v in jax.device_get(dict(metrics)).items()}


def host_scalars(scored: Scored, counters: Mapping[str, int]) -> dict[str, float]:
  mixed, rows = scored.mixed, max(int(scored.mixed.row_mask.sum()), 1)
  scalars = {
    "reward/mean": float(mixed.reward.sum() / rows),
    "accuracy": float(np.nanmean(scored.metric)) if np.isfinite(scored.metric).any() else float("nan"),
    "length/mean": float(scored.lengths.mean()),
    "length/max": float(scored.lengths.max()),
    "truncated": float(scored.truncated.mean()),
    "rows/without_verdict": float((~mixed.row_mask).sum()),
  }
  for label, raw in mixed.rewards.items():
    scalars[f"reward/{label}"] = float(raw[mixed.row_mask].mean()) if mixed.row_mask.any() else float("nan")
    total = sum(mixed.statuses[label].values())
    for status, count in mixed.statuses[label].items():
      scalars[f"verdict/{label}/{status}"] = count / total
  return scalars | {f"budget/{k}": float(v) for k, v in counters.items()}


def demonstrated(batch: DemonstrationBatch) -> Rollout:
  """Demonstrations in the form that samples have; the train step does not know which it gets."""
  n = len(batch.tokens)
  return Rollout(
    tokens=batch.tokens, valid_mask=batch.valid_mask, action_mask=batch.action_mask, prompt_id=batch.prompt_id,
    group_id=np.arange(n, dtype=np.int32), row_mask=np.ones(n, bool), reward=np.zeros(n, np.float32), rewards={},
    behaviour_log_probs=None, truncated=np.zeros(n, bool), policy_version=np.zeros(n, np.int32), num_groups=n,
    first_action=batch.first_action,
  )  # fmt: skip


class Run:
  """What one process holds while it trains: open files, workers and counters. `state` is the only thing that learns."""

  def __init__(self, experiment: Experiment, workdir: Path, stack: contextlib.ExitStack, display, pool, resumed: int):
    top = experiment.settings
    self.experiment, self.workdir, self.display, self.pool = experiment, workdir, display, pool
    self.metrics = stack.enter_context(contextlib.closing(MetricWriter(workdir, resume_step=resumed)))
    self.rollouts = stack.enter_context(
      contextlib.closing(RolloutLog(workdir, resume_step=resumed, max_per_step=top["log"].rollouts_per_step))
    )
    verify = top["verify"]
    self.health = RewardHealth(
      max_error_share=verify.max_error_share, max_timeout_share=verify.max_timeout_share, mode=verify.on_alarm
    )
    self.run_key = replicate(experiment.mesh, jax.random.key(experiment.seed))
    self.counters = dict(generated_tokens=0, update_tokens=0, dropped_prompts=0)
    self.stop_asked = False
    self.phases = Phases()

  def eval_path(self, step: int) -> Path:
    return self.workdir / "evals" / f"step_{step:06d}.json"

  def evaluate(self, evaluator, params, step: int) -> EvalResult:
    """Evaluates, or reads what an earlier life of this run measured at this step. One metrics row either way."""
    path = self.eval_path(step)
    if path.exists():
      result = EvalResult.from_json(json.loads(path.read_text(encoding="utf-8")))
    else:
      result = evaluator(params, step, self.display)
      path.parent.mkdir(parents=True, exist_ok=True)
      write_json_atomic(path, result.to_json())
      self.phases.mark("evaluate")
    scalars = result.scalars()
    logged = read_rows(self.workdir / "metrics.jsonl")
    if not any(row["step"] == step and scalars.keys() <= row.keys() for row in logged):
      self.metrics.write(step, scalars)
    return result

  def play(self, stage: Stage, step: int, pending) -> Callable:
    """`(state, batch, key, sampler) -> (rollout, scored)`: samples and verifies one batch of prompts.

    The first time, it writes and shows the step before while the sampler already runs.
    """
    experiment, generation, waiting = self.experiment, self.experiment.loaded.generation, [pending]

    def one(state, batch, key, sampler):
      before = waiting.pop() if waiting else None
      self.await_update(before)
      rollout = sampler(state.params, prompt_arrays(experiment, batch), key, self.on_devices(np.int32(step)))
      self.report(before)
      jax.block_until_ready(rollout.tokens)  # the host needs them now anyway
      self.phases.mark("sample")
      scored = score(
        rollout,
        batch.examples,
        experiment.loaded.tokenizer,
        generation.stop_ids,
        self.pool,
        stage.weights,
        stage.metric,
      )
      self.phases.mark("verify")
      if alarm := self.health.observe(scored.verdicts):
        self.display.message(alarm, "warning")
      self.counters["generated_tokens"] += int(scored.lengths.sum())
      rollout = with_rewards(rollout, scored, experiment.mesh)
      return self.with_contexts(stage, rollout, batch), scored

    return one

  def on_devices(self, value):
    return replicate(self.experiment.mesh, value)

  def with_contexts(self, stage: Stage, rollout: Rollout, batch) -> Rollout:
    """The rollout with what its privileged teachers read."""
    if not stage.contexts:
      return rollout
    loaded, mesh = self.experiment.loaded, self.experiment.mesh
    prompts = {
      name: encode(context, batch.examples, self.experiment.template, loaded.tokenizer, loaded.generation.pad_id)
      for name, context in stage.contexts.items()
    }
    return attach_jitted(rollout, place(mesh, prompts, ("batch", "time")))

  def rl_rollout(self, stage: Stage, state, step: int, pending):
    """A verified rollout, the state whose selection has heard of it, and what there is to report."""
    collector = Collector(stage, self.run_key, step, self.play(stage, step, pending), self.on_devices)
    rollout, state, seen = collector.collect(state)
    lengths, rows = jax.device_get((rollout.action_mask, rollout.row_mask))
    self.counters["update_tokens"] += int(lengths[rows].sum())
    return rollout, state, seen

  def sft_rollout(self, stage: Stage, state, step: int, pending):
    self.settle(pending)
    batch = next(stage.loader)
    rollout = place(self.experiment.mesh, demonstrated(batch), ("batch", "time"))
    self.counters["update_tokens"] += int(np.sum(batch.action_mask))
    return rollout, state, Seen(step, batch.prompt_id, None, {})

  def await_update(self, pending) -> None:
    """Waits for an update, so that the clock tells it from the sampling after it. Costs the gap of one dispatch."""
    if pending is not None:
      jax.block_until_ready(pending[1])
      self.phases.mark("train")

  def report(self, pending) -> None:
    """Writes and shows a finished step."""
    if pending is None:
      return
    seen, metrics, counters = pending
    step, scored = seen.step, seen.scored
    scalars = to_floats(metrics) | seen.extra
    if scored is not None:
      scalars |= host_scalars(scored, counters)
      self.rollouts.write(step, seen, scored)
    else:
      scalars |= {f"budget/{k}": float(v) for k, v in counters.items()}
    phases = self.phases.take()
    secs = sum(phases.values())
    scalars |= {f"time/{name}_secs": value for name, value in phases.items()}
    if scored is not None:
      scalars["time/generated_tokens_per_sec"] = float(scored.lengths.sum()) / max(phases.get("sample", secs), 1e-9)
    if step % self.experiment.settings["log"].every == 0:
      self.metrics.write(step, scalars)
    self.display.update(step, scalars, phases)

  def settle(self, pending) -> None:
    """Waits for the update of a step, then writes and shows the step."""
    self.await_update(pending)
    self.report(pending)

  def position(self, stage: Stage) -> dict[str, Any]:
    return dict(loader=stage.loader.get_state(), counters=self.counters)


def train_stage(run: Run, stage: Stage, state, done: int, checkpointer: Checkpointer, evaluator):
  """Iterations done+1 .. stage.end. Evaluates and saves as configured, and saves at the end and when asked to stop."""
  every, save_every = stage.settings["eval"].every, stage.settings["checkpoint"].every
  pending = None
  if done > stage.start and has_stalled(run, stage, done):
    return state
  for step in range(max(done, stage.start) + 1, stage.end + 1):
    with jax.transfer_guard("disallow"):  # nothing travels between host and device unless the code says so
      collect = run.sft_rollout if stage.kind == "sft" else run.rl_rollout
      rollout, state, seen = collect(stage, state, step, pending)
      state, metrics = stage.step(state, rollout)
    run.counters["dropped_prompts"] = stage.loader.num_dropped
    pending = (seen, metrics, dict(run.counters))
    last = step == stage.end
    accuracy = None
    if last or (every and step % every == 0):
      run.settle(pending)
      pending = None
      accuracy = run.evaluate(evaluator, state.params, step).accuracy
      last = last or has_stalled(run, stage, step)
    if last or run.stop_asked or step % save_every == 0:
      run.settle(pending)
      pending = None
      checkpointer.save(step, state, run.position(stage), accuracy)
      run.phases.mark("save")
    if run.stop_asked and not last:
      checkpointer.wait()
      raise Stopped(f"SIGTERM: stopped after step {step} of {stage.end}; the same command goes on from there")
    if last:
      break
  return state


def has_stalled(run: Run, stage: Stage, step: int) -> bool:
  """Whether the stage's stop rule holds, from the evaluations it has had up to `step`."""
  if stage.stop is None:
    return False
  paths = [(at, run.eval_path(at)) for at in range(stage.start, step + 1)]
  accuracy = [np.array([json.loads(p.read_text(encoding="utf-8"))["accuracy"]]) for _, p in paths if p.exists()]
  return bool(accuracy) and bool(stalled(accuracy, **stage.stop)[0])


def restore(experiment: Experiment, checkpointer: Checkpointer, allow_changes: bool):
  """(state, step, stage, position) of the newest good checkpoint, or None."""
  checkpointer.check_compatible(experiment.config, data_fingerprint(experiment), allow_changes=allow_changes, free=FREE)
  step = checkpointer.latest()
  if step is None:
    return None
  stage = next((s for s in experiment.stages if s.start < step <= s.end), experiment.stages[-1])
  restored = checkpointer.restore(enter_stage(experiment, stage, None), step)
  stage.loader.set_state(restored.position["loader"])
  return restored.state, step, stage, restored.position


def forget_after(workdir: Path, step: int) -> None:
  """Removes evaluations that a killed run made after the checkpoint this one goes on from."""
  for path in (workdir / "evals").glob("step_*.json"):
    if int(path.stem.removeprefix("step_")) > step:
      path.unlink()


def train(config: Mapping[str, Any], workdir: str, *, allow_changes: bool = False, plain: bool | None = None):
  """Runs a config to its end in `workdir`, going on from the newest good checkpoint there. Returns (before, after),
  the held-out evaluations around the last stage.

  Raises:
    ValueError: anything wrong with the config, the model, the task or the checkpoints there; before anything compiles.
    Stopped:    SIGTERM came; everything is saved.
  """
  experiment = build_experiment(config)
  workdir = Path(workdir)
  workdir.mkdir(parents=True, exist_ok=True)
  checkpoint, verify = experiment.settings["checkpoint"], experiment.settings["verify"]
  with contextlib.ExitStack() as stack:
    stack.enter_context(jax.set_mesh(experiment.mesh))
    display = stack.enter_context(Display(experiment.stages[-1].end, title=str(workdir), plain=plain))
    checkpointer = stack.enter_context(
      contextlib.closing(
        Checkpointer(
          workdir / "checkpoints", keep_last=checkpoint.keep_last, keep_best=checkpoint.keep_best,
          config=experiment.config, data_fingerprint=data_fingerprint(experiment),
          on_message=lambda text: display.message(text, "warning"),
        )
      )
    )  # fmt: skip
    resumed = restore(experiment, checkpointer, allow_changes)
    done = resumed[1] if resumed else 0
    forget_after(workdir, done)
    write_json_atomic(workdir / "config.json", experiment.config)
    pool = stack.enter_context(
      VerifierPool(
        experiment.stages[-1].config["rewards"], num_workers=verify.num_workers, timeout_secs=verify.timeout_secs
      )
    )
    run = Run(experiment, workdir, stack, display, pool, done)
    with stop_on_sigterm(run):
      return run_stages(run, checkpointer, resumed)


@contextlib.contextmanager
def stop_on_sigterm(run: Run):
  """While inside, SIGTERM asks the run to save and stop after the step under way."""
  if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
    yield
    return
  before = signal.signal(signal.SIGTERM, lambda *_: setattr(run, "stop_asked", True))
  try:
    yield
  finally:
    signal.signal(signal.SIGTERM, before)


def run_stages(run: Run, checkpointer: Checkpointer, resumed):
  """All stages that are not done yet, with an evaluation at every border."""
  experiment = run.experiment
  last = experiment.stages[-1]
  evaluator = make_evaluator(experiment, last, run.pool)
  state, done, resumed_stage = None, 0, None
  if resumed:
    state, done, resumed_stage, position = resumed
    run.counters = dict(position["counters"])
    run.display.message(f"going on after step {done}")
  results = {}
  for stage in experiment.stages:
    if done > stage.end:
      continue
    if stage is not resumed_stage:
      state = enter_stage(experiment, stage, state)
    if stage.start >= done or run.eval_path(stage.start).exists():
      results[stage.start] = run.evaluate(evaluator, state.params, stage.start)
    state = train_stage(run, stage, state, done, checkpointer, evaluator)
  results[last.end] = run.evaluate(evaluator, state.params, last.end)
  checkpointer.wait()
  before, after = results.get(last.start), results[last.end]
  curve(run.workdir / "metrics.jsonl", run.workdir / "curve.png", title=run.workdir.name)
  run.display.summary(before, after, compare(before, after) if before else None, run.counters)
  return before, after
