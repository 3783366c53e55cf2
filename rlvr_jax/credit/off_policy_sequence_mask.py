"""Rows of negative credit that the policy has moved away from get no credit.

  A_t ← 0        where A_t < 0 and mean_t (log μ - log π_old) > delta

μ is the sampler, so the mean, over the row's action tokens, counts staleness and numerical mismatch alike. Positive
credit is left alone: what was good is still worth learning. The tokens stay in the loss mask and in its divisor.

Peers:    TRL `off_policy_mask_threshold`, which uses the sampler's log-probs since TRL#4857.
Differs:  judged once, before the update, rather than anew at each minibatch.
Ref:      DeepSeek-AI, DeepSeek-V3.2, arXiv:2512.02556, sec. 3.1.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_number
from rlvr_jax.credit.actions import action_tokens, log_ratio, num_actions
from rlvr_jax.credit.chain import stateless


def off_policy_sequence_mask(delta: float) -> Transform:
  """Args: delta, in nats per token."""
  check_number("off_policy_sequence_mask: delta", delta, minimum=0)

  def update(credit: Float[Array, "n t"], rollout: Rollout) -> Float[Array, "n t"]:
    away = log_ratio(rollout.stats["behaviour.log_probs"], rollout.stats["old.log_probs"], rollout)
    far = jnp.sum(away, axis=1) / jnp.maximum(num_actions(rollout), 1.0) > delta
    return jnp.where(action_tokens(rollout) & ~((credit < 0) & far[:, None]), credit, 0.0)

  return stateless(update, needs=("old.log_probs", "behaviour.log_probs"), takes="n t")
