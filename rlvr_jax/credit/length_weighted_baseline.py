"""Reward minus the group's mean reward weighted by length, the baseline of least variance when tokens act alike.

  A_i = r_i - b        b = sum_j T_j r_j / sum_j T_j        T_j: action tokens of row j

From E[|s|² r] / E[|s|²] with |s_j|², the squared norm of the row's score, taken to be proportional to T_j. The row is
in its own baseline, as in the paper. A group of equal rewards gets exactly 0, a lone row 0, rows without a verdict 0
and no part in the baseline.

Peers:  verl `opo`.
Ref:    Hao et al., On-Policy RL with Optimal Reward Baseline (OPO), arXiv:2505.23585.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, group_max, group_min, group_sum
from rlvr_jax.credit.actions import num_actions
from rlvr_jax.credit.chain import stateless


def length_weighted_baseline() -> Transform:
  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    reward, length = jnp.where(rollout.row_mask, reward, 0.0), num_actions(rollout)
    baseline = group_sum(length * reward, rollout) / jnp.maximum(group_sum(length, rollout), 1.0)
    differ = group_max(reward, rollout) > group_min(reward, rollout)
    return jnp.where(rollout.row_mask & differ, reward - baseline, 0.0)

  return stateless(update, min_group_size=2, takes="n")
