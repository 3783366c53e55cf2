"""Policy mirror descent: the policy gradient of the row, held near the previous policy by a square.

  L_i = -A_i S_i + (τ/2) S_i²,    S_i = Σ_t (log π - log π_old)

It is (A_i - τ S_i)² / (2τ) without its constant, the squared residual of the optimality condition of
max E[r] - τ KL(π ‖ π_old) with τ log Z for the baseline in A_i; so τ = 0 is the plain policy gradient. The row's value
stands on each of its tokens, so `sequence_mean` gives the mean over rows. With one update per rollout S_i is 0 and
τ has no effect: take several.

Args:    tau: >= 0. length_mean: S_i by the row's length, the mean of its log-ratios.
Differs: the baseline is that of the credit; the paper's is the group's mean reward (`group_normalise` without scale).
Ref:     Kimi k1.5, arXiv:2501.12599, sec. 2.3.2.
"""

import jax.numpy as jnp

from rlvr_jax.core import Term, check_number
from rlvr_jax.objectives.ratios import log_ratio, row_mean, row_sum


def mirror_descent(tau: float, length_mean: bool = False) -> Term:
  """Metric: log_ratio (S)."""
  check_number("mirror_descent: tau", tau, minimum=0)
  over_row = row_mean if length_mean else row_sum

  def loss(current, rollout, advantages):
    mask = rollout.loss_mask
    moved = jnp.broadcast_to(over_row(log_ratio(current, rollout), mask), mask.shape)
    return -jnp.where(mask, advantages, 0.0) * moved + tau / 2 * moved**2, dict(log_ratio=moved)

  return Term(loss, needs=("log_probs", "old.log_probs", "advantages"))
