"""Policy gradient with a clipped importance weight: a clipped token keeps its gradient, only smaller.

  L_t = -sg[clip(ρ_t, low, high)] A_t log π,    ρ_t = exp(log π - log π_old)

Args:  low, high: bounds of the ratio itself, not distances from 1; low None: no lower bound.
Peers: three conventions. TRL's `epsilon_high` is `high` (5.0), without a lower bound; verl, NeMo-RL, slime and SkyRL
       have low = 1 - ε_low, high = 1 + ε_high; open-instruct has high = 1 + ε_high alone.
Ref:   MiniMax-M1, arXiv:2506.13585, sec. 3.1.
"""

import jax
import jax.numpy as jnp

from rlvr_jax.core import Term, check_number
from rlvr_jax.objectives.ratios import log_ratio


def cispo(low: float | None = None, high: float = 5.0) -> Term:
  """Metrics: clip_fraction, clip_fraction_low, ratio_max."""
  low = 0.0 if low is None else low
  check_number("cispo: low", low, minimum=0, maximum=1)
  check_number("cispo: high", high, minimum=1)

  def loss(current, rollout, advantages):
    advantages = jnp.where(rollout.loss_mask, advantages, 0.0)
    taught = advantages != 0  # an infinite ratio times an advantage of 0 is no number
    ratio = jnp.exp(jax.lax.stop_gradient(jnp.where(taught, log_ratio(current, rollout), 0.0)))
    above, below = ratio > high, ratio < low
    weight = jnp.where(above, high, jnp.where(below, low, ratio))
    log_probs = jnp.where(rollout.loss_mask, current["log_probs"], 0.0)
    return -weight * advantages * log_probs, dict(
      clip_fraction=(above | below).astype(jnp.float32), clip_fraction_low=below.astype(jnp.float32), ratio_max=ratio
    )

  return Term(loss, needs=("log_probs", "old.log_probs", "advantages"))
