"""Regression of the row's log-ratio on its optimal advantage.

  L_i = (β2 Σ_t (log π - log π_ref) - A_i)²,    A_i = r_i - V*

At the optimum of the KL-regularised reward π is proportional to π_ref exp(r/β), so with β1 = β2 = β the residual is 0
for every answer. The advantages are V*'s: the credit `optimal_advantage`, then `spread_over_tokens`. The row's value
stands on each of its tokens, so `sequence_mean` gives the mean over rows.

Args:    beta2: weight of the log-ratio, > 0.
Differs: V* is estimated from the rollouts of the batch rather than, once, from samples of the reference.
Ref:     Brantley et al., A*-PO, arXiv:2505.20686.
"""

import jax.numpy as jnp

from rlvr_jax.core import Term, check_number
from rlvr_jax.objectives.ratios import log_ratio, row_sum


def a_star_po(beta2: float = 1e-3) -> Term:
  """Metric: log_ratio (of rows, to the reference)."""
  check_number("a_star_po: beta2", beta2, above=0)

  def loss(current, rollout, advantages):
    mask = rollout.loss_mask
    moved = jnp.broadcast_to(row_sum(log_ratio(current, rollout, "reference"), mask), mask.shape)
    return (beta2 * moved - jnp.where(mask, advantages, 0.0)) ** 2, dict(log_ratio=moved)

  return Term(loss, needs=("log_probs", "reference.log_probs", "advantages"))
