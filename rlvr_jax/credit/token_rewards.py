"""The row's reward where it is received: on the row's last action token, 0 on all others.

  r_t = r 1[t is the last action token]

For recursions over time (`discounted_return`, `gae`), which carry it back. A row without action tokens receives
nothing.

Ref: Ziegler et al., Fine-Tuning Language Models from Human Preferences, arXiv:1909.08593.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform
from rlvr_jax.credit.actions import action_tokens
from rlvr_jax.credit.chain import stateless


def token_rewards() -> Transform:
  def update(reward: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n t"]:
    actions = action_tokens(rollout)
    still_to_come = jnp.cumsum(actions[:, ::-1], axis=1)[:, ::-1]  # this token counted
    return jnp.where(actions & (still_to_come == 1), reward[:, None], 0.0)

  return stateless(update, takes="n")
