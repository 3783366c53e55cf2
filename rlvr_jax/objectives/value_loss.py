"""Squared error of the critic.

  L_t = (1/2) (v_t - R_t)²
  L_t = (1/2) max((v_t - R_t)², (clip(v_t, v_old - ε, v_old + ε) - R_t)²)     with clip = ε

R is `credit.returns`, of a credit link such as GAE. A token whose clipped error is the larger one has no gradient: the
critic may not go further from its old value than ε, but may always come back.

Args:  clip: ε, in units of the return; None: no clipping.
Peers: verl, OpenRLHF and TRL have the 1/2 and the maximum.
Ref:   Schulman et al., GAE, arXiv:1506.02438; the clipping is that of OpenAI baselines' PPO2.
"""

import jax.numpy as jnp

from rlvr_jax.core import Term, check_number


def value_loss(clip: float | None = None) -> Term:
  """Metrics: value_mean, return_mean and, with `clip`, value_clip_fraction."""
  if clip is not None:
    check_number("value_loss: clip", clip, above=0)

  def loss(current, rollout, advantages):
    del advantages
    mask = rollout.loss_mask
    value = jnp.where(mask, current["value"], 0.0)
    returns = jnp.where(mask, rollout.stats["credit.returns"], 0.0)
    error = (value - returns) ** 2
    metrics = dict(value_mean=value, return_mean=returns)
    if clip is None:
      return error / 2, metrics
    old = jnp.where(mask, rollout.stats["old.value"], 0.0)
    # Constants: outside the range the clipped value is one, and inside it the two errors are the same.
    high, low = (old + clip - returns) ** 2, (old - clip - returns) ** 2
    bounded = jnp.where(value > old + clip, high, jnp.where(value < old - clip, low, error))
    worse = bounded > error
    return jnp.where(worse, bounded, error) / 2, metrics | dict(value_clip_fraction=worse.astype(jnp.float32))

  return Term(loss, needs=("value", "credit.returns") + (() if clip is None else ("old.value",)))
