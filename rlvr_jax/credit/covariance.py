"""How much each token contributes to the covariance of credit and log-probability, which is what lowers entropy.

  cov_t = (A_t - mean A) (log π_t - mean log π)        means over the loss tokens of the batch

Ref: Cui et al., The Entropy Mechanism of RL for Reasoning Language Models, arXiv:2505.22617, sec. 4.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlvr_jax.core import Rollout, Stat


def token_covariance(credit: Float[Array, "n t"], rollout: Rollout) -> Float[Array, "n t"]:
  """cov_t from `old.log_probs`; 0 off the loss mask."""
  mask, log_probs = rollout.loss_mask, rollout.stats["old.log_probs"]
  deviations = (jnp.where(mask, x - Stat.over(x, mask).mean(), 0.0) for x in (credit, log_probs))
  return jnp.prod(jnp.stack(list(deviations)), axis=0)


def num_chosen(share: float, rollout: Rollout) -> Int[Array, ""]:
  """floor(share · N) of the N loss tokens of the batch."""
  count = jnp.sum(rollout.loss_mask, dtype=jnp.float32)
  return jnp.floor(jnp.asarray(share, jnp.float32) * count).astype(jnp.int32)
