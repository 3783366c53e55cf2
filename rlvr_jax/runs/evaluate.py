"""Held-out evaluation inside a run: every held-out prompt once, `num_samples` completions each, keys of their own."""
from typing import Any

import jax
import numpy as np

from rlvr_jax.evals import EvalResult, summarise_eval
from rlvr_jax.runs.build import Experiment, Stage, make_sampler, prompt_arrays
from rlvr_jax.runs.verify import score
from rlvr_jax.sharding import replicate
from rlvr_jax.tasks import eval_batches

EVAL_KEY = 0x45564C  # folded into the run key: evaluation never shares a key with training


def make_evaluator(experiment: Experiment, stage: Stage, pool) -> Any:
  """Returns `evaluate(params, step, display=None) -> EvalResult` on the stage's held-out set, compiled once."""
  settings = stage.settings["eval"]
  tokenizer, generation = experiment.loaded.tokenizer, experiment.loaded.generation
  rollout = dict(stage.config["rollout"]) | dict(settings.rollout) | dict(group_size=settings.num_samples)
  sample = jax.jit(make_sampler(experiment.model, experiment.loaded, rollout))
  prompts = stage.settings["prompts"]
  examples = stage.task.eval
  if settings.num_prompts is not None:
    if settings.num_prompts > len(examples):
      raise ValueError(f"config.eval.num_prompts = {settings.num_prompts}, the held-out set has {len(examples)} rows")
    examples = [examples[i] for i in range(settings.num_prompts)]
  batches = eval_batches(
    examples, tokenizer, experiment.template, batch_size=settings.prompts_per_batch or prompts.per_step,
    max_prompt_tokens=prompts.max_tokens, buckets=prompts.buckets, on_long=prompts.on_long, pad_id=generation.pad_id,
  )  # fmt: skip
  expected = (len(examples) - batches.num_dropped, settings.num_samples)
  key = replicate(experiment.mesh, jax.random.fold_in(jax.random.key(experiment.seed), EVAL_KEY))

  def evaluate(params, step: int, display=None) -> EvalResult:
    rows = dict(prompt_ids=[], scores=[], lengths=[], truncated=[])
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
      for label, counts in scored.mixed.statuses.items():
        for status, count in counts.items():
          statuses.setdefault(label, {}).setdefault(status, 0)
          statuses[label][status] += count
    merged = {name: np.concatenate(parts) for name, parts in rows.items()}
    return summarise_eval(**merged, statuses=statuses, expected=expected, settings=rollout)

  return evaluate
