"""A penalty on completions that come near the length limit, added to the reward.

  p(L) = 0                                L <= max - cache
       = ((max - cache) - L) / cache      between
       = -1                               L >= max        (cap=False: the middle line goes on below -1)

L counts the row's action tokens, in tokens, not characters. Rows without a verdict get 0.

Peers:  capped in TRL and OpenRLHF; not capped in verl and NeMo RL, where a row beyond max can reach -1.5 and less.
Ref:    Yu et al., DAPO, arXiv:2503.14476, sec. 3.4.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_number
from rlvr_jax.credit.actions import num_actions
from rlvr_jax.credit.chain import stateless


def overlong_penalty(max_tokens: int, cache_tokens: int, cap: bool = True) -> Transform:
  """Args: max_tokens is the length limit; the penalty grows over the last cache_tokens before it."""
  check_number("overlong_penalty: max_tokens", max_tokens, minimum=1)
  check_number("overlong_penalty: cache_tokens", cache_tokens, minimum=1)  # 0 would divide by it
  check_number("overlong_penalty: max_tokens - cache_tokens", max_tokens - cache_tokens, minimum=0)

  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
    penalty = jnp.minimum((max_tokens - cache_tokens - num_actions(rollout)) / cache_tokens, 0.0)
    penalty = jnp.maximum(penalty, -1.0) if cap else penalty
    return jnp.where(rollout.row_mask, reward + penalty, 0.0)

  return stateless(update, takes="n")
