"""Reward relative to its group's mean, in units of that mean: the gradient of a truncated log-likelihood of success.

  A_i = (r_i - mean r) / (mean r + eps)                    where mean r > 0
  A_i = 0  (truncation="g-1")   or   -1  (truncation="g")  where mean r = 0

For rewards in {0, 1}, success rate p and G rows per group, and eps = 0, the expectation of (1/G) sum_i A_i s_i is
exactly

  (1 - (1-p)^T) / p · ∇p,   the gradient of   J_T = -sum_{k=1}^T (1-p)^k / k   → log p

with T = G-1 when groups without a success are dropped, and T = G when the baseline -(1/G) sum_i s_i is subtracted from
them too. T = 1 is REINFORCE. Rewards must not be negative; a group whose mean is not above 0 is treated as one without
success. A group of equal positive rewards gets exactly 0, rows without a verdict 0 and no part in the mean.

Peers:  eps 1e-6 with truncation "g-1".
Ref:    Tajwar et al., Maximum Likelihood Reinforcement Learning (MaxRL), arXiv:2602.02710.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_keys, check_number, group_max, group_mean, group_min
from rlvr_jax.credit.chain import stateless


def max_rl(truncation: str = "g-1", eps: float = 0.0) -> Transform:
  check_keys("max_rl: truncation", [truncation], ["g-1", "g"])
  check_number("max_rl: eps", eps, minimum=0)

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    rows, mean = rollout.row_mask, group_mean(reward, rollout)
    solved = rows & (mean > 0)
    differ = solved & (group_max(reward, rollout) > group_min(reward, rollout))
    advantage = jnp.where(differ, reward - mean, 0.0) / jnp.where(differ, mean + eps, 1.0)
    return advantage if truncation == "g-1" else jnp.where(rows & ~solved, -1.0, advantage)

  return stateless(update, min_group_size=2 if truncation == "g-1" else 1, takes="n")
