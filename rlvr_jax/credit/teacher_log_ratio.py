"""Credit per token from a teacher: on-policy distillation as a policy gradient.

  d_t = log π_T(y_t) - log π_old(y_t)
  A_t ← A_t + coef · sum_{t' >= t} γ^(t' - t) d_{t'}        over action tokens, tokens between them costing nothing

γ = 0 is token-level on-policy distillation; γ = 1 the exact gradient of the sequence's KL(π ‖ π_T); between them (γOPD)
the variance does not grow with the length, at the price of a bias that grows as γ falls. A token the teacher's view
does not hold (`rollout.views[view].take` is -1) has d = 0.

Args:
  view:     of the teacher; its log-probs come from `rollout.stats[view + ".log_probs"]`.
  discount: γ.
  coef:     a number; 0 leaves the credit bit for bit as it was.
  add:      True: added to credit per token. False: takes the place of the credit, of either shape.

Ref: Agarwal et al., GKD, arXiv:2306.13649; Lu, On-Policy Distillation, Thinking Machines Lab (2025); γOPD,
     arXiv:2609.16937, for 0 < γ < 1.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_number
from rlvr_jax.credit.actions import action_tokens, log_ratio
from rlvr_jax.credit.chain import stateless
from rlvr_jax.credit.discounted_return import discounted


def teacher_ratio(rollout: Rollout, view: str) -> Float[Array, "n t"]:
  """log π_T - log π_old on action tokens that the teacher sees, 0 elsewhere."""
  ratio = log_ratio(rollout.stats[f"{view}.log_probs"], rollout.stats["old.log_probs"], rollout)
  return jnp.where(rollout.views[view].take >= 0, ratio, 0.0) if view in rollout.views else ratio


def teacher_log_ratio(view: str = "teacher", discount: float = 0.0, coef: float = 1.0, add: bool = True) -> Transform:
  check_number("teacher_log_ratio: discount", discount, minimum=0, maximum=1)

  def update(credit: Float[Array, "*nt"], rollout: Rollout) -> Float[Array, "n t"]:
    actions, gamma = action_tokens(rollout), jnp.asarray(discount, jnp.float32)
    returns = jax.vmap(lambda d, keep: discounted(d, keep, gamma))(teacher_ratio(rollout, view), actions)
    return jnp.where(actions, credit + coef * returns, 0.0) if add else coef * returns

  needs = (f"{view}.log_probs", "old.log_probs")
  return stateless(update, needs=needs, takes="n t" if add else None)
