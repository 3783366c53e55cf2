"""Held-out evaluation inside a run: every held-out prompt once, `num_samples` completions each, keys of their own."""

from typing import Any

import jax
import numpy as np

from rlvr_jax.evals import EvalResult, summarise_eval
from rlvr_jax.runs.build import Experiment, Stage, make_sampler, prompt_arrays
from rlvr_jax.runs.verify import score
from rlvr_jax.sharding import replicate

EVAL_KEY = 0x45564C  # folded into the run key: evaluation never shares a key with training


def make_evaluator(experiment: Experiment, stage: Stage, pool) -> Any:
  """Returns `evaluate(params, step, display=None) -> EvalResult` on the stage's held-out set, compiled once."""
  settings = stage.settings["eval"]
  tokenizer, generation = experiment.loaded.tokenizer, experiment.loaded.generation
  rollout = dict(stage.config["rollout"]) | dict(settings.rollout) | dict(group_size=settings.num_samples)
  sample = jax.jit(make_sampler(experiment.model, experiment.loaded, rollout))
  batches = stage.held_out
  expected = (sum(int(b.real.sum()) for b in batches), settings.num_samples)
  key = replicate(experiment.mesh, jax.random.fold_in(jax.random.key(experiment.seed), EVAL_KEY))

  def evaluate(params, step: int, display=None) -> EvalResult:
    rows = dict(prompt_ids=[], scores=[], lengths=[], truncated=[], answers=[])
    statuses: dict[str, dict[str, int]] = {}
    device_step = replicate(experiment.mesh, np.int32(step))
    track = display.progress(batches, f"evaluation at step {step}") if display else batches
    for batch in track:
      rolled = sample(params, prompt_arrays(experiment, batch), key, device_step)
      scored = score(rolled, batch.examples, tokenizer, generation.stop_ids, pool, stage.weights, stage.metric)
      shape = (len(batch.examples), settings.num_samples)
      real = np.asarray(batch.real)
      rows["prompt_ids"].append(np.asarray(batch.prompt_id)[real])
      rows["scores"].append(scored.metric.reshape(shape)[real])
      rows["lengths"].append(scored.lengths.reshape(shape)[real])
      rows["truncated"].append(scored.truncated.reshape(shape)[real])
      rows["answers"].append(scored.answer_id.reshape(shape)[real])
      for label, counts in scored.mixed.statuses.items():
        for status, count in counts.items():
          statuses.setdefault(label, {}).setdefault(status, 0)
          statuses[label][status] += count
    merged = {name: np.concatenate(parts) for name, parts in rows.items()}
    return summarise_eval(**merged, statuses=statuses, expected=expected, settings=rollout)

  return evaluate
