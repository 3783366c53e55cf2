"""Clipped policy loss, per token.

  L_t = -min(ρ_t A_t, clip(ρ_t, 1 - ε_low, 1 + ε_high) A_t),    ρ_t = exp(log π - log π_old)

With `dual_clip` = c the loss of a token with A_t < 0 is at most -c A_t. The gradient is that of ρ_t A_t where the token
is not clipped and 0 where it is; at a bound, ρ_t = 1 included, it is not clipped. `min` and `clip` would share it
between tied branches there.

Args:  clip_low, clip_high: ε_low and ε_high, as distances from 1; a huge or infinite one never clips.
Peers: verl, OpenRLHF and SkyRL clamp the log-ratio to ±20; here, as in TRL and NeMo-RL, it is not.
       TRL's `delta` is `dual_clip`.
Ref:   Schulman et al., PPO, arXiv:1707.06347; Ye et al. (dual clip), arXiv:1912.09729; Yu et al., DAPO,
       arXiv:2503.14476 (two bounds).
"""

import math

import jax.numpy as jnp

from rlvr_jax.core import Term
from rlvr_jax.distill import k3


def clipped_surrogate(clip_low: float = 0.2, clip_high: float = 0.2, dual_clip: float | None = None) -> Term:
  """Metrics: clip_fraction, clip_fraction_low, approx_kl (k3 of KL(old ‖ π)), ratio_max."""
  if not clip_low >= 0 or not clip_high >= 0:
    raise ValueError(f"clipped_surrogate: clip_low and clip_high must be >= 0, got {clip_low} and {clip_high}")
  if dual_clip is not None and not dual_clip > 1:
    raise ValueError(f"clipped_surrogate: dual_clip must be > 1, got {dual_clip}")
  lowest = math.log1p(-clip_low) if clip_low < 1 else -math.inf
  highest = math.log1p(clip_high)
  cap = math.inf if dual_clip is None else math.log(dual_clip)

  def loss(current, rollout, advantages):
    mask = rollout.loss_mask
    old = jnp.where(mask, rollout.stats["old.log_probs"], 0.0)
    log_probs = jnp.where(mask, current["log_probs"], 0.0)
    log_ratio = log_probs - old
    gain, pain = mask & (advantages > 0), mask & (advantages < 0)
    above, below, capped = gain & (log_ratio > highest), pain & (log_ratio < lowest), pain & (log_ratio > cap)
    # Constants go in before the exponential, so that one which overflows leaves no NaN in the gradient.
    bounded = jnp.where(above, highest, jnp.where(below, lowest, jnp.where(capped, cap, log_ratio)))
    per_token = -jnp.exp(jnp.where(gain | pain, bounded, 0.0)) * jnp.where(mask, advantages, 0.0)
    metrics = dict(
      clip_fraction=(above | below | capped).astype(jnp.float32),
      clip_fraction_low=below.astype(jnp.float32),
      approx_kl=k3(old, log_probs),
      ratio_max=jnp.exp(log_probs - old),
    )
    return per_token, metrics

  return Term(loss, needs=("log_probs", "old.log_probs", "advantages"))
