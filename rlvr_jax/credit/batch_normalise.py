"""Reward minus the mean of its group, divided by the spread over the whole batch.

  A_i = (r_i - mean_group r) / (std_batch r + eps)        std over all rows with a verdict, divisor N - ddof

The spread of one small group is a poor estimate and blows up nearly equal groups; that of the batch is neither. A group
of equal rewards gets exactly 0, a lone row 0, rows without a verdict 0 and no part in the statistics.

Peers:  TRL `scale_rewards="batch"`: ddof=1, eps 1e-4.
Ref:    Liu et al., Tricks or Traps? (Lite PPO), arXiv:2508.08221; Hu et al., REINFORCE++, arXiv:2501.03262.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_number, group_max, group_mean, group_min
from rlvr_jax.credit.chain import stateless


def batch_normalise(eps: float = 1e-6, ddof: int = 0) -> Transform:
  """Args: eps is added to the standard deviation; ddof is 0 (population) or 1 (sample)."""
  check_number("batch_normalise: eps", eps, minimum=0)
  if ddof not in (0, 1):
    raise ValueError(f"batch_normalise: ddof must be 0 or 1, got {ddof}")

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    rows = rollout.row_mask
    reward = jnp.where(rows, reward, 0.0)
    count = jnp.sum(rows, dtype=jnp.float32)
    mean = jnp.sum(reward) / jnp.maximum(count, 1.0)
    variance = jnp.sum(jnp.where(rows, reward - mean, 0.0) ** 2) / jnp.maximum(count - ddof, 1.0)
    counts = rows & (group_max(reward, rollout) > group_min(reward, rollout))
    std = jnp.sqrt(jnp.where(variance > 0, variance, 1.0))
    return jnp.where(counts, reward - group_mean(reward, rollout), 0.0) / (std + eps)

  return stateless(update, min_group_size=2, takes="n")
