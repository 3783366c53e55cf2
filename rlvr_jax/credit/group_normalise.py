"""Reward relative to its group.

  A_i = (r_i - mean r) / (std r + eps)        with the group's mean and standard deviation (divisor n - ddof)
  A_i = r_i - mean r                          with scale=False (Dr. GRPO)

A group of equal rewards gets exactly 0, a lone row 0, rows without a verdict 0 and no part in the statistics.

Peers:  ddof=1 with eps 1e-4 (TRL), 1e-6 (verl, SkyRL, slime), 1e-9 (OpenRLHF); ddof=0 with 1e-8 (open-instruct).
Ref:    Shao et al., DeepSeekMath, arXiv:2402.03300, sec. 4.1; Liu et al., Dr. GRPO, arXiv:2503.20783.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, group_mean, group_std
from rlvr_jax.credit.chain import stateless


def group_normalise(eps: float = 1e-6, ddof: int = 0, scale: bool = True) -> Transform:
  """Args: eps is added to the standard deviation; ddof is 0 (population) or 1 (sample); scale divides by it."""
  if not eps >= 0:
    raise ValueError(f"group_normalise: eps must be >= 0, got {eps}")
  if ddof not in (0, 1):
    raise ValueError(f"group_normalise: ddof must be 0 or 1, got {ddof}")

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    std = group_std(reward, rollout, ddof)
    counts = rollout.row_mask & (std > 0)  # std is exactly 0 for equal rewards, whose deviations may not be
    deviation = jnp.where(counts, reward - group_mean(reward, rollout), 0.0)
    return deviation / jnp.where(counts, std + eps, 1.0) if scale else deviation

  return stateless(update, min_group_size=2)
