"""Clipped policy loss on the ratio of the whole row, the geometric mean of its token ratios.

  s_i = exp((1/T_i) Σ_t (log π - log π_old))
  L_t = -min(s_t A_t, clip(s_t, 1 - ε_low, 1 + ε_high) A_t)
  s_t = s_i                        form "sequence"
  s_t = sg[s_i] π_t / sg[π_t]      form "token"

The row's value stands on each of its tokens, so `sequence_mean` gives the mean over rows. Values agree between the
forms. So do gradients when the advantage is the same on all tokens of a row; "token" is for advantages that are not.
With rows of one token both are `clipped_surrogate`.

Args:  clip_low, clip_high: ε_low and ε_high, as distances from 1; much smaller than for token ratios.
Peers: TRL, NeMo-RL, OpenRLHF and slime have "sequence", verl and SkyRL "token" (log s_t clamped to at most 10 there).
       All are meant for `sequence_mean`; with `sequence_sum` this is LUSPO (Liu et al., arXiv:2602.05261).
Ref:   Zheng et al., GSPO, arXiv:2507.18071.
"""

import jax
import jax.numpy as jnp

from rlvr_jax.core import Term, check_keys
from rlvr_jax.objectives.ratios import clip_bounds, clipped_loss, log_ratio, row_mean


def gspo(clip_low: float = 3e-4, clip_high: float = 4e-4, form: str = "sequence") -> Term:
  """Metrics: clip_fraction, clip_fraction_low, ratio_max (of rows)."""
  bounds = clip_bounds("gspo", clip_low, clip_high)
  check_keys("gspo: form", [form], ("sequence", "token"))

  def loss(current, rollout, advantages):
    mask = rollout.loss_mask
    token = log_ratio(current, rollout)
    ratio = row_mean(token, mask)
    if form == "token":
      ratio = jax.lax.stop_gradient(ratio) + (token - jax.lax.stop_gradient(token))
    ratio = jnp.where(mask, ratio, 0.0)
    per_token, metrics = clipped_loss(ratio, advantages, mask, bounds)
    return per_token, metrics | dict(ratio_max=jnp.exp(ratio))

  return Term(loss, needs=("log_probs", "old.log_probs", "advantages"))
