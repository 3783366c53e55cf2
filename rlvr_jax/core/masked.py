"""Masked arithmetic that keeps NaN behind the mask out of values and gradients alike."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def masked(values: Float[Array, "*s"], mask: Bool[Array, "*s"], fill: float = 0.0) -> Float[Array, "*s"]:
  return jnp.where(mask, values, fill)


def masked_mean(values: Float[Array, "*s"], mask: Bool[Array, "*s"], axis=None) -> Float[Array, "..."]:
  """Mean where `mask`; 0 where nothing is kept."""
  count = jnp.sum(mask, axis=axis, dtype=jnp.float32)
  return jnp.sum(masked(values, mask), axis=axis) / jnp.maximum(count, 1.0)


def positions(valid_mask: Bool[Array, "n t"]) -> Int[Array, "n t"]:
  """Index of each token among the real tokens of its row, wherever the padding is; padding repeats one, or is 0."""
  return jnp.maximum(jnp.cumsum(valid_mask, axis=-1, dtype=jnp.int32) - 1, 0)
