"""Penalty for leaving the reference policy, per token.

  L_t = k(log π, log ref)         with k one of k1, k2, k3, k3+ of `distill`
  L_t = ρ_t k(log π, log ref)     with `unbiased`;  ρ_t = exp(log π - log π_old)

On tokens from π, the expected gradient of k3 is that of KL(ref ‖ π), of k2 and k3+ that of KL(π ‖ ref), of k1 zero.
With `unbiased`, ρ k3 and ρ k1 have that of KL(π ‖ ref), on tokens from π_old too; ρ k2 and ρ k3+ do not and are
refused.

Peers: k3+ is verl's: the value of k3 with the gradient of k2. The ratio is TRL's `use_bias_correction_kl`.
Ref:   Shao et al., DeepSeekMath, arXiv:2402.03300, eq. 4 (k3).
"""

import jax.numpy as jnp

from rlvr_jax import distill
from rlvr_jax.core import Term, check_keys

_ESTIMATORS = {"k1": distill.k1, "k2": distill.k2, "k3": distill.k3, "k3+": distill.k3_plus}


def kl_to_reference(estimator: str = "k3", unbiased: bool = False) -> Term:
  """Metric: kl, the estimator without the ratio."""
  check_keys("kl_to_reference: estimator", [estimator], _ESTIMATORS)
  if estimator == "k1" and not unbiased:
    raise ValueError("kl_to_reference: estimator 'k1' has no gradient on average; use 'k2', 'k3' or unbiased=True")
  if estimator in ("k2", "k3+") and unbiased:
    raise ValueError(
      f"kl_to_reference: unbiased needs estimator 'k1' or 'k3', got {estimator!r}, which stays biased with a ratio"
    )
  divergence = _ESTIMATORS[estimator]

  def loss(current, rollout, advantages):
    del advantages
    mask = rollout.loss_mask
    log_probs = jnp.where(mask, current["log_probs"], 0.0)
    kl = divergence(log_probs, jnp.where(mask, rollout.stats["reference.log_probs"], 0.0))
    if not unbiased:
      return kl, dict(kl=kl)
    ratio = jnp.exp(log_probs - jnp.where(mask, rollout.stats["old.log_probs"], 0.0))
    return ratio * kl, dict(kl=kl)

  return Term(loss, needs=("log_probs", "reference.log_probs") + (("old.log_probs",) if unbiased else ()))
