"""The plain policy gradient, per token. No ratio, so it is for one update per rollout.

  L_t = -A_t log π

Ref: Williams 1992, doi:10.1007/BF00992696.
"""

import jax.numpy as jnp

from rlvr_jax.core import Term


def reinforce() -> Term:
  def loss(current, rollout, advantages):
    mask = rollout.loss_mask
    return -jnp.where(mask, advantages, 0.0) * jnp.where(mask, current["log_probs"], 0.0), {}

  return Term(loss, needs=("log_probs", "advantages"))
