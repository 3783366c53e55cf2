"""Reward relative to its group.

  A_i = (r_i - mean r) / (std r + eps)        with the group's mean and standard deviation (divisor n - ddof)
  A_i = r_i - mean r                          with scale=False (Dr. GRPO)

A group of equal rewards has standard deviation exactly 0 and gets exactly 0. A lone row, whose standard deviation is 0
(or undefined with ddof=1), gets 0 with lone="zero" and its reward as it is with lone="raw". Rows without a verdict get
0 and have no part in the statistics, whatever stands in their reward, NaN included.

Peers:  ddof=1 with eps 1e-4 (TRL), 1e-6 (verl, SkyRL, slime), 1e-9 (OpenRLHF); ddof=0 with 1e-8 (open-instruct);
        lone="raw" in verl, SkyRL and slime.
Ref:    Shao et al., DeepSeekMath, arXiv:2402.03300, sec. 4.1; Liu et al., Dr. GRPO, arXiv:2503.20783.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_keys, check_number, group_count, group_mean, group_std
from rlvr_jax.credit.chain import stateless


def group_normalise(eps: float = 1e-6, ddof: int = 0, scale: bool = True, lone: str = "zero") -> Transform:
  """Args: eps is added to the standard deviation; ddof is 0 (population) or 1 (sample); scale divides by it."""
  check_number("group_normalise: eps", eps, minimum=0)
  if ddof not in (0, 1):
    raise ValueError(f"group_normalise: ddof must be 0 or 1, got {ddof}")
  check_keys("group_normalise: lone", [lone], ["zero", "raw"])

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    std = group_std(reward, rollout, ddof)
    counts = rollout.row_mask & (std > 0)  # std is exactly 0 for equal rewards, whose deviations may not be
    deviation = jnp.where(counts, reward - group_mean(reward, rollout), 0.0)
    advantage = deviation / jnp.where(counts, std + eps, 1.0) if scale else deviation
    if lone == "zero":
      return advantage
    return jnp.where(rollout.row_mask & (group_count(rollout) == 1), reward, advantage)

  return stateless(update, min_group_size=2 if lone == "zero" else 1, takes="n")
