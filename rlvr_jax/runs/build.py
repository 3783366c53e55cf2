"""From a config to objects. Everything that can be wrong with a config is wrong here, before anything compiles."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

import rlvr_jax.credit as credit_room
import rlvr_jax.objectives as objectives_room
import rlvr_jax.rollouts as rollouts_room
import rlvr_jax.tasks.templates as templates_room
import rlvr_jax.tasks.text as tasks_room
from rlvr_jax.core import build
from rlvr_jax.models import Decoder
from rlvr_jax.models.load import LoadedModel, load_model
from rlvr_jax.objectives import reducers as reducers_room
from rlvr_jax.rewards.specs import check_specs, weights_of
from rlvr_jax.runs.settings import SECTIONS, plain, resolve_stages, section
from rlvr_jax.sharding import make_mesh, place
from rlvr_jax.tasks import EvalBatches, PromptLoader, TextTask, demonstration_batches, eval_batches, prompt_loader
from rlvr_jax.train import TrainStep, make_train_step, optimisers


class Stage(NamedTuple):
  """One stretch of training: its data, its sampler and its step, for iterations in (start, end]."""

  kind: str  # "rl" or "sft"
  config: Mapping[str, Any]
  settings: Mapping[str, Any]  # section dataclasses
  start: int
  end: int
  task: TextTask
  loader: PromptLoader
  held_out: EvalBatches
  sample: Callable | None  # jitted (params, prompts, key, step) -> Rollout
  train_step: TrainStep
  step: Callable  # jitted (state, rollout) -> (state, metrics), state donated
  weights: Mapping[str, float]  # of the reward components
  metric: str  # the component called accuracy


class Experiment(NamedTuple):
  config: Mapping[str, Any]
  mesh: Mesh
  model: Decoder
  loaded: LoadedModel
  template: Callable
  stages: tuple[Stage, ...]
  settings: Mapping[str, Any]
  seed: int


def _credit(specs, group_size: int):
  """The chain, and the error that names which part a group is too small for."""
  parts = []
  for i, spec in enumerate(specs):
    part = build(credit_room, spec)
    if group_size < part.min_group_size:
      raise ValueError(
        f"config.credit[{i}], {spec['name']!r}, needs rollout.group_size >= {part.min_group_size}, got {group_size}"
      )
    parts.append((spec.get("label", spec["name"]), part))
  return credit_room.chain(*parts)


def _objective(specs):
  terms = []
  for spec in specs:
    spec = dict(spec)
    weight, label = float(spec.pop("weight", 1.0)), spec.pop("label", spec["name"])
    terms.append((label, weight, build(objectives_room, spec)))
  return tuple(terms)


def make_sampler(model: Decoder, loaded: LoadedModel, spec: Mapping[str, Any]):
  generation = loaded.generation
  return build(rollouts_room, spec, model=model, stop_ids=generation.stop_ids, pad_id=generation.pad_id)


def _check_sampling_matches(rollout: Mapping[str, Any]) -> None:
  """A filtered sampler draws from a distribution that the trainer's log-probs do not describe ."""
  for name in ("top_k", "top_p", "min_p"):
    if rollout.get(name):
      raise ValueError(
        f"config.rollout.{name} must be None for training, got {rollout[name]}: the trainer's log-probs are not "
        f"filtered; config.eval.rollout may set it"
      )
  if rollout.get("temperature", 1.0) <= 0:
    raise ValueError(f"config.rollout.temperature must be > 0 for training, got {rollout['temperature']}")


def _loader(kind, task, template, prompts, loaded, seed, max_new_tokens) -> PromptLoader:
  common = dict(
    batch_size=prompts.per_step, max_prompt_tokens=prompts.max_tokens, on_long=prompts.on_long,
    seed=seed, shuffle=prompts.shuffle, num_epochs=prompts.num_epochs, pad_id=loaded.generation.pad_id,
  )  # fmt: skip
  if kind == "sft":
    return demonstration_batches(
      task.train, loaded.tokenizer, template, max_demonstration_tokens=max_new_tokens,
      eos_id=loaded.generation.stop_ids[0], **common
    )  # fmt: skip
  return prompt_loader(task.train, loaded.tokenizer, template, buckets=prompts.buckets, **common)


def _held_out(task: TextTask, template, settings, loaded) -> EvalBatches:
  """The first `num_prompts` of the held-out set, tokenised."""
  evaluation, prompts, examples = settings["eval"], settings["prompts"], task.eval
  if evaluation.num_prompts is not None:
    if evaluation.num_prompts > len(examples):
      raise ValueError(
        f"config.eval.num_prompts = {evaluation.num_prompts}, the held-out set of task {task.name!r} has "
        f"{len(examples)} rows"
      )
    examples = [examples[i] for i in range(evaluation.num_prompts)]
  return eval_batches(
    examples, loaded.tokenizer, template, batch_size=evaluation.prompts_per_batch or prompts.per_step,
    max_prompt_tokens=prompts.max_tokens, buckets=prompts.buckets, on_long=prompts.on_long,
    pad_id=loaded.generation.pad_id,
  )  # fmt: skip


