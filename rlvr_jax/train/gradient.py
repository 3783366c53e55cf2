"""Loss and gradient of one minibatch, by a scan over its microbatches that adds sums and divides once, at the end."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlvr_jax.core import PyTree, Reducer, Rollout, Stat, Term, masked
from rlvr_jax.train.needs import Plan
from rlvr_jax.train.score import aligned_hidden, split

Objective = Sequence[tuple[str, float, Term]]  # (name, weight, term)


class Tally(NamedTuple):
  """Metrics that still add up: means as `Stat`s, and maxima of what is never negative."""

  sums: dict[str, Stat]
  maxima: dict[str, Any]

  def __or__(self, other: "Tally") -> "Tally":
    return Tally(self.sums | other.sums, self.maxima | other.maxima)

  def over_axis(self) -> "Tally":
    """Of tallies stacked by a scan."""
    return Tally(
      jax.tree.map(lambda x: jnp.sum(x, axis=0), self.sums), jax.tree.map(lambda x: jnp.max(x, axis=0), self.maxima)
    )

  def stats(self) -> dict[str, Stat]:
    return self.sums | {name: Stat(x, jnp.ones(())) for name, x in self.maxima.items()}


def tally(values: dict[str, Any], mask: Any) -> Tally:
  """Of arrays ["n t"]; those whose names end in `_max` as their largest value (0 where there is none)."""
  largest = {name: jnp.max(jnp.where(mask, x, 0.0)) for name, x in values.items() if name.endswith("_max")}
  return Tally({name: Stat.over(x, mask) for name, x in values.items() if name not in largest}, largest)


def sampler_gap(log_probs: Any, rollout: Rollout) -> Tally:
  """|behaviour - old|: what sampler and train step disagree about. Nothing where the rollout has no behaviour."""
  if rollout.behaviour_log_probs is None:
    return Tally({}, {})
  gap = jnp.abs(log_probs - rollout.behaviour_log_probs)
  return tally({"sampler_mismatch": gap, "sampler_mismatch_max": gap}, rollout.loss_mask)


def make_loss(model: Any, statistics: Callable, objective: Objective, plan: Plan, first_update: bool) -> Callable:
  """`(params, frozen, rollout, advantages, weight) -> (sum, Tally)` of one microbatch.

  `frozen` are the parameters of the views that divergences read; `weight` ["n t"] is the reducer's. The sum of a term
  is its `Stat` without its divisor, which `make_gradient` adds.
  """

  def teachers_of(frozen, rollout: Rollout):
    out = {}
    for view in dict.fromkeys(d.view for d in plan.divergences.values()):
      spec = plan.views[view]
      teacher = model if spec.model is None else spec.model
      out[view] = aligned_hidden(teacher, frozen[view], rollout, spec.context), teacher.head(frozen[view])
    return out

  def loss(params, frozen, rollout: Rollout, advantages, weight):
    mask = rollout.loss_mask
    found = statistics(params, rollout, plan.current, None, teachers_of(frozen, rollout), plan.divergences)
    found = {name: masked(x, mask) for name, x in found.items()}
    current = {name: found[name] for name in plan.current}
    old = {f"old.{name}": jax.lax.stop_gradient(current[name]) for name in plan.old_free}
    rollout = rollout.replace(stats=dict(rollout.stats) | old)
    metrics, total = tally({name: x for name, x in current.items() if x.ndim == 2}, mask), jnp.zeros(())
    if first_update and "log_probs" in current:
      metrics |= sampler_gap(current["log_probs"], rollout)
    for name, scale, term in objective:
      with_teachers = current | {key: found[f"{name}/{key}"] for key in term.divergences}
      per_token, values = term.loss(with_teachers, rollout, advantages)
      value = jnp.sum(weight * jnp.where(mask, per_token.astype(jnp.float32), 0.0))
      total += scale * value
      metrics |= tally({f"{name}/{key}": x for key, x in values.items()}, mask)
      metrics.sums[name] = Stat(value, jnp.zeros(()))
    metrics.sums["loss"] = Stat(total, jnp.zeros(()))
    return total, metrics

  return loss


def make_gradient(loss: Callable, objective: Objective, reduce: Reducer, num_microbatches: int) -> Callable:
  """`(params, frozen, rollout, advantages) -> (gradient of the mean in float32, Tally)` of one minibatch."""

  def gradient(params: PyTree, frozen: PyTree, rollout: Rollout, advantages):
    weights = reduce(rollout)
    divisor = jnp.where(weights.total > 0, weights.total, 1.0)

    def body(grads, part):
      new, metrics = jax.grad(loss, has_aux=True)(params, frozen, *part)
      return jax.tree.map(lambda a, b: a + b.astype(jnp.float32), grads, new), metrics

    zeros = jax.tree.map(lambda p: jnp.zeros_like(p, jnp.float32), params)
    grads, metrics = jax.lax.scan(body, zeros, split((rollout, advantages, weights.token), num_microbatches))
    metrics = metrics.over_axis()
    for name in ("loss", *(name for name, _, _ in objective)):
      metrics.sums[name] = Stat(metrics.sums[name].total, weights.total)
    return jax.tree.map(lambda g: g / divisor, grads), metrics

  return gradient
