"""Marks the tokens of highest covariance, for a penalty on their drift.

  m_t = 1[cov_t is among the floor(share · N) highest]        `rollout.stats["credit.kl_cov"]`
  cov_t = (A_t - mean A)(log π_t - mean log π)                means over the N loss tokens of the batch

The credit is passed on as it is; an objective term adds coef · |log π - log π_old| where the mark is 1. Ties with the
last of them are marked too.

Peers:    verl `kl_cov`: share 2e-4, coef 1, and never fewer than one token.
Differs:  log π is that of the policy before the update, as in `clip_cov`.
Ref:      Cui et al., The Entropy Mechanism of RL for Reasoning Language Models, arXiv:2505.22617, sec. 4.2.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_number
from rlvr_jax.credit.chain import stateless
from rlvr_jax.credit.covariance import num_chosen, token_covariance


def kl_cov(share: float) -> Transform:
  check_number("kl_cov: share", share, minimum=0, maximum=1)

  def update(credit: Float[Array, "n t"], rollout: Rollout) -> tuple[Float[Array, "n t"], Rollout]:
    mask, cov = rollout.loss_mask, token_covariance(credit, rollout)
    falling = -jnp.sort(jnp.where(mask, -cov, jnp.inf).ravel())
    number = num_chosen(share, rollout)
    marked = mask & (number > 0) & (cov >= falling[jnp.maximum(number - 1, 0)])
    stats = {**rollout.stats, "credit.kl_cov": marked.astype(jnp.float32)}
    return jnp.where(mask, credit, 0.0), rollout.replace(stats=stats)

  return stateless(update, needs=("old.log_probs",), provides=("credit.kl_cov",), takes="n t")
