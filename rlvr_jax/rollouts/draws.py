"""The sampling distribution, its log-probabilities, and a draw from it that reads the vocabulary only twice.

Order of the filters: temperature, then top-k, then top-p of what top-k left, then min-p; the rest is renormalised.
Transformers applies them in the same order.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int


class Filters(NamedTuple):
  """What turns logits into the distribution that is sampled. None is off; temperature 0 is a point mass on the largest
  logit, of the lowest id where several are largest."""

  temperature: float = 1.0
  top_k: int | None = None
  top_p: float | None = None
  min_p: float | None = None


def _is_swept(temperature: Any) -> bool:
  """Whether a sweep maps over it; then it is taken as positive."""
  return isinstance(temperature, jax.core.Tracer)


def _is_greedy(filters: Filters) -> bool:
  return not _is_swept(filters.temperature) and filters.temperature == 0


def check_filters(filters: Filters) -> Filters:
  """`filters`, or a ValueError naming the setting that is out of range."""
  temperature, top_k, top_p, min_p = filters
  if not _is_swept(temperature) and not 0 <= temperature < math.inf:
    raise ValueError(f"temperature must be finite and >= 0 (0 is greedy), got {temperature}")
  if top_k is not None and (top_k != int(top_k) or top_k < 1):
    raise ValueError(f"top_k must be an integer >= 1, or None for off, got {top_k}")
  if top_p is not None and not 0 < top_p <= 1:
    raise ValueError(f"top_p must be in (0, 1], or None for off, got {top_p}")
  if min_p is not None and not 0 <= min_p < 1:
    raise ValueError(f"min_p must be in [0, 1), or None for off, got {min_p}")
  return filters


def _keep_nucleus(scaled: Float32[Array, "n c"], top_p: float) -> Float32[Array, "n c"]:
  """Drops to -inf all but the likeliest tokens whose mass reaches `top_p`; equally likely tokens stay or go together.

  Bisects the bits of the threshold, which order like the floats they are when none is negative: 30 masked sums, a
  twentieth of the time of a sort on a CPU, and no gather where the vocabulary is sharded.
  """
  weight = jnp.exp(scaled - jnp.max(scaled, axis=-1, keepdims=True))
  bits = jax.lax.bitcast_convert_type(weight, jnp.int32)
  target = top_p * jnp.sum(weight, axis=-1, keepdims=True)

  def halve(_, bounds):
    low, high = bounds  # the mass at or above low reaches the target, that at or above high does not
    middle = low + (high - low) // 2
    reaches = jnp.sum(jnp.where(bits >= middle, weight, 0.0), axis=-1, keepdims=True) >= target
    return jnp.where(reaches, middle, low), jnp.where(reaches, high, middle)

  above_one = jax.lax.bitcast_convert_type(jnp.float32(1.0), jnp.int32) + 1
  floor, _ = jax.lax.fori_loop(0, 30, halve, (jnp.zeros_like(bits[:, :1]), jnp.full_like(bits[:, :1], above_one)))
  return jnp.where(bits >= floor, scaled, -jnp.inf)


def candidates(logits: Float[Array, "n v"], filters: Filters) -> tuple[Float32[Array, "n c"], Int[Array, "n c"] | None]:
  """Scaled logits of the tokens that may be drawn, -inf where a filter dropped one; their ids (None: all, in order).

  Needs temperature > 0. Raises ValueError where top_k exceeds the vocabulary.
  """
  scaled, ids = logits.astype(jnp.float32) / filters.temperature, None
  if filters.top_k is not None:
    if filters.top_k > scaled.shape[-1]:
      raise ValueError(f"top_k must be at most the vocabulary size {scaled.shape[-1]}, got {filters.top_k}")
    scaled, ids = jax.lax.top_k(scaled, filters.top_k)
  if filters.top_p is not None and filters.top_p < 1:
    scaled = _keep_nucleus(scaled, filters.top_p)
  if filters.min_p:
    floor = jnp.max(scaled, axis=-1, keepdims=True) + math.log(filters.min_p)
    scaled = jnp.where(scaled >= floor, scaled, -jnp.inf)
  return scaled, ids


def processed_log_probs(logits: Float[Array, "n v"], filters: Filters) -> Float32[Array, "n v"]:
  """Log-probabilities of the distribution that `draw` samples from, in nats; -inf for a dropped token."""
  if _is_greedy(filters):
    best = jnp.argmax(logits, axis=-1, keepdims=True)
    return jnp.where(jnp.arange(logits.shape[-1])[None] == best, 0.0, -jnp.inf).astype(jnp.float32)
  scaled, ids = candidates(logits, filters)
  log_probs = jax.nn.log_softmax(scaled)
  if ids is None:
    return log_probs
  empty = jnp.full(logits.shape, -jnp.inf, jnp.float32)
  return jnp.put_along_axis(empty, ids, log_probs, axis=-1, inplace=False)


def _invert(mass: Float32[Array, "n b"], uniform: Float32[Array, "n"]) -> Int[Array, "n"]:
  """First index whose cumulative mass exceeds uniform * total, among those of positive mass.

  A parallel cumsum need not be monotone to the last bit, and uniform * total may round up to the total: so zero mass is
  excluded by name, and the last index of positive mass answers where rounding left none.
  """
  cumulative = jnp.cumsum(mass, axis=-1)
  index = jnp.arange(mass.shape[-1])[None]
  positive = mass > 0
  passed = positive & (cumulative > uniform[:, None] * cumulative[:, -1:])
  last = jnp.max(jnp.where(positive, index, 0), axis=-1)
  return jnp.where(jnp.any(passed, axis=-1), jnp.argmax(passed, axis=-1), last)


def _inverse_cdf(scaled: Float32[Array, "n c"], uniforms: Float32[Array, "n 2"]):
  """Index drawn with probability softmax(scaled), and the log of the softmax's divisor.

  P(i) = P(block of i) · P(i | block): one uniform picks one of ~√c blocks by its mass, the other a token within it. The
  passes over the vocabulary are a max and the fused exp and block sums; all else is [n √c].
  """
  size = 2 ** round(math.log2(scaled.shape[-1]) / 2)  # a power of two: thrice as fast as a ragged block
  largest = jnp.max(scaled, axis=-1, keepdims=True)
  weight = jnp.exp(scaled - largest)
  whole = scaled.shape[-1] // size * size
  mass = jnp.sum(weight[:, :whole].reshape(scaled.shape[0], -1, size), axis=-1)
  if whole < scaled.shape[-1]:
    mass = jnp.concatenate([mass, jnp.sum(weight[:, whole:], axis=-1, keepdims=True)], axis=-1)
  block = _invert(mass, uniforms[:, 0])
  members = block[:, None] * size + jnp.arange(size)[None]
  inside = jnp.take_along_axis(scaled, members, axis=-1, mode="fill", fill_value=-jnp.inf)
  index = block * size + _invert(jnp.exp(inside - largest), uniforms[:, 1])
  return index, largest[:, 0] + jnp.log(jnp.sum(mass, axis=-1))


def draw(
  logits: Float[Array, "n v"], uniforms: Float32[Array, "n 2"], filters: Filters, with_entropy: bool = False
) -> tuple[Int[Array, "n"], Float32[Array, "n"], Float32[Array, "n"] | None]:
  """One token per row, its log-probability under `processed_log_probs`, and, if asked, that distribution's entropy.

  In nats. Deterministic in `uniforms`, two independent ones in [0, 1) per row. A dropped token is never drawn. NaN
  logits give a NaN log-probability.
  """
  if _is_greedy(filters):
    tokens = jnp.argmax(logits, axis=-1)
    zero = jnp.where(jnp.isnan(jnp.max(logits, axis=-1)), jnp.nan, 0.0).astype(jnp.float32)
    return tokens.astype(jnp.int32), zero, zero if with_entropy else None
  scaled, ids = candidates(logits, filters)
  index, log_divisor = _inverse_cdf(scaled, uniforms)
  log_probs = jnp.take_along_axis(scaled, index[:, None], axis=-1)[:, 0] - log_divisor
  tokens = index if ids is None else jnp.take_along_axis(ids, index[:, None], axis=-1)[:, 0]
  if not with_entropy:
    return tokens.astype(jnp.int32), log_probs, None
  log_p = scaled - log_divisor[:, None]
  entropy = -jnp.sum(jnp.where(log_p > -jnp.inf, jnp.exp(log_p) * log_p, 0.0), axis=-1)
  return tokens.astype(jnp.int32), log_probs, entropy
