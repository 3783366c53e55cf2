"""One pure train step: score views → credit → loss and gradient over scanned microbatches → optimiser update.

Microbatches add sums; the divisor comes from the masks of the whole batch (of the minibatch, where there are several),
and divides once. So the number of microbatches and of devices cannot change what is computed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rlvr_jax.core import STATISTICS, PyTree, Reducer, Rollout, Stat, Transform, masked
from rlvr_jax.sharding import constrain
from rlvr_jax.train.gradient import Objective, Tally, make_gradient, make_loss, sampler_gap
from rlvr_jax.train.needs import ViewSpec, make_plan
from rlvr_jax.train.score import clean, make_score, make_statistics, make_views, view_params
from rlvr_jax.train.state import TrainState, constrain_state, follow, make_anchors

_SHUFFLE = 2**32 - 1  # sets the keys of minibatches apart from those of samples, which fold in a step first


class TrainStep(NamedTuple):
  """`init(params, seed, given={}) -> TrainState`; `step(state, rollout) -> (state, metrics)`, which the caller jits.

  `given` maps a view to its parameters, where the views say so.

  `score(params, rollout, want)` are the statistics ["n t"] that the step would see for these parameters.
  """

  init: Callable[..., TrainState]
  step: Callable[[TrainState, Rollout], tuple[TrainState, dict[str, Stat]]]
  score: Callable[..., dict[str, Any]]
  needs: tuple[str, ...]
  min_group_size: int
  num_passes: int  # forward passes over the rollout besides those of the update: views that are scored or diverged from


def _float32(tree: PyTree) -> PyTree:
  return jax.tree.map(lambda x: x.astype(jnp.float32), tree)


def _credit_metrics(advantages, rollout: Rollout) -> dict[str, Stat]:
  mask = rollout.loss_mask
  mean = Stat.over(advantages, mask)
  variance = Stat.over((advantages - mean.mean()) ** 2, mask).mean()

  def any_row(rows):
    return jax.ops.segment_sum(rows.astype(jnp.float32), rollout.group_id, rollout.num_groups) > 0

  taught = any_row(jnp.any((advantages != 0) & mask, axis=1))
  return {
    "advantage_mean": mean,
    "advantage_std": Stat(jnp.sqrt(variance), jnp.ones(())),
    "groups_without_signal": Stat.over(~taught, any_row(rollout.row_mask)),
  }


def _make_assign(credit: Transform | None) -> Callable:
  """`(state, rollout) -> (rollout, advantages, credit state, metrics)`; the one stop_gradient between credit and
  objective."""

  def assign(state: TrainState, rollout: Rollout):
    if credit is None:
      return rollout, None, state.credit, {}
    advantages, after, rollout = credit.update(rollout.reward, state.credit, rollout)
    if advantages.shape != rollout.tokens.shape:
      raise ValueError(
        f"credit must end in advantages [n t] = {rollout.tokens.shape}, got {advantages.shape}; "
        "its last part is usually spread_over_tokens"
      )
    rollout, advantages = jax.lax.stop_gradient((clean(rollout), masked(advantages, rollout.loss_mask)))
    return rollout, advantages, after, _credit_metrics(advantages, rollout)

  return assign


def _make_update(gradient: Callable, optimiser: optax.GradientTransformation) -> Callable:
  """`(params, opt_state, frozen, rollout, advantages) -> (params, opt_state, Tally)`: one optimiser update."""

  def update(params, opt_state, frozen, rollout: Rollout, advantages):
    grads, metrics = gradient(params, frozen, rollout, advantages)
    # Moments and the addition are float32 whatever the dtype of the parameters.
    updates, opt_state = optimiser.update(grads, opt_state, _float32(params))
    params = jax.tree.map(lambda p, u: (p.astype(jnp.float32) + u).astype(p.dtype), params, updates)
    norms = dict(grad_norm=optax.global_norm(grads), update_norm=optax.global_norm(updates))
    return params, opt_state, metrics | Tally({k: Stat(x, jnp.ones(())) for k, x in norms.items()}, {})

  return update


def _make_updates(update: Callable, num_minibatches: int, num_epochs: int) -> Callable:
  """`(state, frozen, rollout, advantages) -> (params, opt_state, Tally)`: a scan over the minibatches of all epochs."""

  def updates(state: TrainState, frozen, rollout: Rollout, advantages):
    rows = rollout.tokens.shape[0]
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(state.seed), _SHUFFLE), state.step)
    order = jax.vmap(lambda epoch: jax.random.permutation(jax.random.fold_in(key, epoch), rows))(jnp.arange(num_epochs))

    def body(carry, index):
      part = jax.tree.map(lambda x: constrain(x[index], ("batch", *(None,) * (x.ndim - 1))), (rollout, advantages))
      params, opt_state, metrics = update(*carry, frozen, *part)
      return (params, opt_state), metrics

    index = order.reshape(num_minibatches * num_epochs, rows // num_minibatches)
    (params, opt_state), metrics = jax.lax.scan(body, (state.params, state.opt_state), index)
    metrics = metrics.over_axis()
    if "old.log_probs" in rollout.stats:
      metrics |= sampler_gap(rollout.stats["old.log_probs"], rollout)
    return params, opt_state, metrics

  return updates


def _check(objective: Objective, **counts: int) -> None:
  names = [name for name, _, _ in objective]
  if not names or len(set(names)) < len(names):
    raise ValueError(f"objective must have at least one term, and terms of different names, got {names}")
  if taken := set(names) & {"loss", "grad_norm", "update_norm", "num_tokens", *STATISTICS}:
    raise ValueError(f"objective: a term cannot have the name of another metric, got {sorted(taken)}")
  for name, value in counts.items():
    if value < 1:
      raise ValueError(f"{name} must be >= 1, got {value}")


def make_train_step(
  model: Any,
  optimiser: optax.GradientTransformation,
  credit: Transform | None,
  objective: Objective,
  reduce: Reducer,
  *,
  temperature: float = 1.0,
  num_microbatches: int = 1,
  num_minibatches: int = 1,
  num_epochs: int = 1,
  chunk_tokens: int | None = None,
  report: Sequence[str] = (),
  supplied: Sequence[str] = (),
  views: Mapping[str, ViewSpec] = {},
) -> TrainStep:
  """Composes a train step out of parts; everything here is fixed when it is built.

  Args:
    model:            has `hidden(params, tokens, positions, valid_mask) -> ["n t d"]`, `head(params) -> ["v d"]`, and
                      `axes()`, the logical axes of every parameter.
    credit:           ends in advantages ["n t"]; None where no term reads advantages (supervised learning).
    objective:        (name, weight, term) each; the loss is the weighted sum, all reduced by `reduce`.
    temperature:      of the sampler; the same for every view.
    num_microbatches: parts of a minibatch whose gradients are added; changes memory, not numbers.
    num_minibatches:  updates per epoch over a rollout, on rows drawn anew each epoch.
    chunk_tokens:     tokens at once through the vocabulary head; None: see `token_statistics`.
    report:           statistics to log although nothing needs them, such as "entropy".
    supplied:         names that the caller puts into `rollout.stats`.
    views:            teachers besides "old" and "reference", by name.

  Raises: ValueError, here, for a need that nothing supplies; at the first call, for rows that do not divide.
  """
  _check(objective, num_microbatches=num_microbatches, num_minibatches=num_minibatches, num_epochs=num_epochs)
  once = num_minibatches * num_epochs == 1
  plan = make_plan(credit, objective, once, report, supplied, views, getattr(model, "head_names", ()))

  def score_of(model):
    return make_score(make_statistics(model, temperature, chunk_tokens), num_microbatches)

  statistics, score = make_statistics(model, temperature, chunk_tokens), score_of(model)
  experts = {name: score_of(view.model) for name, view in plan.views.items() if view.model is not None}
  see, assign = make_views(score, experts, plan, supplied), _make_assign(credit)
  gradient = make_gradient(make_loss(model, statistics, objective, plan, once), objective, reduce, num_microbatches)
  update = _make_update(gradient, optimiser)
  updates = _make_updates(update, num_minibatches, num_epochs)

  def init(params: PyTree, seed: int, given: Mapping[str, PyTree] = {}) -> TrainState:
    state = TrainState(
      params=params,
      opt_state=optimiser.init(_float32(params)),
      credit=credit.init() if credit is not None else {},
      selection={},
      step=jnp.zeros((), jnp.int32),
      seed=jnp.asarray(seed, jnp.uint32),
      anchors=make_anchors(plan, params, given),
    )
    return constrain_state(state, model.axes())

  def step(state: TrainState, rollout: Rollout) -> tuple[TrainState, dict[str, Stat]]:
    rows = rollout.tokens.shape[0]
    if rows % (num_minibatches * num_microbatches):
      raise ValueError(
        f"the rows of a rollout must be a multiple of num_minibatches * num_microbatches = "
        f"{num_minibatches} * {num_microbatches}, got {rows}"
      )
    rollout = see(state, rollout)
    frozen = {d.view: view_params(state, d.view, plan) for d in plan.divergences.values()}
    rollout, advantages, credit_state, metrics = assign(state, rollout)
    if once:
      params, opt_state, more = update(state.params, state.opt_state, frozen, rollout, advantages)
    else:
      params, opt_state, more = updates(state, frozen, rollout, advantages)
    metrics |= more.stats()
    metrics["num_tokens"] = Stat(jnp.sum(rollout.loss_mask, dtype=jnp.float32), jnp.ones(()))
    anchors = follow(plan, state.anchors, params)
    state = state.replace(
      params=params, opt_state=opt_state, credit=credit_state, step=state.step + 1, anchors=anchors
    )  # fmt: skip
    return constrain_state(state, model.axes()), metrics

  teachers = {d.view for d in plan.divergences.values()}
  num_passes = len(plan.before) + len(teachers) * num_epochs
  return TrainStep(init, step, score, plan.every, credit.min_group_size if credit is not None else 1, num_passes)
