"""Reward minus the soft optimal value of its group.

  A_i = r_i - V*,    V* = β1 log mean_j exp(r_j / β1)

V* is the value of the best policy within a KL penalty β1 of the one that sampled: the mean reward as β1 grows, the
largest as it goes to 0. A group of equal rewards gets 0, a lone row 0, rows without a verdict 0 and no part in V*.
For the term `a_star_po`.

Args:    beta1: > 0, in units of the reward.
Differs: the mean is over the group at hand; the paper takes it once, over samples of the reference policy.
Ref:     Brantley et al., A*-PO, arXiv:2505.20686, eq. 5.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_number, group_max, group_mean
from rlvr_jax.credit.chain import stateless


def optimal_advantage(beta1: float = 0.5) -> Transform:
  check_number("optimal_advantage: beta1", beta1, above=0)

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    rows = rollout.row_mask
    below = jnp.where(rows, reward - group_max(reward, rollout), 0.0)  # <= 0, so that exp cannot overflow
    mean = jnp.where(rows, group_mean(jnp.exp(below / beta1), rollout), 1.0)
    return below - beta1 * jnp.log(mean)

  return stateless(update, min_group_size=2, takes="n")
