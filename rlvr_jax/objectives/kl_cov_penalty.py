"""Penalty on the move of the tokens that a credit link marked, those whose covariance drives the entropy down.

  L_t = c_t |log π - log π_old|,    c_t = `credit.kl_cov`, 1 on marked tokens and 0 elsewhere

The weight of the term is the coefficient of the penalty. At π = π_old its gradient is 0.

Peers: verl's `kl_cov`.
Ref:   Cui et al., The Entropy Mechanism of RL for Reasoning Language Models, arXiv:2505.22617.
"""

import jax
import jax.numpy as jnp

from rlvr_jax.core import Term
from rlvr_jax.objectives.ratios import log_ratio


def kl_cov_penalty() -> Term:
  """Metric: marked, the fraction of tokens."""

  def loss(current, rollout, advantages):
    del advantages
    marked = jnp.where(rollout.loss_mask, rollout.stats["credit.kl_cov"], 0.0)
    moved = log_ratio(current, rollout)
    size = jnp.sign(jax.lax.stop_gradient(moved)) * moved  # jnp.abs has slope 1 at 0, where this has none
    return marked * size, dict(marked=(marked > 0).astype(jnp.float32))

  return Term(loss, needs=("log_probs", "old.log_probs", "credit.kl_cov"))
