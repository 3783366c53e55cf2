"""Policy gradient weighted by a smooth kernel of the ratio of the whole row, which is not divided by its length.

  L_t = -sg[φ(W_i)] A_t log π,    W_i = exp(Σ_t (log π - log π_old)),    φ(W) = exp(λ (1 - W)) W^k

φ(1) = 1, and φ falls to 0 on both sides of its peak W = k/λ. k and λ are those of the sign of A_t; 0 counts as
positive. k = λ = 0 is `reinforce`.

Args:  k_positive, lambda_positive, k_negative, lambda_negative: >= 0. k damps rows that became unlikely, λ likely ones.
Peers: TRL clamps token log-ratios to ±20 and W to [1e-8, e^20], where φ is 0 to the eye; here it is evaluated as it is.
       TRL takes `token_mean`.
Ref:   Shen et al., VESPO, arXiv:2602.10693.
"""

import jax
import jax.numpy as jnp

from rlvr_jax.core import Term, check_number
from rlvr_jax.objectives.ratios import log_ratio, row_sum

_SATURATED = 80.0  # of log W, within λ W only: exp(-λ W) has long been 0 there, and W is still finite


def vespo(
  k_positive: float = 2.0, lambda_positive: float = 3.0, k_negative: float = 3.0, lambda_negative: float = 2.0
) -> Term:
  """Metrics: weight (φ), ratio_max (W)."""
  for name, value in dict(
    k_positive=k_positive, lambda_positive=lambda_positive, k_negative=k_negative, lambda_negative=lambda_negative
  ).items():
    check_number(f"vespo: {name}", value, minimum=0)

  def loss(current, rollout, advantages):
    mask = rollout.loss_mask
    advantages = jnp.where(mask, advantages, 0.0)
    log_w = jnp.broadcast_to(row_sum(jax.lax.stop_gradient(log_ratio(current, rollout)), mask), mask.shape)
    w = jnp.exp(jnp.minimum(log_w, _SATURATED))
    k = jnp.where(advantages >= 0, k_positive, k_negative)
    rate = jnp.where(advantages >= 0, lambda_positive, lambda_negative)
    weight = jnp.exp(k * log_w + rate * (1 - w))
    log_probs = jnp.where(mask, current["log_probs"], 0.0)
    return -weight * advantages * log_probs, dict(weight=weight, ratio_max=w)

  return Term(loss, needs=("log_probs", "old.log_probs", "advantages"))
