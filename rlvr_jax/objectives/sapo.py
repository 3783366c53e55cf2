"""Policy loss with a smooth gate in place of clipping.

  L_t = -(4/τ) σ(τ (ρ_t - 1)) A_t,    τ = τ_positive if A_t > 0, τ_negative otherwise

The gradient is that of ρ_t A_t times 4 σ (1 - σ), which is 1 at ρ_t = 1 and falls to 0 on both sides, faster with a
larger τ. As τ goes to 0 it is the unclipped ratio loss, up to a constant.

Args:  tau_positive, tau_negative: sharpness of the gate, > 0; the larger one for losses damps what destabilises.
Peers: TRL and verl agree.
Ref:   Gao et al., SAPO, arXiv:2511.20347.
"""

import jax.numpy as jnp

from rlvr_jax.core import Term, check_number
from rlvr_jax.objectives.ratios import log_ratio

_SATURATED = 60.0  # of log ρ: far beyond where the gate has closed to 0 in float32, and exp of it is still finite


def sapo(tau_positive: float = 1.0, tau_negative: float = 1.05) -> Term:
  """Metrics: gate (4 σ (1 - σ)), ratio_max."""
  check_number("sapo: tau_positive", tau_positive, above=0)
  check_number("sapo: tau_negative", tau_negative, above=0)

  def loss(current, rollout, advantages):
    advantages = jnp.where(rollout.loss_mask, advantages, 0.0)
    ratio = jnp.exp(jnp.minimum(log_ratio(current, rollout), _SATURATED))
    tau = jnp.where(advantages > 0, tau_positive, tau_negative)
    sigma = 1 / (1 + jnp.exp(-jnp.minimum(tau * (ratio - 1), _SATURATED)))
    return -4 / tau * sigma * advantages, dict(gate=4 * sigma * (1 - sigma), ratio_max=ratio)

  return Term(loss, needs=("log_probs", "old.log_probs", "advantages"))
