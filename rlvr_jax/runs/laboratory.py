"""The laboratory: a graph task and a method as pure functions of arrays, so that a whole run is one program.

`iterate` is one round of sample, verify, credit and update. The caller scans it over rounds and maps it over seeds and
over swept numbers (`runs.lab_run`); nothing in here knows that.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

import rlvr_jax.selection as selection_room
import rlvr_jax.tasks.graph as graph_room
from rlvr_jax.core import PyTree, Rollout, Stat, build, check_keys, make_view
from rlvr_jax.models import Decoder, tiny_config
from rlvr_jax.rollouts import PromptArrays
from rlvr_jax.runs.arena import Arena, names
from rlvr_jax.runs.collect import Collect, make_play, select_key
from rlvr_jax.runs.method import check_rows, check_sampling_matches, make_method, with_heads
from rlvr_jax.runs.settings import SECTIONS, plain, resolve_stages, section
from rlvr_jax.runs.stop import check_stop
from rlvr_jax.tasks import EVAL_ID
from rlvr_jax.tasks.graph.types import GraphTask
from rlvr_jax.tasks.worlds.types import World
from rlvr_jax.train import TrainState, TrainStep

INIT, EVAL = 0x494E4954, 0x45564C  # folded into the run key: no two uses share a key
SWEPT = (
  "rollout", "rewards", "credit", "objective", "reduce", "optimiser", "selection", "refill", "replay", "views", "eval",
  "stages",
)  # fmt: skip
NEEDED = ("rollout", "rewards", "credit", "objective", "reduce", "optimiser")
HINT = "hint"  # the privileged context: the prompt after the task's hint, which for a graph task is a demonstration


class Evaluated(NamedTuple):
  """Held-out completions, `k` for each of `p` problems."""

  correct: Any  # Float32["p k"]
  answer_id: Any  # Int32["p k"]
  lengths: Any  # Int32["p k"]
  truncated: Any  # Bool["p k"]


class LabStage(NamedTuple):
  """One stretch of training as pure functions."""

  kind: str
  config: Mapping[str, Any]
  settings: Mapping[str, Any]
  enter: Callable[..., TrainState]  # (params, seed, step, experts) -> state: fresh optimiser, credit and anchors
  iterate: Callable[[TrainState], tuple[TrainState, dict[str, Stat]]]
  evaluate: Callable[[PyTree, Array], Evaluated]  # (params, run key)
  experts: tuple[str, ...]  # names of the saved parameters that `enter` wants
  method: TrainStep


def is_graph_task(config: Mapping[str, Any]) -> bool:
  """Whether the config's task is verified by array code, and so runs in the laboratory."""
  spec = plain(config).get("task", {})
  name = str(spec.get("name"))
  return name in names() or (":" in name and isinstance(build(graph_room, spec), (GraphTask, World)))


def make_model(config: Mapping[str, Any], task: Any):
  """A decoder over the task's symbols, of the sizes in config.model, with the heads of config.critic."""
  model = section("model", config.get("model", {}))
  if model.source != "tiny":
    raise ValueError(
      f"a graph task has a vocabulary of its own: config.model.source must be 'tiny', got {model.source!r}"
    )
  sizes = dict(model.sizes)
  decoder = tiny_config(len(task.symbols), pad_token_id=task.pad_id, eos_token_id=task.stop_id, **sizes)
  return with_heads(
    Decoder(decoder, dtype=model.dtype, param_dtype=model.param_dtype, remat=model.remat), config.get("critic")
  )


def init_params(model: Any, seed: Int[Array, ""]) -> PyTree:
  """Initial parameters of a run: the policy's do not depend on which heads stand beside it."""
  key = jax.random.fold_in(jax.random.key(seed), INIT)
  if isinstance(model, Decoder):
    return model.init(key)
  return model.wrap(model.decoder.init(key), jax.random.fold_in(key, 1))


def _steps(path: str) -> list[str | int]:
  return [int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)]


