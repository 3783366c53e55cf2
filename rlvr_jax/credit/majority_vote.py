"""Reward without a label: 1 for the rows that give the most frequent answer of their group.

  r_i = 1[a_i = mode_{j in group} a_j]        a: `rollout.answer_id`

Rows whose answer could not be read (-1) do not vote and never win; a tie goes to the smallest id. A lone row with an
answer wins. Replaces the credit it is given. Rows without a verdict do not vote and get 0.

Raises: ValueError, when traced, if the rollout has no answer_id.
Ref:    Zuo et al., TTRL: Test-Time Reinforcement Learning, arXiv:2504.16084.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, group_max
from rlvr_jax.credit.chain import stateless


def majority_vote() -> Transform:
  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    del reward
    answer, group = rollout.answer_id, rollout.group_id
    if answer is None:
      raise ValueError("majority_vote needs rollout.answer_id, got None: no verifier of this run reads answers")
    votes = rollout.row_mask & (answer >= 0)
    agree = (answer[:, None] == answer[None, :]) & (group[:, None] == group[None, :]) & votes[None, :]
    count = jnp.where(votes, jnp.sum(agree, axis=1, dtype=jnp.float32), 0.0)
    leads = votes & (count == group_max(count, rollout))
    smallest = jax.ops.segment_min(jnp.where(leads, answer, jnp.iinfo(answer.dtype).max), group, rollout.num_groups)
    return (leads & (answer == smallest[group])).astype(jnp.float32)

  return stateless(update, takes="n")
