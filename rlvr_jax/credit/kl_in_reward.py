"""The reward less the divergence from the reference policy, estimated on the sampled tokens.

  r ← r - β sum_t k(log π_old, log π_ref)_t        credit per row
  r_t ← r_t - β k(log π_old, log π_ref)_t          credit per token

With k1 = log π_old - log π_ref this is exactly the reverse-KL-regularised objective: k1 has no gradient of its own in
expectation, so all of it belongs in the reward. k2 and k3 have one, which a reward leaves out: with them the gradient
is biased (k3, for which E[k3] is the same KL, lacks the gradient of KL(π_ref ‖ π)). In a loss the choice is another.

Args:
  coef:      β; 0 leaves the credit bit for bit as it was.
  estimator: "k1", or "k2" or "k3" with the bias above.

Peers:  TRL's RLOO, OpenRLHF (which warns about k2 and k3 here), verl `use_kl_in_reward`.
Ref:    Ahmadian et al., Back to Basics, arXiv:2402.14740, eq. 3; Schulman, Approximating KL divergence (2020).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_keys, check_number, masked
from rlvr_jax.credit.actions import action_tokens
from rlvr_jax.credit.chain import stateless
from rlvr_jax.distill import k1, k2, k3

_ESTIMATORS = dict(k1=k1, k2=k2, k3=k3)


def kl_in_reward(coef: float, estimator: str = "k1") -> Transform:
  check_number("kl_in_reward: coef", coef, minimum=0)
  check_keys("kl_in_reward: estimator", [estimator], _ESTIMATORS)

  def update(credit: Float[Array, "*nt"], rollout: Rollout) -> Float[Array, "*nt"]:
    actions = action_tokens(rollout)
    old, reference = (masked(rollout.stats[f"{view}.log_probs"], actions) for view in ("old", "reference"))
    kl = _ESTIMATORS[estimator](old, reference)
    kl, counts = (jnp.sum(kl, axis=1), rollout.row_mask) if credit.ndim == 1 else (kl, actions)
    return jnp.where(counts, credit - coef * kl, 0.0)

  return stateless(update, needs=("old.log_probs", "reference.log_probs"))
