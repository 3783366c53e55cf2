"""Policy loss on the geometric mean of clipped token ratios.

  L_t = -A_t exp((1/T_i) Σ_t l_t),    l_t = min(log ρ_t, ε) if A_t > 0,  max(log ρ_t, -ε) if A_t < 0

The row's value stands on each of its tokens, so `sequence_mean` gives the mean over rows. A clipped token has no
gradient of its own, but it does not take away that of the others, as a clipped row of `gspo` does.

Args:  clip: ε, on the log-ratio: ratios within exp(±0.4).
Peers: verl's `geo_mean` multiplies by the row's mean advantage, the same where all tokens of a row have one advantage,
       and averages over the rows of its own microbatch.
Ref:   Zhao et al., GMPO, arXiv:2507.20673.
"""

import jax.numpy as jnp

from rlvr_jax.core import Term, check_number
from rlvr_jax.objectives.ratios import log_ratio, row_mean


def gmpo(clip: float = 0.4) -> Term:
  """Metrics: clip_fraction, ratio_max (of rows, after clipping)."""
  check_number("gmpo: clip", clip, minimum=0)

  def loss(current, rollout, advantages):
    mask = rollout.loss_mask
    token = log_ratio(current, rollout)
    gain, pain = mask & (advantages > 0), mask & (advantages < 0)
    above, below = gain & (token > clip), pain & (token < -clip)
    bounded = jnp.where(above, clip, jnp.where(below, -clip, token))
    ratio = jnp.exp(row_mean(jnp.where(gain | pain, bounded, 0.0), mask))
    per_token = -ratio * jnp.where(mask, advantages, 0.0)
    return per_token, dict(
      clip_fraction=(above | below).astype(jnp.float32), ratio_max=jnp.broadcast_to(ratio, mask.shape)
    )

  return Term(loss, needs=("log_probs", "old.log_probs", "advantages"))
