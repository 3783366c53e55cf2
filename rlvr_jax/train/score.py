"""The scoring pass: statistics of a view's policy at every token of a rollout, computed once before the update."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from rlvr_jax.core import PyTree, Rollout, masked, positions, token_statistics
from rlvr_jax.sharding import constrain
from rlvr_jax.train.needs import BEHAVIOUR, Plan


def split(tree: PyTree, count: int) -> PyTree:
  """[n ...] -> [count n/count ...]; part i is rows[i::count], so each part is spread over all devices."""

  def one(x):
    x = x.reshape(x.shape[0] // count, count, *x.shape[1:]).swapaxes(0, 1)
    return constrain(x, (None, "batch", *(None,) * (x.ndim - 2)))

  return jax.tree.map(one, tree)


def joined(tree: PyTree) -> PyTree:
  """The inverse of `split`."""
  return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), tree)


def make_statistics(model: Any, temperature: float, chunk_tokens: int | None) -> Callable:
  """`(params, rollout, want) -> {name: ["n t"]}`, differentiable."""

  def statistics(params: PyTree, rollout: Rollout, want: Sequence[str]):
    hidden = model.hidden(params, rollout.tokens, positions(rollout.valid_mask), rollout.valid_mask)
    return token_statistics(
      hidden, model.head(params), rollout.tokens, temperature=temperature, want=want,
      first=rollout.first_action, chunk_tokens=chunk_tokens,
    )  # fmt: skip

  return statistics


def make_score(statistics: Callable, num_microbatches: int) -> Callable:
  """The same, constant, and no more than a microbatch at once."""

  def score(params: PyTree, rollout: Rollout, want: Sequence[str]):
    parts = split(rollout, num_microbatches)
    return jax.lax.stop_gradient(joined(jax.lax.map(lambda part: statistics(params, part, want), parts)))

  return score


def make_views(score: Callable, plan: Plan, supplied: Sequence[str]) -> Callable:
  """`(state, rollout) -> rollout` with the dotted statistics of the plan in `stats`, and zeros where nothing counts."""

  def views(state, rollout: Rollout) -> Rollout:
    stats = dict(rollout.stats)
    if missing := [name for name in supplied if name not in stats]:
      raise ValueError(f"rollout.stats lacks {missing}, declared as supplied; it has {sorted(stats)}")
    passes = [("old", state.params, plan.old_before)]
    passes += [(view, state.anchors[view], want) for view, want in plan.anchors.items()]
    for view, params, want in passes:
      if want:
        stats |= {f"{view}.{name}": x for name, x in score(params, rollout, want).items()}
    if BEHAVIOUR in plan.every:
      if rollout.behaviour_log_probs is None:
        raise ValueError(f"a part needs {BEHAVIOUR!r} but rollout.behaviour_log_probs is None")
      stats[BEHAVIOUR] = rollout.behaviour_log_probs
    return clean(rollout.replace(stats=stats))

  return views


def clean(rollout: Rollout) -> Rollout:
  """Zeros where nothing counts, so that a NaN there meets no arithmetic."""
  rows, mask, behaviour = rollout.row_mask, rollout.loss_mask, rollout.behaviour_log_probs
  return rollout.replace(
    reward=jnp.where(rows, rollout.reward, 0.0),
    rewards={name: jnp.where(rows, x, 0.0) for name, x in rollout.rewards.items()},
    behaviour_log_probs=None if behaviour is None else jnp.where(mask, behaviour, 0.0),
    stats={name: masked(x, mask) for name, x in rollout.stats.items()},
  )
