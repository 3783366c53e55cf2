"""The plain policy gradient, per token: L_t = -A_t log π. No ratio, so it is for one update per rollout."""

import jax.numpy as jnp

from rlvr_jax.core import Term


def reinforce() -> Term:
  def loss(current, rollout, advantages):
    mask = rollout.loss_mask
    return -jnp.where(mask, advantages, 0.0) * jnp.where(mask, current["log_probs"], 0.0), {}

  return Term(loss, needs=("log_probs", "advantages"))
