"""Each reward component relative to its group, then their weighted sum relative to the batch.

  z_i^c = (r_i^c - mean r^c) / (std r^c + eps)         over the group, per component c of `rollout.rewards`
  a_i   = sum_c w_c z_i^c
  A_i   = a_i / (std a + eps)                          over the rows of the batch      (whiten="sequence")
  A_i   = (a_i - m) / (std a + eps)                    over the tokens of the batch    (whiten="token")

Normalising before adding keeps components apart that differ in scale: (0, 1) and (1, 0) do not collapse to one
advantage. The mean of a over rows is 0 by construction and is not subtracted, so a group in which no component varies
gets exactly 0; over tokens a row counts by its length, the mean is not 0, and such a group gets -m/(std + eps). A lone
row counts as such a group. Replaces the credit it is given. Rows without a verdict get 0 and have no part.

Args:
  weights: component -> weight; the components it names are all that is read.
  whiten:  "sequence" or "token".
  eps:     added to every standard deviation.
  ddof:    0 (population) or 1 (sample), of every standard deviation.

Raises: ValueError, when traced, naming a component the rollout lacks.
Peers:  TRL: "sequence", ddof=1, eps 1e-4; NeMo RL: "sequence", ddof=1, no eps; verl: "token", ddof=1.
Ref:    Liu et al., GDPO, arXiv:2601.05242.
"""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_keys, check_number, group_mean, group_std
from rlvr_jax.credit.chain import stateless
from rlvr_jax.credit.whiten import batch_weights, standardise


def gdpo(weights: Mapping[str, float], whiten: str = "sequence", eps: float = 1e-6, ddof: int = 0) -> Transform:
  check_keys("gdpo: whiten", [whiten], ["sequence", "token"])
  check_number("gdpo: eps", eps, minimum=0)
  if ddof not in (0, 1):
    raise ValueError(f"gdpo: ddof must be 0 or 1, got {ddof}")
  if not weights:
    raise ValueError("gdpo: weights must name at least one component of rollout.rewards, got none")
  over = {"sequence": "rows", "token": "tokens"}[whiten]

  def component(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    std = group_std(reward, rollout, ddof)
    counts = rollout.row_mask & (std > 0)
    return jnp.where(counts, reward - group_mean(reward, rollout), 0.0) / jnp.where(counts, std + eps, 1.0)

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    del reward
    check_keys("gdpo: weights: rollout.rewards", weights, rollout.rewards)
    summed = sum(weight * component(rollout.rewards[name], rollout) for name, weight in weights.items())
    often = batch_weights(summed, rollout, over)
    return standardise(summed, often, lambda v: jnp.sqrt(v) + eps, ddof, mean=0.0 if whiten == "sequence" else None)

  return stateless(update, min_group_size=2)
