"""Masked arithmetic that keeps NaN behind the mask out of values and gradients alike."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped


def masked(values: Shaped[Array, "..."], mask: Bool[Array, "..."]) -> Shaped[Array, "..."]:
  """`values` where `mask`, 0 elsewhere; the mask holds for all trailing axes of `values`."""
  return jnp.where(mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim)), values, 0)


def positions(valid_mask: Bool[Array, "n t"]) -> Int[Array, "n t"]:
  """Index of each token among the real tokens of its row, wherever the padding is; padding repeats one, or is 0."""
  return jnp.maximum(jnp.cumsum(valid_mask, axis=-1, dtype=jnp.int32) - 1, 0)
