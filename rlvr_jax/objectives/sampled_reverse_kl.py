"""Reverse KL to a teacher from the sampled tokens alone, per token.

  L_t = sg[w_t d_t] log π,    d_t = log π - log T

On tokens of π, its expected gradient is that of KL(π ‖ T): the policy gradient with advantage -d_t. Only its gradient
means something; the metric `kl` estimates the divergence.

Args:  view: whose log-probs of the sampled tokens T are. max_ratio: c in w_t = min(π/π_old, c), which corrects for
       tokens of π_old; None: w_t = 1.
Peers: TRL's `sampled_token`; Thinking Machines' on-policy distillation puts -d_t in the advantages instead.
Ref:   Gu et al., MiniLLM, arXiv:2306.08543; Hübotter et al., SDPO, arXiv:2601.20802 (the ratio, c = 2).
"""

import jax
import jax.numpy as jnp

from rlvr_jax.core import Term, check_number
from rlvr_jax.objectives.ratios import log_ratio


def sampled_reverse_kl(view: str = "teacher", max_ratio: float | None = None) -> Term:
  """Metric: kl (d)."""
  if max_ratio is not None:
    check_number("sampled_reverse_kl: max_ratio", max_ratio, minimum=1)

  def loss(current, rollout, advantages):
    del advantages
    d = weight = jax.lax.stop_gradient(log_ratio(current, rollout, view))
    if max_ratio is not None:
      ratio = jnp.exp(jax.lax.stop_gradient(log_ratio(current, rollout)))
      weight = d * jnp.minimum(ratio, max_ratio)
    return weight * jnp.where(rollout.loss_mask, current["log_probs"], 0.0), dict(kl=d)

  return Term(loss, needs=("log_probs", f"{view}.log_probs") + (() if max_ratio is None else ("old.log_probs",)))
