"""The row's credit on each of its action tokens, undivided.

  A_t = A        for every token that counts in the loss, 0 elsewhere

Ref: Shao et al., DeepSeekMath, arXiv:2402.03300, sec. 4.1.2.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform
from rlvr_jax.credit.chain import stateless


def spread_over_tokens() -> Transform:
  def update(credit: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n t"]:
    return jnp.where(rollout.loss_mask, credit[:, None], 0.0)

  return stateless(update, takes="n")
