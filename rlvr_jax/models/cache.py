"""The key and value cache: plain arrays in a registered dataclass."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KVCache:
  """Keys and values of `n` rows in columns `s`. What a query sees is decided by `valid` and `position` alone."""

  k: Any  # Float["l n s h e"]  rotated keys
  v: Any  # Float["l n s h e"]
  valid: Any  # Bool["n s"]
  position: Any  # Int["n s"]
  index: Any  # Int[""]           next column to write

  @property
  def length(self) -> int:
    return self.valid.shape[1]

  def take(self, rows) -> "KVCache":
    """The cache of `rows: Int["m"]`, repeats allowed: one prefilled prompt fanned out to its group."""
    pick = lambda x, axis: jnp.take(x, rows, axis=axis)
    return KVCache(pick(self.k, 1), pick(self.v, 1), pick(self.valid, 0), pick(self.position, 0), self.index)

  def grow(self, length: int) -> "KVCache":
    """The same cache with `length` columns, the new ones empty."""
    if length < self.length:
      raise ValueError(f"a cache of {self.length} columns cannot shrink, got length={length}")
    pad = lambda x, axis: jnp.pad(x, [(0, length - self.length if i == axis else 0) for i in range(x.ndim)])
    return KVCache(pad(self.k, 2), pad(self.v, 2), pad(self.valid, 1), pad(self.position, 1), self.index)

  def write(self, positions, valid_mask) -> "KVCache":
    """Marks the columns at `index` as holding these tokens and moves on; keys and values come layer by layer."""
    put = lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), self.index, axis=1)
    valid, position = put(self.valid, valid_mask), put(self.position, positions)
    return KVCache(self.k, self.v, valid, position, self.index + valid_mask.shape[1])
