"""Only the tokens at which the policy is least certain stay in the loss.

  keep_{i,t} = 1[H_{i,t} >= quantile_{1 - share} of H over all loss tokens of the batch]

The quantile is that of torch.quantile: of N sorted values, the one at position (1 - share)(N - 1), interpolated between
its neighbours. N counts the tokens that are in the loss so far, on all devices. Ties with it stay. share=1 keeps all.

Args:
  share:   of the tokens, to stay.
  view:    whose entropy: "old", the policy before the update, or "behaviour", if the caller supplies it.
  divisor: "kept": the others leave the loss, and what it is divided by, and no term pulls at them; "all": their
           credit is 0 and they are still counted, so the loss is about `share` as large (paper, TRL). Then the credit
           must be per token.

Ref: Wang et al., Beyond the 80/20 Rule, arXiv:2506.01939, eq. 5.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlvr_jax.core import Rollout, Transform, check_keys, check_number, masked
from rlvr_jax.credit.chain import stateless


def quantile(values: Float[Array, "*s"], mask: Bool[Array, "*s"], share: Float[Array, ""]) -> Float[Array, ""]:
  """The quantile of `values` where `mask`, linear between neighbours; inf where the mask is empty."""
  ordered = jnp.sort(jnp.where(mask, values, jnp.inf).ravel())  # what is masked out comes last
  position = share * (jnp.maximum(jnp.sum(mask), 1) - 1)
  low = jnp.floor(position)
  below, above = ordered[low.astype(jnp.int32)], ordered[jnp.ceil(position).astype(jnp.int32)]
  return jnp.where(below == above, below, below + (position - low) * (above - below))


def entropy_mask(share: float = 0.2, view: str = "old", divisor: str = "kept") -> Transform:
  check_number("entropy_mask: share", share, above=0, maximum=1)
  check_keys("entropy_mask: view", [view], ["old", "behaviour"])
  check_keys("entropy_mask: divisor", [divisor], ["kept", "all"])
  need = f"{view}.entropy"

  def update(credit: Float[Array, "*nt"], rollout: Rollout) -> tuple[Float[Array, "*nt"], Rollout]:
    mask, entropy = rollout.loss_mask, rollout.stats[need]
    keep = mask & (entropy >= quantile(entropy, mask, 1 - jnp.asarray(share, jnp.float32)))
    if divisor == "all":
      return jnp.where(keep, credit, 0.0), rollout
    return masked(credit, rollout.row_mask if credit.ndim == 1 else keep), rollout.keeping(keep)

  return stateless(update, needs=(need,), takes="n t" if divisor == "all" else None)
