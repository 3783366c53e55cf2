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

import rlvr_jax.rewards.graph as components_room
import rlvr_jax.rollouts as rollouts_room
import rlvr_jax.selection as selection_room
import rlvr_jax.tasks.graph as tasks_room
from rlvr_jax.core import PyTree, Rollout, Stat, build, make_view
from rlvr_jax.models import Decoder, tiny_config
from rlvr_jax.rollouts import PromptArrays
from rlvr_jax.runs.method import check_rows, check_sampling_matches, make_method, with_heads
from rlvr_jax.runs.settings import SECTIONS, plain, resolve_stages, section
from rlvr_jax.tasks import EVAL_ID
from rlvr_jax.tasks.graph.types import GraphTask, demonstrations, prompts, verify
from rlvr_jax.train import TrainState

INIT, SELECT, EVAL = 0x494E4954, 0x53454C, 0x45564C  # folded into the run key: no two uses share a key
SOLUTION = "solution"  # the privileged context of a graph task: the prompt after a demonstration


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
  needs: tuple[str, ...]


def is_graph_task(config: Mapping[str, Any]) -> bool:
  """Whether the config's task is verified by array code, and so runs in the laboratory."""
  name = plain(config).get("task", {}).get("name")
  return name in tasks_room.__all__


def make_task(config: Mapping[str, Any]) -> GraphTask:
  return build(tasks_room, config["task"])


def make_model(config: Mapping[str, Any], task: GraphTask):
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


def set_path(config: Any, path: str, value: Any) -> Any:
  """A plain config with one number replaced: `set_path(c, "credit[0].eps", 1e-4)`. The path must exist."""
  steps = [int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)]

  def put(node, left):
    if not left:
      return value
    step = left[0]
    try:
      node[step]
    except (KeyError, IndexError, TypeError):
      known = sorted(node) if isinstance(node, Mapping) else f"{len(node)} parts"
      raise ValueError(f"config has no {path!r}: at {step!r} there is {known}") from None
    if isinstance(node, Mapping):
      return {**node, step: put(node[step], left[1:])}
    return [put(x, left[1:]) if i == step else x for i, x in enumerate(node)]

  return put(config, steps)


def make_stages(
  config: Mapping[str, Any], task: GraphTask, model: Any, values: Mapping[str, Any] | None = None
) -> tuple[LabStage, ...]:
  """Every stage, built and checked.

  Args:
    values: config path -> number, which may be traced: a sweep builds inside `vmap`.
  """
  config = plain(config)
  for path, value in (values or {}).items():
    config = set_path(config, path, value)
  return tuple(_make_stage(stage, task, model) for stage in resolve_stages(config))


def _make_stage(config: Mapping[str, Any], task: GraphTask, model: Any) -> LabStage:
  kind = config.get("kind", "rl")
  settings = {name: section(name, config.get(name, {})) for name in SECTIONS if name != "mesh"}
  check_sampling_matches(config["rollout"])
  check_rows(kind, settings["prompts"].per_step, config["rollout"], settings["train"])
  method = make_method(config, settings, model)
  select = build(
    selection_room, config.get("selection", "uniform"), num_prompts=task.num_train,
    per_step=settings["prompts"].per_step,
  )  # fmt: skip
  collect = _make_imitate(task, model) if kind == "sft" else _make_play(config, settings, task, model)
  views = config.get("views", {})
  contexts = {spec.get("context") for spec in views.values()} - {None}
  if contexts - {SOLUTION}:
    raise ValueError(f"config.views: a graph task has the context {SOLUTION!r}, got {sorted(contexts)}")
  experts = {name: spec["expert"] for name, spec in views.items() if spec.get("params") == "given"}

  def enter(params, seed, step=0, saved=()) -> TrainState:
    given = {name: jax.tree.map(jnp.copy, saved[expert]) for name, expert in experts.items()} if kind != "sft" else {}
    state = method.init(params, seed, given)
    return state.replace(step=jnp.asarray(step, jnp.int32), selection=select.init())

  def iterate(state: TrainState):
    run_key = jax.random.key(state.seed)
    index, selection = select.propose(
      state.selection, jax.random.fold_in(jax.random.fold_in(run_key, SELECT), state.step)
    )
    rollout, metrics = collect(state.params, index.astype(jnp.int32), run_key, state.step)
    if contexts:
      tokens, mask = _solved_prompts(task, rollout.prompt_id)
      rollout = rollout.replace(views={SOLUTION: make_view(tokens, mask, rollout)})
    num_correct, num_judged = _by_prompt(rollout, len(index))
    state = state.replace(selection=select.observe(selection, index, num_correct, num_judged))
    state, more = method.step(state, rollout)
    return state, metrics | more | _budget(rollout, more, settings["train"], method)

  return LabStage(
    kind, config, settings, enter, iterate, _make_evaluate(config, settings, task, model),
    tuple(experts.values()) if kind != "sft" else (), method.needs,
  )  # fmt: skip


def _budget(rollout: Rollout, metrics: Mapping[str, Stat], train, method) -> dict[str, Stat]:
  """Tokens of the rollout that went through an update, and through passes that only score, every pass counted."""
  tokens = metrics["num_tokens"].total
  one = jnp.ones(())
  return {
    "budget/update_tokens": Stat(tokens * train.num_epochs, one),
    "budget/scored_tokens": Stat(tokens * method.num_passes, one),
  }


