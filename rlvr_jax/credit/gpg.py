"""Reward minus its group's mean, scaled up by the share of the batch that teaches nothing.

  A_i = α (r_i - mean r)        α = B / B_taught

B is the number of rows with a verdict. B_taught counts, with count="advantage", the rows of groups whose rewards
differ: the loss is then a mean over rows that teach, however many all-right or all-wrong groups the batch holds. With
count="reward" it counts the rows whose reward is not 0, which is what verl computes: r = (1, 0, 0, 0) alone gives (3,
-1, -1, -1) there and (.75, -.25, -.25, -.25) otherwise. Where nothing is counted, nothing teaches and A = 0.

A group of equal rewards gets exactly 0, a lone row 0, rows without a verdict 0 and no part in the statistics.

Peers:  verl `gpg`: count="reward".
Ref:    Chu et al., GPG, arXiv:2504.02546.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_keys, group_max, group_mean, group_min
from rlvr_jax.credit.chain import stateless


def gpg(count: str = "advantage") -> Transform:
  check_keys("gpg: count", [count], ["advantage", "reward"])

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    rows = rollout.row_mask
    reward = jnp.where(rows, reward, 0.0)
    differ = rows & (group_max(reward, rollout) > group_min(reward, rollout))
    taught = jnp.sum(differ if count == "advantage" else reward != 0, dtype=jnp.float32)
    alpha = jnp.sum(rows, dtype=jnp.float32) / jnp.maximum(taught, 1.0)
    return alpha * jnp.where(differ, reward - group_mean(reward, rollout), 0.0)

  return stateless(update, min_group_size=2, takes="n")