def _at(node: Any, step: str | int, path: str) -> Any:
  """One step down a path. Raises ValueError saying what there is."""
  try:
    if isinstance(node, (Mapping, list)):
      return node[step]
  except (KeyError, IndexError, TypeError):
    pass
  known = sorted(node) if isinstance(node, Mapping) else f"{len(node)} parts" if isinstance(node, list) else repr(node)
  raise ValueError(f"config has no {path!r}: at {step!r} there is {known}")


def check_swept(config: Mapping[str, Any], path: str) -> None:
  """Raises ValueError unless the path leads to a number that differs between lanes without other programs."""
  node = plain(config)
  for step in _steps(path):
    node = _at(node, step, path)
  if isinstance(node, (bool, str, list, Mapping)):
    raise ValueError(f"a sweep is over a number; config has {node!r} at {path!r}")
  if (root := _steps(path)[0]) not in SWEPT:
    raise ValueError(f"{path!r} cannot be swept: all lanes share {root!r}. A sweep is over numbers of {SWEPT}")


def set_path(config: Any, path: str, value: Any) -> Any:
  """A plain config with one number replaced: `set_path(c, "credit[0].eps", 1e-4)`. The path must exist."""
  steps = _steps(path)

  def put(node, left):
    if not left:
      return value
    step = left[0]
    _at(node, step, path)
    if isinstance(node, Mapping):
      return {**node, step: put(node[step], left[1:])}
    return [put(x, left[1:]) if i == step else x for i, x in enumerate(node)]

  return put(config, steps)


def make_stages(
  config: Mapping[str, Any], arena: Arena, model: Any, values: Mapping[str, Any] | None = None
) -> tuple[LabStage, ...]:
  """Every stage, built and checked.

  Args:
    values: config path -> number, which may be traced: a sweep builds inside `vmap`.
  """
  config = plain(config)
  for path, value in (values or {}).items():
    config = set_path(config, path, value)
  stages, saved = [], set()
  for i, stage_config in enumerate(resolve_stages(config)):
    for name in NEEDED:
      if name not in stage_config:
        raise ValueError(f"config needs {name!r}; it has {sorted(stage_config)}")
    if stage_config["task"] != config["task"]:
      raise ValueError(f"config.stages[{i}].task: a laboratory run has one task, {config['task']}")
    stages.append(_make_stage(stage_config, arena, model))
    check_keys(f"config.stages[{i}].views: expert, saved by an earlier stage,", stages[-1].experts, saved)
    saved |= {stage_config["save_as"]} if stage_config.get("save_as") else set()
  return tuple(stages)


def _experts(config: Mapping[str, Any], needs: tuple[str, ...]) -> dict[str, str]:
  """View -> the name under which a stage saved its parameters, for views that something reads."""
  given = {name: spec for name, spec in config.get("views", {}).items() if spec.get("params") == "given"}
  for name, spec in given.items():
    if spec.get("source"):
      raise ValueError(
        f"config.views.{name}.source: a graph task has a vocabulary of its own, so its teacher is an 'expert' that an "
        f"earlier stage saved, got {spec['source']!r}"
      )
  return {name: spec["expert"] for name, spec in given.items() if any(n.startswith(f"{name}.") for n in needs)}


def _contexts(config: Mapping[str, Any]) -> set[str]:
  found = {spec.get("context") for spec in config.get("views", {}).values()} - {None}
  check_keys("config.views: context", found, (HINT,))
  return found


