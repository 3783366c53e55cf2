"""Credit per token for what the teacher thinks of the tokens that follow.

  d_t = log π_T(y_t) - log π_old(y_t)
  A_t ← A_t + coef · sum_{t' > t} γ^(t' - 1 - t) d_{t'} / sum_{t' > t} γ^(t' - 1 - t)        over action tokens

The mean over the later tokens rather than their sum, so that long rows do not weigh more (length normalisation); the
last token gets 0. The token's own d_t is left out (single-step decomposition): its part of the gradient is known
without sampling, and belongs to an objective term on the whole distributions, the reverse KL to the same view.

Args:
  view:             of the teacher; its log-probs come from `rollout.stats[view + ".log_probs"]`.
  discount:         γ.
  single_step:      False: the token's own d_t is in the return, and no such term is needed.
  length_normalise: False: the sum.
  coef, add:        as in `teacher_log_ratio`.

Peers:    TRL's MiniLLM discounts by γ^t' where the mean is off, which weighs late tokens down by their place.
Differs:  the paper's sampling from a mixture with the teacher, and its weights, are not here.
Ref:      Gu et al., MiniLLM, arXiv:2306.08543, sec. 2.2.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_number
from rlvr_jax.credit.actions import action_tokens
from rlvr_jax.credit.chain import stateless
from rlvr_jax.credit.discounted_return import discounted
from rlvr_jax.credit.teacher_log_ratio import teacher_ratio


def minillm_return(
  view: str = "teacher",
  discount: float = 1.0,
  single_step: bool = True,
  length_normalise: bool = True,
  coef: float = 1.0,
  add: bool = True,
) -> Transform:
  check_number("minillm_return: discount", discount, minimum=0, maximum=1)

  def update(credit: Float[Array, "*nt"], rollout: Rollout) -> Float[Array, "n t"]:
    actions, gamma = action_tokens(rollout), jnp.asarray(discount, jnp.float32)

    def later(values):
      return jax.vmap(lambda x, keep: discounted(x, keep, gamma, own=not single_step))(values, actions)

    returns = later(teacher_ratio(rollout, view))
    if length_normalise:
      weight = later(jnp.ones_like(returns))
      returns = returns / jnp.where(weight > 0, weight, 1.0)
    return jnp.where(actions, credit + coef * returns, 0.0) if add else coef * returns

  needs = (f"{view}.log_probs", "old.log_probs")
  return stateless(update, needs=needs, takes="n t" if add else None)