def _by_prompt(rollout: Rollout, num_prompts: int):
  """Share-weighted successes and verdicts of each proposed prompt, which is group i of the rollout."""
  if not rollout.rewards:
    return jnp.zeros(num_prompts), jnp.zeros(num_prompts)
  counts = rollout.row_mask.astype(jnp.float32)
  total = lambda x: jax.ops.segment_sum(x, rollout.group_id, rollout.num_groups)[:num_prompts]
  return total(counts * rollout.rewards["correct"]), total(counts)


def _make_imitate(task: GraphTask, model: Any) -> Callable:
  """Demonstrations in the form that samples have."""

  def imitate(params, index, run_key, step):
    del params, run_key
    tokens, mask = prompts(task, index)
    actions, action_mask = demonstrations(task, index)
    n = index.shape[0]
    join = lambda a, b: jnp.concatenate([a, b], axis=1)
    rollout = Rollout(
      tokens=join(jnp.where(mask, tokens, task.pad_id), jnp.where(action_mask, actions, task.pad_id)),
      valid_mask=join(mask, action_mask), action_mask=join(jnp.zeros_like(mask), action_mask),
      prompt_id=index, group_id=jnp.arange(n), row_mask=jnp.ones(n, bool), reward=jnp.zeros(n), rewards={},
      behaviour_log_probs=None, truncated=jnp.zeros(n, bool), policy_version=jnp.full(n, step, jnp.int32),
      num_groups=n, first_action=tokens.shape[1],
    )  # fmt: skip
    return rollout, {"budget/generated_tokens": Stat(jnp.zeros(()), jnp.ones(()))}

  return imitate


def make_sampler(rollout: Mapping[str, Any], task: GraphTask, model: Any) -> Callable:
  """The sampler of a rollout spec, without its early exit: here it is always mapped over seeds."""
  spec = dict(rollout)
  spec.setdefault("max_new_tokens", task.max_new_tokens)
  return build(
    rollouts_room, spec, model=model, stop_ids=(task.stop_id,), pad_id=task.pad_id, early_exit=False
  )  # fmt: skip


def _judge(task: GraphTask, rewards: Mapping[str, tuple[float, Callable]], rollout: Rollout) -> Rollout:
  verdict = verify(task, rollout)
  parts = {name: part(verdict, rollout) for name, (_, part) in rewards.items()}
  reward = sum(jnp.asarray(weight, jnp.float32) * parts[name] for name, (weight, _) in rewards.items())
  parts = {"correct": verdict.correct.astype(jnp.float32), "parsable": verdict.parsable.astype(jnp.float32)} | parts
  return rollout.replace(reward=reward, rewards=parts, answer_id=verdict.answer_id)


def _make_rewards(specs) -> dict[str, tuple[float, Callable]]:
  rewards = {}
  for spec in specs:
    spec = dict(spec)
    weight, label = spec.pop("weight", 1.0), spec.pop("label", spec.get("name"))
    rewards[label] = weight, build(components_room, spec)
  return rewards


def _make_play(config, settings, task: GraphTask, model: Any) -> Callable:
  """Samples and verifies one batch; with config.refill, as many rounds as it takes to fill it with mixed groups."""
  sample = make_sampler(config["rollout"], task, model)
  rewards = _make_rewards(config["rewards"])

  def play(params, index, run_key, step):
    tokens, mask = prompts(task, index)
    rollout = sample(params, PromptArrays(tokens, mask, index), run_key, step)
    rollout = _judge(task, rewards, rollout)
    one, everyone = jnp.ones(()), jnp.ones(rollout.reward.shape, bool)
    metrics = {f"reward/{name}": Stat.over(x, rollout.row_mask) for name, x in rollout.rewards.items()} | {
      "reward/mean": Stat.over(rollout.reward, rollout.row_mask),
      "length/mean": Stat.over(jnp.sum(rollout.action_mask, axis=1), everyone),
      "truncated": Stat.over(rollout.truncated, everyone),
      "budget/generated_tokens": Stat(jnp.sum(rollout.action_mask, dtype=jnp.float32), one),
    }
    return rollout, metrics

  return play


def _solved_prompts(task: GraphTask, prompt_id):
  """The privileged context: a demonstration, without its stop token, in front of the prompt."""
  tokens, mask = prompts(task, prompt_id)
  actions, action_mask = demonstrations(task, prompt_id)
  kept = action_mask & (actions != task.stop_id)
  return jnp.concatenate([actions, tokens], axis=1), jnp.concatenate([kept, mask], axis=1)


def _make_evaluate(config, settings, task: GraphTask, model: Any) -> Callable:
  evaluation = settings["eval"]
  num_prompts = evaluation.num_prompts or task.num_eval
  if num_prompts > task.num_eval:
    raise ValueError(
      f"config.eval.num_prompts = {num_prompts}, the held-out set of task {task.name!r} has {task.num_eval} rows"
    )
  rollout = dict(config["rollout"]) | dict(evaluation.rollout) | dict(group_size=evaluation.num_samples)
  sample = make_sampler(rollout, task, model)

  def evaluate(params, run_key) -> Evaluated:
    index = EVAL_ID + jnp.arange(num_prompts, dtype=jnp.int32)
    tokens, mask = prompts(task, index)
    rollout = sample(params, PromptArrays(tokens, mask, index), jax.random.fold_in(run_key, EVAL), 0)
    verdict = verify(task, rollout)
    lengths = jnp.sum(rollout.action_mask, axis=1)
    shape = (num_prompts, evaluation.num_samples)
    return Evaluated(
      *(x.reshape(shape) for x in (verdict.correct.astype(jnp.float32), verdict.answer_id, lengths, rollout.truncated))
    )

  return evaluate
