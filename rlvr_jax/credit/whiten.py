"""Credit shifted to mean 0 and scaled to variance 1 over the batch.

  A' = (A - m) / sqrt(v + eps)            floor="add":   verl, TRL, SkyRL, slime with ddof=1
  A' = (A - m) / sqrt(max(v, eps))        floor="clamp": OpenRLHF, NeMo RL with ddof=0
  A' = (A - m) / sqrt(...) + m            with shift=False

  m = sum_i w_i A_i / W,   v = sum_i w_i (A_i - m)² / (W - ddof),   W = sum_i w_i

over="tokens" counts every token of the loss mask once; over="rows" counts every row once, whatever its length. For
credit per row ["n"] that is w = its tokens in the loss, or 1 for a row with a verdict; for credit per token ["n t"],
w = 1 or 1/(the row's tokens in the loss). So `whiten` may stand on either side of `spread_over_tokens`, with the same
result where no filter came first. Equal credit everywhere gives exactly 0 (m with shift=False); a group of equal
rewards is shifted like the rest. What is not counted gets 0 and is not read.

Ref: Hu et al., REINFORCE++, arXiv:2501.03262, sec. 3; Huang et al., The N+ Implementation Details, arXiv:2403.17031.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_keys, check_number
from rlvr_jax.credit.chain import stateless


def batch_weights(credit: Float[Array, "*nt"], rollout: Rollout, over: str) -> Float[Array, "*nt"]:
  """How often each number counts in a statistic over all tokens or all rows."""
  mask = rollout.loss_mask
  length = jnp.sum(mask, axis=1, dtype=jnp.float32)
  if credit.ndim == 1:
    return jnp.where(rollout.row_mask, length if over == "tokens" else 1.0, 0.0)
  return mask / (1.0 if over == "tokens" else jnp.maximum(length, 1.0)[:, None])


def standardise(
  values: Float[Array, "*nt"],
  weight: Float[Array, "*nt"],
  denominator: Callable[[Array], Array],
  ddof: int,
  shift: bool = True,
  mean: float | None = None,
) -> Float[Array, "*nt"]:
  """(values - mean) / denominator(variance) where weight > 0; exactly 0 where all values are equal.

  Args: denominator: variance -> what to divide by; shift=False adds the mean again; mean: if it is known beforehand.
  """
  counts = weight > 0
  values = jnp.where(counts, values, 0.0)
  total = jnp.sum(weight)
  if mean is None:
    mean = jnp.sum(weight * values) / jnp.where(total > 0, total, 1.0)
  deviation = jnp.where(counts, values - mean, 0.0)
  divisor = total - ddof
  variance = jnp.sum(weight * deviation**2) / jnp.where(divisor > 0, divisor, 1.0)
  differ = jnp.max(values, where=counts, initial=-jnp.inf) > jnp.min(values, where=counts, initial=jnp.inf)
  usable = differ & (divisor > 0)
  whitened = jnp.where(usable, deviation, 0.0) / jnp.where(usable, denominator(variance), 1.0)
  return whitened if shift else jnp.where(counts, whitened + mean, 0.0)


def whiten(eps: float = 1e-8, ddof: int = 1, over: str = "tokens", shift: bool = True, floor: str = "add") -> Transform:
  """Args: ddof is 0 (population) or 1 (sample); shift=False gives the mean back; floor says how eps enters."""
  check_number("whiten: eps", eps, minimum=0)
  if ddof not in (0, 1):
    raise ValueError(f"whiten: ddof must be 0 or 1, got {ddof}")
  check_keys("whiten: over", [over], ["tokens", "rows"])
  check_keys("whiten: floor", [floor], ["add", "clamp"])

  def denominator(variance):
    return jnp.sqrt(variance + eps if floor == "add" else jnp.maximum(variance, eps))

  def update(credit: Float[Array, "*nt"], rollout: Rollout) -> Float[Array, "*nt"]:
    return standardise(credit, batch_weights(credit, rollout, over), denominator, ddof, shift)

  return stateless(update)