def _check_rows(kind: str, per_step: int, rollout: Mapping[str, Any], train) -> None:
  rows = per_step * (rollout["group_size"] if kind == "rl" else 1)
  if rows % (train.num_minibatches * train.num_microbatches):
    raise ValueError(
      f"a batch of {rows} rows is no multiple of config.train.num_minibatches * num_microbatches = "
      f"{train.num_minibatches} * {train.num_microbatches}"
    )


def _stage(index, config, start, model, loaded, template, seed) -> Stage:
  kind = config.get("kind", "rl")
  settings = {name: section(name, config.get(name, {})) for name in SECTIONS}
  train, prompts = settings["train"], settings["prompts"]
  rollout = dict(config["rollout"])
  task = build(tasks_room, config["task"])
  loader = _loader(kind, task, template, prompts, loaded, seed + index, rollout["max_new_tokens"])
  _check_rows(kind, prompts.per_step, rollout, train)
  sample = None
  if kind == "rl":
    _check_sampling_matches(rollout)
    sample = jax.jit(make_sampler(model, loaded, rollout))
  weights = weights_of(check_specs(config["rewards"]))
  metric = settings["eval"].metric or next(iter(weights))
  if metric not in weights:
    raise ValueError(f"config.eval.metric = {metric!r} is not a reward component; there are {sorted(weights)}")
  total = dict(total_steps=train.num_steps * train.num_minibatches * train.num_epochs)
  chunk = {} if train.chunk_tokens is None else dict(chunk_tokens=train.chunk_tokens)
  train_step = make_train_step(
    model,
    build(optimisers, config["optimiser"], **total),
    _credit(config["credit"], rollout["group_size"]) if kind == "rl" else None,
    _objective(config["objective"]),
    build(reducers_room, config["reduce"]),
    temperature=rollout.get("temperature", 1.0) if kind == "rl" else 1.0,
    num_microbatches=train.num_microbatches,
    num_minibatches=train.num_minibatches,
    num_epochs=train.num_epochs,
    report=("entropy",) if train.report_entropy else (),
    **chunk,
  )
  return Stage(
    kind=kind,
    config=config,
    settings=settings,
    start=start,
    end=start + train.num_steps,
    task=task,
    loader=loader,
    held_out=_held_out(task, template, settings, loaded),
    sample=sample,
    train_step=train_step,
    step=jax.jit(train_step.step, donate_argnums=0),
    weights=weights,
    metric=metric,
  )


def _mesh(settings) -> Mesh:
  devices, count = jax.devices(), settings.num_devices
  if count is not None and count > len(devices):
    raise ValueError(f"config.mesh.num_devices = {count}, there are {len(devices)}")
  return make_mesh(settings.data, settings.fsdp, settings.tensor, devices[:count])


def build_experiment(config: Mapping[str, Any]) -> Experiment:
  """Everything a run needs, built and checked; nothing compiled, no worker started."""
  config = plain(config)
  stage_configs = resolve_stages(config)
  top = stage_configs[0]
  seed = int(top.get("seed", 0))
  settings = {name: section(name, top.get(name, {})) for name in SECTIONS}
  for name in ("task", "rollout", "rewards", "credit", "objective", "reduce", "optimiser"):
    for stage in stage_configs:
      if name not in stage:
        raise ValueError(f"config needs {name!r}; it has {sorted(stage)}")
  template = build(templates_room, top.get("template", dict(name="plain")))
  m = settings["model"]
  loaded = load_model(m.source, key=jax.random.key(seed), param_dtype=m.param_dtype)
  model = Decoder(loaded.config, dtype=m.dtype, param_dtype=m.param_dtype, remat=m.remat)
  mesh = _mesh(settings["mesh"])
  stages, start = [], 0
  for i, stage_config in enumerate(stage_configs):
    stage = _stage(i, stage_config, start, model, loaded, template, seed)
    stages.append(stage)
    start = stage.end
  return Experiment(
    config=config, mesh=mesh, model=model, loaded=loaded, template=template, stages=tuple(stages),
    settings=settings, seed=seed,
  )  # fmt: skip


def enter_stage(experiment: Experiment, stage: Stage, state: Any | None) -> Any:
  """The state a stage starts from: the parameters so far, its own fresh optimiser, credit and frozen reference."""
  with jax.set_mesh(experiment.mesh):
    if state is None:
      params = place(experiment.mesh, experiment.loaded.params, experiment.model.axes())
      return stage.train_step.init(params, experiment.seed)
    fresh = stage.train_step.init(state.params, experiment.seed)
    return fresh.replace(step=state.step)


def prompt_arrays(experiment: Experiment, batch) -> Any:
  arrays = rollouts_room.PromptArrays(batch.tokens, batch.valid_mask, np.asarray(batch.prompt_id, np.int32))
  return place(experiment.mesh, arrays, ("batch", "time"))
