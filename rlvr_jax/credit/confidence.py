"""Reward without a label: how certain the policy was of what it wrote, the mean over the row's action tokens.

  self_certainty:    r_i = mean_t KL(uniform ‖ p_t) = mean_t [-log V - (1/V) sum_v log p_t(v)]     (Intuitor)
  negative_entropy:  r_i = -mean_t H(p_t)                                                        (entropy minimisation)
  log_probs:         r_i = mean_t log p_t(y_t)

In nats. A row without action tokens gets 0. Replaces the credit it is given; rows without a verdict get 0.

Args:
  kind: which of the three.
  view: whose certainty: "old", the policy before the update, or "reference", which cannot be talked into it.

Ref: Zhao et al., Learning to Reason without External Rewards (Intuitor), arXiv:2505.19590; Agarwal et al., The
     Unreasonable Effectiveness of Entropy Minimization, arXiv:2505.15134.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_keys
from rlvr_jax.credit.actions import action_tokens, num_actions
from rlvr_jax.credit.chain import stateless

_KINDS = dict(self_certainty=(1.0, "self_certainty"), negative_entropy=(-1.0, "entropy"), log_probs=(1.0, "log_probs"))


def confidence(kind: str = "self_certainty", view: str = "old") -> Transform:
  check_keys("confidence: kind", [kind], _KINDS)
  sign, statistic = _KINDS[kind]
  need = f"{view}.{statistic}"

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    del reward
    total = jnp.sum(jnp.where(action_tokens(rollout), rollout.stats[need], 0.0), axis=1)
    return sign * total / jnp.maximum(num_actions(rollout), 1.0)

  return stateless(update, needs=(need,), takes="n")
