"""From a config to objects. Everything that can be wrong with a config is wrong here, before anything compiles."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

import rlvr_jax.rollouts as rollouts_room
import rlvr_jax.selection as selection_room
import rlvr_jax.tasks.templates as templates_room
import rlvr_jax.tasks.text as tasks_room
from rlvr_jax.core import build
from rlvr_jax.models import Decoder, WithHeads
from rlvr_jax.models.load import LoadedModel, load_model
from rlvr_jax.rewards.specs import check_specs, weights_of
from rlvr_jax.runs.contexts import Context, attach, contexts_of
from rlvr_jax.runs.experts import expert_models, load_experts
from rlvr_jax.runs.host_collect import Functions, init_state, make_functions
from rlvr_jax.runs.method import check_rows, check_sampling_matches, make_method, with_heads
from rlvr_jax.runs.settings import SECTIONS, plain, resolve_stages, section
from rlvr_jax.runs.stop import check_stop
from rlvr_jax.sharding import make_mesh, place
from rlvr_jax.tasks import EvalBatches, PromptLoader, TextTask, demonstration_batches, eval_batches, prompt_loader
from rlvr_jax.train import TrainStep

HEAD_KEY = 0x48454144  # folded into the run key for the initial weights of heads


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
  functions: Functions | None  # how batches come to be
  contexts: Mapping[str, Context]  # what privileged teachers read
  experts: Mapping[str, Decoder]  # models of the views with a source
  train_step: TrainStep
  step: Callable  # jitted (state, rollout) -> (state, metrics), state donated
  weights: Mapping[str, float]  # of the reward components
  metric: str  # the component called accuracy
  stop: Mapping[str, Any] | None  # its stop rule


class Experiment(NamedTuple):
  config: Mapping[str, Any]
  mesh: Mesh
  model: Decoder | WithHeads
  loaded: LoadedModel
  template: Callable
  stages: tuple[Stage, ...]
  settings: Mapping[str, Any]
  seed: int


def make_sampler(model: Decoder | WithHeads, loaded: LoadedModel, spec: Mapping[str, Any]):
  generation = loaded.generation
  return build(rollouts_room, spec, model=model, stop_ids=generation.stop_ids, pad_id=generation.pad_id)


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


def _stage(index, config, start, model, loaded, template, seed) -> Stage:
  kind = config.get("kind", "rl")
  settings = {name: section(name, config.get(name, {})) for name in SECTIONS}
  train, prompts = settings["train"], settings["prompts"]
  rollout = dict(config["rollout"])
  task = build(tasks_room, config["task"])
  loader = _loader(kind, task, template, prompts, loaded, seed + index, rollout["max_new_tokens"])
  check_rows(kind, prompts.per_step, rollout, train)
  sample = screen_sampler = None
  if kind != "sft":
    check_sampling_matches(rollout)
    sample = jax.jit(make_sampler(model, loaded, rollout))
    screen = rollout | dict(group_size=config.get("screen", {}).get("group_size", 4))
    screen_sampler = make_sampler(model, loaded, screen)
  weights = weights_of(check_specs(config["rewards"]))
  metric = settings["eval"].metric or next(iter(weights))
  if metric not in weights:
    raise ValueError(f"config.eval.metric = {metric!r} is not a reward component; there are {sorted(weights)}")
  experts = {} if kind == "sft" else expert_models(config, loaded)
  train_step = make_method(config if kind != "sft" else config | dict(views={}), settings, model, models=experts)
  select = _selection(config, loader, prompts) if kind != "sft" else None
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
    functions=make_functions(config, select, screen_sampler, metric) if kind != "sft" else None,
    contexts=contexts_of(config.get("views", {})) if kind != "sft" else {},
    experts=experts,
    train_step=train_step,
    step=jax.jit(train_step.step, donate_argnums=0),
    weights=weights,
    metric=metric,
    stop=check_stop(config.get("stop"), settings["eval"].every),
  )


def _selection(config: Mapping[str, Any], loader: PromptLoader, prompts):
  """The selection of prompts by row, or None: shuffled epochs of the loader."""
  spec = config.get("selection")
  if not spec:
    return None
  if dict(spec).get("name") == "replay":
    raise ValueError("config.selection: a buffer of groups goes with any selection of prompts; it is config.replay")
  return build(selection_room, spec, num_prompts=loader.num_rows, per_step=prompts.per_step)


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
  model = with_heads(Decoder(loaded.config, dtype=m.dtype, param_dtype=m.param_dtype, remat=m.remat), top.get("critic"))
  if isinstance(model, WithHeads):
    loaded = loaded._replace(params=model.wrap(loaded.params, jax.random.fold_in(jax.random.key(seed), HEAD_KEY)))
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


def abstract_rollout(stage: Stage, params: Any) -> tuple[Any, Any]:
  """(what the sampler takes, a verified rollout) of the stage's largest shape, as ShapeDtypeStructs; nothing runs."""
  prompts = stage.settings["prompts"]
  p, length = prompts.per_step, max(prompts.buckets or (prompts.max_tokens,))
  arrays = rollouts_room.PromptArrays(
    jax.ShapeDtypeStruct((p, length), np.int32),
    jax.ShapeDtypeStruct((p, length), np.bool_),
    jax.ShapeDtypeStruct((p,), np.int32),
  )
  key, step = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((), np.int32)
  rollout = jax.eval_shape(stage.sample, params, arrays, key, step)
  row = lambda dtype: jax.ShapeDtypeStruct(rollout.prompt_id.shape, dtype)
  rewards = {name: row(np.float32) for name in stage.weights}
  rollout = rollout.replace(rewards=rewards, answer_id=row(np.int32))
  return (arrays, key, step), with_views(rollout, stage)


def with_views(rollout: Any, stage: Stage) -> Any:
  """The shapes of a rollout, with those of its privileged views."""
  if not stage.contexts:
    return rollout
  p = rollout.num_groups
  shape = lambda context, dtype: jax.ShapeDtypeStruct((p, context.max_tokens), dtype)
  prompts = {name: (shape(c, np.int32), shape(c, np.bool_)) for name, c in stage.contexts.items()}
  return jax.eval_shape(attach, rollout, prompts)


def enter_stage(experiment: Experiment, stage: Stage, state: Any | None) -> Any:
  """The state a stage starts from: the parameters so far, its own fresh optimiser, credit and frozen views."""
  with jax.set_mesh(experiment.mesh):
    if state is None or stage.config.get("restart"):
      params = place(experiment.mesh, experiment.loaded.params, experiment.model.axes())
    else:
      params = state.params
    given = {} if stage.kind == "sft" else load_experts(stage.config, experiment.loaded, experiment.mesh)
    fresh = stage.train_step.init(params, experiment.seed, given)
    if stage.functions is not None:
      fresh = fresh.replace(selection=init_state(stage.functions, lambda: abstract_rollout(stage, params)[1]))
    return fresh if state is None else fresh.replace(step=state.step)


def prompt_arrays(experiment: Experiment, batch) -> Any:
  arrays = rollouts_room.PromptArrays(batch.tokens, batch.valid_mask, np.asarray(batch.prompt_id, np.int32))
  return place(experiment.mesh, arrays, ("batch", "time"))