def _make_stage(config: Mapping[str, Any], arena: Arena, model: Any) -> LabStage:
  kind = config.get("kind", "rl")
  settings = {name: section(name, config.get(name, {})) for name in SECTIONS if name != "mesh"}
  check_sampling_matches(config["rollout"])
  check_rows(kind, settings["prompts"].per_step, config["rollout"], settings["train"])
  check_stop(config.get("stop"), settings["eval"].every)
  if kind == "sft":
    config = config | dict(views={}, selection=dict(name="uniform"), refill=None, replay=None)
  method = make_method(config, settings, model)
  select = _make_selection(config, arena, settings["prompts"].per_step)
  collect = _make_imitate(arena, select) if kind == "sft" else make_play(config, arena, model, select)
  privileged = bool(_contexts(config))
  experts = _experts(config, method.needs)

  def enter(params, seed, step=0, saved=()) -> TrainState:
    given = {name: jax.tree.map(jnp.copy, saved[expert]) for name, expert in experts.items()}
    state = method.init(params, seed, given)
    return state.replace(step=jnp.asarray(step, jnp.int32), selection=collect.init(params))

  def iterate(state: TrainState):
    run_key = jax.random.key(state.seed)
    rollout, selection, metrics = collect.play(state.params, state.selection, run_key, state.step)
    if privileged:
      rollout = rollout.replace(views={HINT: _after_hint(arena, rollout)})
    state, more = method.step(state.replace(selection=selection), rollout)
    return state, metrics | more | _budget(more, settings["train"], method)

  return LabStage(
    kind, config, settings, enter, iterate, _make_evaluate(config, settings, arena, model), tuple(experts.values()),
    method,
  )  # fmt: skip


def _make_selection(config: Mapping[str, Any], arena: Arena, per_step: int):
  spec = dict(config.get("selection", dict(name="uniform")))
  if spec.get("name") == "replay":
    raise ValueError("config.selection: a buffer of groups goes with any selection of prompts; it is config.replay")
  return build(selection_room, spec, num_prompts=arena.task.num_train, per_step=per_step)


def _budget(metrics: Mapping[str, Stat], train, method) -> dict[str, Stat]:
  """Tokens of the rollout that went through an update, and through passes that only score, every pass counted."""
  tokens = metrics["num_tokens"].total
  one = jnp.ones(())
  return {
    "budget/update_tokens": Stat(tokens * train.num_epochs, one),
    "budget/scored_tokens": Stat(tokens * method.num_passes, one),
  }


def _make_imitate(arena: Arena, select) -> Collect:
  def imitate(params, selection, run_key, step):
    del params
    index, selection = select.propose(selection, select_key(run_key, step, 0))
    rollout = arena.demonstrate(index.astype(jnp.int32))
    return rollout, selection, {"budget/generated_tokens": Stat(jnp.zeros(()), jnp.ones(()))}

  return Collect(lambda params: select.init(), imitate)


def _after_hint(arena: Arena, rollout: Rollout):
  hint, hint_mask = arena.hint(rollout.prompt_id)
  tokens, mask = arena.prompts(rollout.prompt_id)
  return make_view(jnp.concatenate([hint, tokens], axis=1), jnp.concatenate([hint_mask, mask], axis=1), rollout)


def _make_evaluate(config, settings, arena: Arena, model: Any) -> Callable:
  evaluation, task = settings["eval"], arena.task
  num_prompts = evaluation.num_prompts or task.num_eval
  if num_prompts > task.num_eval:
    raise ValueError(
      f"config.eval.num_prompts = {num_prompts}, the held-out set of task {task.name!r} has {task.num_eval} rows"
    )
  rollout = dict(config["rollout"]) | dict(evaluation.rollout) | dict(group_size=evaluation.num_samples)
  sample = arena.make_sampler(rollout, model)

  def evaluate(params, run_key) -> Evaluated:
    index = EVAL_ID + jnp.arange(num_prompts, dtype=jnp.int32)
    rollout = sample(params, PromptArrays(*arena.prompts(index), index), jax.random.fold_in(run_key, EVAL), 0)
    verdict = arena.verify(rollout)
    lengths = jnp.sum(rollout.action_mask, axis=1)
    shape = (num_prompts, evaluation.num_samples)
    parts = (verdict.correct.astype(jnp.float32), verdict.answer_id, lengths, rollout.truncated)
    return Evaluated(*(x.reshape(shape) for x in parts))

  return evaluate
