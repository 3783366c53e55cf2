"""Rollouts of a few tokens, and a term evaluated on one without a model: for numbers worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from rlvr_jax.core import Rollout
from rlvr_jax.objectives import reducers

INF = float("inf")
# Three rows of 1, 3 and 2 tokens; the first two are clipped at 1.1 and 1/1.1, or so, as rows, and the last is not.
ACTION = np.array([[0, 1, 0, 0], [0, 1, 1, 1], [0, 0, 1, 1]], bool)
ADVANTAGES = ACTION * np.array([[1.5], [-0.7], [0.4]])
LOG_RATIO = np.array([[0, 0.3, 0, 0], [0, -0.6, 0.2, -0.2], [0, 0, 0.2, -0.3]])


def rollout(action, group_id=None, row_mask=None, **stats):
  """A row each, groups of one where no ids are given; `stats` by their dotted names."""
  action = jnp.array(action, bool)
  n, t = action.shape
  group_id = list(range(n)) if group_id is None else group_id
  return Rollout(
    tokens=jnp.zeros((n, t), jnp.int32), valid_mask=jnp.ones((n, t), bool), action_mask=action,
    prompt_id=jnp.array(group_id), group_id=jnp.array(group_id),
    row_mask=jnp.ones(n, bool) if row_mask is None else jnp.array(row_mask), reward=jnp.zeros(n), rewards={},
    behaviour_log_probs=jnp.zeros((n, t)), truncated=jnp.zeros(n, bool), policy_version=jnp.zeros(n, jnp.int32),
    stats={name: jnp.asarray(x, jnp.float32) for name, x in stats.items()}, num_groups=max(group_id) + 1,
  )  # fmt: skip


def evaluate(term, log_ratio, advantages, action=None, reduce=reducers.sequence_mean, view="old", **stats):
  """Per-token values, and the gradient of the reduced loss by log π. The log-probs are -1 + the log-ratio."""
  log_ratio, advantages = (jnp.asarray(x, jnp.float32) for x in (log_ratio, advantages))
  action = np.ones(log_ratio.shape, bool) if action is None else action
  old = jnp.full(log_ratio.shape, -1.0)
  batch = rollout(action, **({f"{view}.log_probs": old} | stats))

  def loss(log_probs):
    per_token, metrics = term.loss(dict(log_probs=log_probs), batch, advantages)
    weights = reduce()(batch)
    return jnp.sum(weights.token * jnp.where(batch.loss_mask, per_token, 0.0)) / weights.total, (per_token, metrics)

  grad, (per_token, metrics) = jax.grad(loss, has_aux=True)(old + log_ratio)
  assert np.isfinite(grad).all() and all(x.shape == action.shape for x in metrics.values())
  return np.asarray(jnp.where(batch.loss_mask, per_token, 0.0)), np.asarray(grad)


def one(term, ratio, advantage, **kwargs):
  """Value and slope by log π of a single token."""
  return tuple(float(x[0, 0]) for x in evaluate(term, [[np.log(ratio)]], [[advantage]], **kwargs))
