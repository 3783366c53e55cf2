"""Log-ratios of tokens and of rows with 0 where nothing counts, and the clipped loss on them: shared by the terms."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlvr_jax.core import Rollout, check_number


def log1p(x: Any) -> Any:
  """log(1 + x), -inf from x = -1 down; in double precision for a Python number, traced where `x` is."""
  if isinstance(x, jax.core.Tracer):
    return jnp.log1p(jnp.maximum(x, -1.0))
  return math.log1p(x) if x > -1 else -math.inf


def log_ratio(current: Any, rollout: Rollout, view: str = "old") -> Float[Array, "n t"]:
  """log π - log of the policy of `view`; 0 off the loss mask."""
  mask = rollout.loss_mask
  return jnp.where(mask, current["log_probs"], 0.0) - jnp.where(mask, rollout.stats[f"{view}.log_probs"], 0.0)


def row_sum(values: Float[Array, "n t"], mask: Bool[Array, "n t"]) -> Float[Array, "n 1"]:
  """Sum over the tokens of the row that count; a microbatch holds whole rows, so it is never a part."""
  return jnp.sum(jnp.where(mask, values, 0.0), axis=1, keepdims=True)


def row_mean(values: Float[Array, "n t"], mask: Bool[Array, "n t"]) -> Float[Array, "n 1"]:
  """Mean over the tokens of the row that count; 0 where none does."""
  return row_sum(values, mask) / jnp.maximum(jnp.sum(mask, axis=1, keepdims=True), 1)


def clip_bounds(name: str, clip_low: Any, clip_high: Any, dual_clip: Any = None) -> tuple[Any, Any, Any]:
  """Logs of the bounds 1 - clip_low, 1 + clip_high and dual_clip. Raises ValueError, as the term `name`."""
  check_number(f"{name}: clip_low", clip_low, minimum=0)
  check_number(f"{name}: clip_high", clip_high, minimum=0)
  if dual_clip is None:
    return log1p(-clip_low), log1p(clip_high), math.inf
  check_number(f"{name}: dual_clip", dual_clip, above=1)
  return log1p(-clip_low), log1p(clip_high), log1p(dual_clip - 1)


def clipped_loss(
  ratio: Float[Array, "n t"],
  advantages: Float[Array, "n t"],
  mask: Bool[Array, "n t"],
  bounds: tuple[Any, Any, Any],
) -> tuple[Float[Array, "n t"], dict[str, Float[Array, "n t"]]]:
  """-min(ρ A, clip(ρ) A) and what was clipped. `ratio` is log ρ, `bounds` are from `clip_bounds`.

  The gradient is that of ρ A where the token is not clipped and 0 where it is; at a bound it is not. `min` and `clip`
  would share it between tied branches there.
  """
  lowest, highest, cap = bounds
  gain, pain = mask & (advantages > 0), mask & (advantages < 0)
  above, below, capped = gain & (ratio > highest), pain & (ratio < lowest), pain & (ratio > cap)
  # Constants go in before the exponential, so that one which overflows leaves no NaN in the gradient.
  bounded = jnp.where(above, highest, jnp.where(below, lowest, jnp.where(capped, cap, ratio)))
  per_token = -jnp.exp(jnp.where(gain | pain, bounded, 0.0)) * jnp.where(mask, advantages, 0.0)
  fraction = (above | below | capped).astype(jnp.float32)
  return per_token, dict(clip_fraction=fraction, clip_fraction_low=below.astype(jnp.float32))
