"""Clipped policy loss, per token.

  L_t = -min(ρ_t A_t, clip(ρ_t, 1 - ε_low, 1 + ε_high) A_t),    ρ_t = exp(log π - log π_old)

With `dual_clip` = c the loss of a token with A_t < 0 is at most -c A_t. The gradient is that of ρ_t A_t where the token
is not clipped and 0 where it is; at a bound, ρ_t = 1 included, it is not clipped.

Args:  clip_low, clip_high: ε_low and ε_high, as distances from 1; a huge or infinite one never clips.
       view: "old", the policy before the update, or "behaviour", the sampler's own log-probs: for replayed rows, whose
       sampler was an earlier policy, and for async sampling (then without `sampler_correction`, which is in ρ already).
Peers: verl, OpenRLHF and SkyRL clamp the log-ratio to ±20; here, as in TRL and NeMo-RL, it is not.
       TRL's `delta` is `dual_clip`.
Ref:   Schulman et al., PPO, arXiv:1707.06347; Ye et al. (dual clip), arXiv:1912.09729; Yu et al., DAPO,
       arXiv:2503.14476 (two bounds).
"""

import jax.numpy as jnp

from rlvr_jax.core import Term, check_keys
from rlvr_jax.distill import k3
from rlvr_jax.objectives.ratios import clip_bounds, clipped_loss


def clipped_surrogate(
  clip_low: float = 0.2, clip_high: float = 0.2, dual_clip: float | None = None, view: str = "old"
) -> Term:
  """Metrics: clip_fraction, clip_fraction_low, approx_kl (k3 of KL(old ‖ π)), ratio_max."""
  check_keys("clipped_surrogate: view", [view], ("old", "behaviour"))
  bounds = clip_bounds("clipped_surrogate", clip_low, clip_high, dual_clip)

  def loss(current, rollout, advantages):
    mask = rollout.loss_mask
    old = jnp.where(mask, rollout.stats[f"{view}.log_probs"], 0.0)
    log_probs = jnp.where(mask, current["log_probs"], 0.0)
    per_token, metrics = clipped_loss(log_probs - old, advantages, mask, bounds)
    return per_token, metrics | dict(approx_kl=k3(old, log_probs), ratio_max=jnp.exp(log_probs - old))

  return Term(loss, needs=("log_probs", f"{view}.log_probs", "advantages"))
