"""Reward minus the mean of the other rows of its group.

  A_i = r_i - (1/(n-1)) sum_{j≠i} r_j = n/(n-1) (r_i - mean r)

A group of equal rewards gets exactly 0, a lone row 0, rows without a verdict 0 and no part in the baseline.

Ref: Ahmadian et al., Back to Basics (RLOO), arXiv:2402.14740.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, group_count, group_max, group_min, group_sum
from rlvr_jax.credit.chain import stateless


def leave_one_out() -> Transform:
  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    reward = jnp.where(rollout.row_mask, reward, 0.0)
    baseline = (group_sum(reward, rollout) - reward) / jnp.maximum(group_count(rollout) - 1, 1.0)
    differ = group_max(reward, rollout) > group_min(reward, rollout)  # false for a lone row too
    return jnp.where(rollout.row_mask & differ, reward - baseline, 0.0)

  return stateless(update, min_group_size=2, takes="n")
