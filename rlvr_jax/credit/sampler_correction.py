"""Credit weighted by how much likelier the train step finds a sampled token than the sampler did.

  A_t ← w_t A_t        d_t = log π_old - log μ, on action tokens
  token:      w_t = clip(exp d_t, low, high)                  mode="truncate" (TIS)
              w_t = exp d_t · 1[low <= exp d_t <= high]       mode="mask" (IcePop)
  sequence:   the same with exp(sum_t d_t), one number per row
  geometric:  w_t = exp d_t · 1[low <= exp(mean_t d_t) <= high]       mode="mask" only: a mean ratio is no weight

The weight is detached by nature, since credit has no gradient. A token whose weight is 0 has no credit but stays in the
loss mask and in its divisor, and terms that read no credit, such as a KL penalty, are not weighted. Not for a policy
loss whose ratio is already taken to the sampler (old := behaviour), which would count the weight twice. Without a
difference between sampler and train step the credit is bit for bit what it was, provided low <= 1 <= high.

Args:
  level:         "token", "sequence" or "geometric".
  mode:          "truncate" or "mask".
  low, high:     bounds on the ratio.
  max_log_ratio: |d_t|, and its sum, are clipped to this before the exponential.
  normalise:     divides the weights by their mean over the loss tokens of the batch.

Peers:  verl: token, truncate, high 2, max_log_ratio 20; TRL: sequence, mask, high 3; OpenRLHF, NeMo RL "seq-mask-tis":
        geometric with low .999, high 1.002.
Ref:    Yao et al., Your Efficient RL Framework Secretly Brings You Off-Policy RL Training (TIS, 2025); Ling Team, Every
        Step Evolves (IcePop), arXiv:2510.18855.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Stat, Transform, check_keys, check_number
from rlvr_jax.credit.actions import action_tokens, log_ratio, num_actions
from rlvr_jax.credit.chain import stateless


def sampler_correction(
  level: str = "token",
  mode: str = "truncate",
  low: float = 0.0,
  high: float = 2.0,
  max_log_ratio: float = 20.0,
  normalise: bool = False,
) -> Transform:
  check_keys("sampler_correction: level", [level], ["token", "sequence", "geometric"])
  check_keys("sampler_correction: mode", [mode], ["truncate", "mask"])
  check_number("sampler_correction: low", low, minimum=0)
  check_number("sampler_correction: high - low", high - low, minimum=0)
  check_number("sampler_correction: max_log_ratio", max_log_ratio, above=0)
  if level == "geometric" and mode == "truncate":
    raise ValueError("sampler_correction: level='geometric' needs mode='mask', got 'truncate'")

  def update(credit: Float[Array, "n t"], rollout: Rollout) -> Float[Array, "n t"]:
    def ratio(log_ratio):
      return jnp.exp(jnp.clip(log_ratio, -max_log_ratio, max_log_ratio))

    d = log_ratio(rollout.stats["old.log_probs"], rollout.stats["behaviour.log_probs"], rollout)
    weight = judged = ratio(d)
    if level == "sequence":
      weight = judged = ratio(jnp.sum(d, axis=1, keepdims=True))
    if level == "geometric":
      judged = ratio(jnp.sum(d, axis=1) / jnp.maximum(num_actions(rollout), 1.0))[:, None]
    if mode == "truncate":
      weight = jnp.clip(weight, low, high)
    else:
      weight = jnp.where((judged >= low) & (judged <= high), weight, 0.0)
    if normalise:
      mean = Stat.over(jnp.broadcast_to(weight, d.shape), rollout.loss_mask).mean()
      weight = weight / jnp.where(mean > 0, mean, 1.0)
    return jnp.where(action_tokens(rollout), weight * credit, 0.0)

  return stateless(update, needs=("old.log_probs", "behaviour.log_probs"), takes="n t")
