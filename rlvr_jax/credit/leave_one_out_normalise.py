"""Reward relative to the mean and the spread of the other rows of its group.

  A_i = (r_i - m_i) / (s_i + eps)     m_i = mean_{j≠i} r_j,   s_i² = sum_{j≠i} (r_j - m_i)² / (n - 2)
  A_i = r_i - m_i                     where the others are equal (s_i = 0), as they always are when n = 2

So r = (1, 0, 0, 0) gives the winner 1 and the losers -1/√3: a row whose others are equal is not scaled, and its
advantage jumps as soon as they differ by a rounding. That is the peer's rule, reproduced; `leave_one_out` has no such
jump. A group of equal rewards gets exactly 0, a lone row 0, rows without a verdict 0 and no part in the statistics.

Peers:    NeMo RL's GRPO, `use_leave_one_out_baseline` with `normalize_rewards`, eps 1e-6.
Differs:  whether the others are equal is decided by comparing them, not by a float variance; all pairs of rows are
          formed for it.
Ref:      Ahmadian et al., Back to Basics (RLOO), arXiv:2402.14740, for the baseline.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_number
from rlvr_jax.credit.chain import stateless


def leave_one_out_normalise(eps: float = 1e-6) -> Transform:
  check_number("leave_one_out_normalise: eps", eps, minimum=0)

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    rows, group = rollout.row_mask, rollout.group_id
    reward = jnp.where(rows, reward, 0.0)
    others = (group[:, None] == group[None, :]) & rows[None, :] & ~jnp.eye(reward.shape[0], dtype=bool)
    count = jnp.sum(others, axis=1, dtype=jnp.float32)
    each = jnp.broadcast_to(reward[None, :], others.shape)

    mean = jnp.sum(jnp.where(others, each, 0.0), axis=1) / jnp.maximum(count, 1.0)
    variance = jnp.sum(jnp.where(others, each - mean[:, None], 0.0) ** 2, axis=1) / jnp.maximum(count - 1, 1.0)
    highest = jnp.max(jnp.where(others, each, -jnp.inf), axis=1)
    lowest = jnp.min(jnp.where(others, each, jnp.inf), axis=1)

    others_differ = highest > lowest
    counts = rows & ((reward > lowest) | (reward < highest))  # false in a group of equals, where r - mean may not be 0
    scale = jnp.where(others_differ, jnp.sqrt(jnp.where(others_differ, variance, 1.0)) + eps, 1.0)
    return jnp.where(counts, reward - mean, 0.0) / scale

  return stateless(update, min_group_size=2, takes="n")
