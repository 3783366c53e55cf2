"""Trajectory balance with a learned partition function: sample answers in proportion to their reward.

  L_i = sg[w_i] (log Z + (1/T_i) Σ_t log π - β A_i - (1/T_i) Σ_t log π_ref)²
  w_i = clip(exp(Σ_t (log π - log π_old)), 1 - ε_low, 1 + ε_high)

log Z is the statistic `log_z` of a head of the model, read at the row's first token that counts, whose context is the
prompt. The residual is 0 for every answer when π is proportional to π_ref exp(β A) (for answers of one token). The
row's value stands on each of its tokens, so `sequence_mean` gives the mean over rows.

Args:    beta: of the reward. clip_low, clip_high: ε_low and ε_high. length_mean: False sums log-probs over the row.
Peers:   the authors' code averages the prompt's hidden states for log Z; here it is the last one.
Ref:     Zhu et al., FlowRL, arXiv:2509.15207.
"""

import jax
import jax.numpy as jnp

from rlvr_jax.core import Term, check_number
from rlvr_jax.objectives.ratios import clip_bounds, log_ratio, row_mean, row_sum


def flow_rl(beta: float = 15.0, clip_low: float = 0.2, clip_high: float = 0.2, length_mean: bool = True) -> Term:
  """Metrics: log_z (of rows), weight (w), residual (unsquared)."""
  check_number("flow_rl: beta", beta, above=0)
  lowest, highest, _ = clip_bounds("flow_rl", clip_low, clip_high)
  over_row = row_mean if length_mean else row_sum

  def loss(current, rollout, advantages):
    mask = rollout.loss_mask
    first = mask & (jnp.cumsum(mask, axis=1) == 1)
    log_z = row_sum(current["log_z"], first)
    moved = row_sum(jax.lax.stop_gradient(log_ratio(current, rollout)), mask)
    weight = jnp.exp(jnp.clip(moved, lowest, highest))
    to_reference = over_row(log_ratio(current, rollout, "reference"), mask)
    residual = log_z + to_reference - beta * jnp.where(mask, advantages, 0.0)
    rows = dict(log_z=log_z, weight=weight)
    metrics = {name: jnp.broadcast_to(x, mask.shape) for name, x in rows.items()}
    return weight * residual**2, metrics | dict(residual=residual)

  return Term(loss, needs=("log_probs", "log_z", "old.log_probs", "reference.log_probs", "advantages"))
