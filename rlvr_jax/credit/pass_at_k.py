"""Credit for the best of k: only rows that raise the maximum of a set are paid.

  form="best":      A_i = (r_(1) - r_(2)) / (std r + eps) for the one best row, 0 for the rest      (k = the group)
  form="unbiased":  A_i = k C(n-c, k-1) / C(n-1, k-1) for a correct row, 0 for a wrong one

r_(1) and r_(2) are the highest and second highest reward of the group (equal where the best is shared, so nobody is
paid), and std its standard deviation with divisor n - 1. In the unbiased form n rows have c correct ones, and A_i is k
times the chance that k-1 others drawn from the group are all wrong, so that row i alone makes the set succeed. Then
E[(1/n) sum_i A_i s_i] is exactly the gradient of pass@k = 1 - (1-p)^k for any n >= k.

A group of equal rewards gets exactly 0, and so do a lone row and, in the unbiased form, a group in which fewer than k
rows have a verdict. Rows without a verdict get 0 and have no part in the rest.

Args:
  form:      "best" or "unbiased".
  k:         for "unbiased": the size of the set, 2 <= k <= the group; k = 1 is `leave_one_out`.
  eps:       for "best": added to the standard deviation.
  scale:     for "best": False leaves out the division.
  threshold: for "unbiased": a reward above it is correct.

Peers:  verl `grpo_passk`: form="best", eps 1e-6.
Ref:    Tang et al., Optimizing Language Models for Inference Time Objectives using RL, arXiv:2503.19595; Walder and
        Karkhanis, Pass@K Policy Optimization, arXiv:2505.15201.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_keys, check_number, group_count, group_max, group_std, group_sum
from rlvr_jax.credit.chain import stateless


def _best(reward: Float[Array, "n"], rollout: Rollout, eps: float, scale: bool) -> Float[Array, "n"]:
  best = group_max(reward, rollout)
  is_best = rollout.row_mask & (reward == best)
  alone = group_sum(is_best.astype(jnp.float32), rollout) == 1
  second = group_max(reward, rollout.replace(row_mask=rollout.row_mask & (reward < best)))
  paid = is_best & alone & (second > -jnp.inf)  # -inf: nobody else
  margin = jnp.where(paid, reward - second, 0.0)
  return margin / jnp.where(paid, group_std(reward, rollout, ddof=1) + eps, 1.0) if scale else margin


def _unbiased(reward: Float[Array, "n"], rollout: Rollout, k: int, threshold: float) -> Float[Array, "n"]:
  correct = rollout.row_mask & (reward > threshold)
  size = group_count(rollout)
  wrong = size - group_sum(correct.astype(jnp.float32), rollout)
  drawn = jnp.arange(k - 1, dtype=jnp.float32)[None, :]  # C(a, k-1) / C(b, k-1) = prod_j (a-j) / (b-j)
  chances = jnp.maximum(wrong[:, None] - drawn, 0.0) / jnp.maximum(size[:, None] - 1 - drawn, 1.0)
  return jnp.where(correct, k * jnp.prod(chances, axis=1), 0.0)  # 0 where k-1 others are not there, too


def pass_at_k(
  form: str = "best", k: int | None = None, eps: float = 1e-6, scale: bool = True, threshold: float = 0.5
) -> Transform:
  check_keys("pass_at_k: form", [form], ["best", "unbiased"])
  check_number("pass_at_k: eps", eps, minimum=0)
  if form == "best" and k is not None:
    raise ValueError(f"pass_at_k: form='best' takes the whole group for the set, got k = {k}")
  if form == "unbiased" and (k is None or k < 2):
    raise ValueError(f"pass_at_k: form='unbiased' needs k >= 2, got {k}")

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    reward = jnp.where(rollout.row_mask, reward, 0.0)
    return _best(reward, rollout, eps, scale) if form == "best" else _unbiased(reward, rollout, k, threshold)

  return stateless(update, min_group_size=k or 2, takes="n")
