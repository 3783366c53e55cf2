"""Policy gradient that drops a token once its probability, rather than its ratio, has moved far enough.

  L_t = -m_t sg[min(ρ_t, cap)] A_t log π,    ρ_t = π / μ
  m_t = 0 if (A_t > 0 and π - μ > δ_high) or (A_t <= 0 and π - μ < -δ_low), 1 otherwise

|π - μ| at the sampled token is the total variation between the two coins "this token or another". A rare token may so
grow by a large factor, which a bound on the ratio forbids. μ is the policy of `view`.

Args:  delta_low, delta_high: in probability, in [0, 1]; 1 never drops.
       cap: bound of the weight; infinite: none.
       view: "old", the policy before the update, or "behaviour", the sampler's own log-probs.
Peers: verl has cap 20 and π_old; SkyRL differentiates ρ_t A_t, the same gradient with an infinite cap; prime-rl takes
       the sampler's log-probs.
Ref:   DPPO, arXiv:2602.04879 (the binary total-variation mask).
"""

import jax
import jax.numpy as jnp

from rlvr_jax.core import Term, check_keys, check_number
from rlvr_jax.objectives.ratios import log_ratio


def dppo_tv(delta_low: float = 0.2, delta_high: float = 0.2, cap: float = 20.0, view: str = "old") -> Term:
  """Metrics: clip_fraction (of tokens dropped), ratio_max."""
  check_number("dppo_tv: delta_low", delta_low, minimum=0, maximum=1)
  check_number("dppo_tv: delta_high", delta_high, minimum=0, maximum=1)
  check_number("dppo_tv: cap", cap, minimum=1)
  check_keys("dppo_tv: view", [view], ("old", "behaviour"))

  def loss(current, rollout, advantages):
    advantages = jnp.where(rollout.loss_mask, advantages, 0.0)
    log_probs = jnp.where(rollout.loss_mask, current["log_probs"], 0.0)
    fixed, ratio = jax.lax.stop_gradient((log_probs, log_ratio(current, rollout, view)))
    moved = jnp.exp(fixed) - jnp.exp(fixed - ratio)
    dropped = jnp.where(advantages > 0, moved > delta_high, moved < -delta_low)
    ratio = jnp.exp(jnp.where(dropped | (advantages == 0), 0.0, ratio))
    weight = jnp.where(dropped, 0.0, jnp.minimum(ratio, cap))
    return -weight * advantages * log_probs, dict(clip_fraction=dropped.astype(jnp.float32), ratio_max=ratio)

  return Term(loss, needs=("log_probs", f"{view}.log_probs", "advantages"))
