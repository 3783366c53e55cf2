"""The scoring pass: statistics of a view's policy at every token of a rollout, computed once before the update."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import STATISTICS, PyTree, Rollout, masked, positions, token_statistics
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


def aligned_hidden(model: Any, params: PyTree, rollout: Rollout, context: str | None = None) -> Float[Array, "n t d"]:
  """States of which column j - 1 predicts token j of the rollout, read in one of its views or in the rows themselves.

  A token that is not in the view gets a state that means nothing.
  """
  if context is None:
    return model.hidden(params, rollout.tokens, positions(rollout.valid_mask), rollout.valid_mask)
  view = rollout.views[context]
  hidden = model.hidden(params, view.tokens, positions(view.valid_mask), view.valid_mask)
  before = jnp.maximum(jnp.roll(view.take, -1, axis=1) - 1, 0)
  return jnp.take_along_axis(hidden, before[:, :, None], axis=1)


def make_statistics(model: Any, temperature: float, chunk_tokens: int | None) -> Callable:
  """`(params, rollout, want, context, teachers, divergences) -> {name: ["n t"]}`, differentiable in `params`."""

  def statistics(params, rollout: Rollout, want: Sequence[str], context=None, teachers=(), divergences=()):
    hidden = aligned_hidden(model, params, rollout, context)
    of_vocabulary = [name for name in want if name in STATISTICS]
    out = token_statistics(
      hidden, model.head(params), rollout.tokens, temperature=temperature, want=of_vocabulary,
      first=rollout.first_action, chunk_tokens=chunk_tokens, teachers=dict(teachers), divergences=dict(divergences),
    )  # fmt: skip
    if len(of_vocabulary) == len(want):
      return out
    if context is not None:
      raise ValueError(f"the statistics of heads are of the rows as sampled, not of the view {context!r}")
    of_heads = model.head_statistics(params, rollout.tokens, rollout.valid_mask, hidden)
    return out | {name: of_heads[name] for name in want if name not in STATISTICS}

  return statistics


def make_score(statistics: Callable, num_microbatches: int) -> Callable:
  """The same, constant, and no more than a microbatch at once."""

  def score(params: PyTree, rollout: Rollout, want: Sequence[str], context: str | None = None):
    parts = split(rollout, num_microbatches)
    return jax.lax.stop_gradient(joined(jax.lax.map(lambda part: statistics(params, part, want, context), parts)))

  return score


def make_views(score: Callable, scores_of: Mapping[str, Callable], plan: Plan, supplied: Sequence[str]) -> Callable:
  """`(state, rollout) -> rollout` with the dotted statistics of the plan in `stats`, and zeros where nothing counts.

  A token that is missing from a view that is read leaves the loss.
  """

  def views(state, rollout: Rollout) -> Rollout:
    stats = dict(rollout.stats)
    if missing := [name for name in supplied if name not in stats]:
      raise ValueError(f"rollout.stats lacks {missing}, declared as supplied; it has {sorted(stats)}")
    for name, view in plan.views.items():
      if view.context is not None:
        if view.context not in rollout.views:
          raise ValueError(f"view {name!r} reads {view.context!r}; the rollout has the views {sorted(rollout.views)}")
        rollout = rollout.keeping(rollout.views[view.context].take >= 0)
    for name, want in plan.before.items():
      context = plan.views[name].context
      found = scores_of.get(name, score)(view_params(state, name, plan), rollout, want, context)
      stats |= {f"{name}.{key}": x for key, x in found.items()}
    if BEHAVIOUR in plan.every:
      if rollout.behaviour_log_probs is None:
        raise ValueError(f"a part needs {BEHAVIOUR!r} but rollout.behaviour_log_probs is None")
      stats[BEHAVIOUR] = rollout.behaviour_log_probs
    return clean(rollout.replace(stats=stats))

  return views


def view_params(state, name: str, plan: Plan) -> PyTree:
  """The parameters of a view, as they are before the update."""
  return state.params if plan.views[name].params == "policy" else state.anchors[name]


def clean(rollout: Rollout) -> Rollout:
  """Zeros where nothing counts, so that a NaN there meets no arithmetic."""
  rows, mask, behaviour = rollout.row_mask, rollout.loss_mask, rollout.behaviour_log_probs
  return rollout.replace(
    reward=jnp.where(rows, rollout.reward, 0.0),
    rewards={name: jnp.where(rows, x, 0.0) for name, x in rollout.rewards.items()},
    behaviour_log_probs=None if behaviour is None else jnp.where(mask, behaviour, 0.0),
    stats={name: masked(x, mask) for name, x in rollout.stats.items()},
  )
