"""What the laboratory plays in: a graph task or a world, seen as batched array functions of prompt ids."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import rlvr_jax.rollouts as rollouts_room
import rlvr_jax.tasks.graph as graph_room
import rlvr_jax.tasks.worlds as worlds_room
from rlvr_jax.core import Rollout, build, nearest
from rlvr_jax.rollouts.decode import left_pad
from rlvr_jax.tasks.graph.types import GraphTask, GraphVerdict, demonstrations, prompts, verify
from rlvr_jax.tasks.worlds.types import World


class Arena(NamedTuple):
  """Everything is of a batch of prompt ids Int["p"], or of a rollout."""

  task: GraphTask | World
  max_new_tokens: int  # columns after the prompt
  prompts: Callable  # ids -> tokens Int["p l"], mask Bool["p l"], padding in front: what follows is read off the last
  demonstrate: Callable  # ids -> Rollout of right completions, one a prompt
  make_sampler: Callable  # (rollout spec, model) -> sample(params, PromptArrays, key, step)
  verify: Callable  # Rollout -> GraphVerdict
  hint: Callable  # ids -> what a privileged teacher reads before the prompt: tokens Int["p u"], mask Bool["p u"]


def names() -> tuple[str, ...]:
  return (*graph_room.__all__, *worlds_room.__all__)


def make_arena(spec: Mapping[str, Any]) -> Arena:
  """The arena of config.task."""
  name = dict(spec).get("name")
  if name in worlds_room.__all__:
    return _of_world(build(worlds_room, spec))
  if name not in graph_room.__all__ and ":" not in str(name):
    raise ValueError(f"there is no graph task or world {name!r}{nearest(name, names())} There are {sorted(names())}")
  task = build(graph_room, spec)
  return _of_world(task) if isinstance(task, World) else _of_graph(task)


def _of_graph(task: GraphTask) -> Arena:
  def make_sampler(spec, model):
    spec = dict(spec)
    spec.setdefault("max_new_tokens", task.max_new_tokens)
    # No early exit: it is always mapped over seeds here.
    return build(
      rollouts_room, spec, model=model, stop_ids=(task.stop_id,), pad_id=task.pad_id, early_exit=False
    )  # fmt: skip

  def of_prompts(index):
    return left_pad(*prompts(task, index))

  def demonstrate(index) -> Rollout:
    actions, mask = demonstrations(task, index)
    return _shown(task, index, of_prompts(index), jnp.where(mask, actions, task.pad_id), mask, mask)

  def hint(index):
    actions, mask = demonstrations(task, index)
    return actions, mask & (actions != task.stop_id)

  return Arena(
    task, task.max_new_tokens, of_prompts, demonstrate, make_sampler,
    lambda rollout: verify(task, rollout), hint,
  )  # fmt: skip


def _of_world(world: World) -> Arena:
  width = world.action_tokens + world.observation_tokens

  def world_reset(prompt_id):
    facts = world.problem(prompt_id)  # drawn once, carried along
    return facts, world.reset(facts)

  def world_step(prompt_id, state, tokens, mask):
    facts, state = state
    out = world.step(facts, state, tokens, mask)
    return out._replace(state=(facts, out.state))

  def make_sampler(spec, model):
    return build(
      rollouts_room, spec, model=model, stop_ids=(world.stop_id,), pad_id=world.pad_id, max_turns=world.max_turns,
      action_tokens=world.action_tokens, observation_tokens=world.observation_tokens, world_reset=world_reset,
      world_step=world_step,
    )  # fmt: skip

  def of_prompts(index):
    return left_pad(*jax.vmap(lambda i: world.prompt(world.problem(i)))(index))

  def planned(prompt_id):
    """Columns of one row that follows the plan: tokens, valid and action masks, turn ids."""
    facts = world.problem(prompt_id)

    def turn(carry, index):
      state, done = carry
      action, mask = world.plan(facts, state)
      mask = mask & ~done
      out = world.step(facts, state, action, mask)
      seen = out.mask & ~done
      tokens = jnp.concatenate([jnp.where(mask, action, world.pad_id), jnp.where(seen, out.observation, world.pad_id)])
      act = jnp.concatenate([mask, jnp.zeros_like(seen)])
      columns = tokens, jnp.concatenate([mask, seen]), act, jnp.where(act, index, -1)
      state = jax.tree.map(lambda new, old: jnp.where(done, old, new), out.state, state)
      return (state, done | out.done), columns

    start = world.reset(facts), jnp.zeros((), bool)
    _, columns = jax.lax.scan(turn, start, jnp.arange(world.max_turns))
    columns = tuple(x.reshape(world.max_turns * width) for x in columns)
    order = jnp.argsort(~columns[1], stable=True)  # no gaps: a token is predicted from the column before it
    return tuple(x[order] for x in columns)

  def demonstrate(index) -> Rollout:
    tokens, valid, action, turn_id = jax.vmap(planned)(index)
    rollout = _shown(world, index, of_prompts(index), tokens, valid, action)
    before = jnp.full((index.shape[0], world.prompt_tokens), -1, turn_id.dtype)
    return rollout.replace(turn_id=jnp.concatenate([before, turn_id], axis=1))

  def judged(rollout: Rollout) -> GraphVerdict:
    everyone = jnp.ones(rollout.reward.shape, bool)
    return GraphVerdict(jnp.clip(rollout.rewards["world"], 0.0, 1.0), everyone, jnp.where(everyone, -1, 0))

  def hint(index):
    return jax.vmap(lambda i: world.hint(world.problem(i)))(index)

  return Arena(world, world.max_turns * width, of_prompts, demonstrate, make_sampler, judged, hint)


def _shown(task: Any, index, prompt, tokens, valid_mask, action_mask) -> Rollout:
  """Demonstrations in the form that samples have: the train step does not know which it gets."""
  n = index.shape[0]
  prompt_tokens, prompt_mask = prompt
  join = lambda a, b: jnp.concatenate([a, b], axis=1)
  return Rollout(
    tokens=join(jnp.where(prompt_mask, prompt_tokens, task.pad_id), tokens), valid_mask=join(prompt_mask, valid_mask),
    action_mask=join(jnp.zeros_like(prompt_mask), action_mask), prompt_id=index, group_id=jnp.arange(n),
    row_mask=jnp.ones(n, bool), reward=jnp.zeros(n), rewards={}, behaviour_log_probs=None,
    truncated=jnp.zeros(n, bool), policy_version=jnp.zeros(n, jnp.int32), num_groups=n,
    first_action=prompt_tokens.shape[1],
  )  # fmt: skip
