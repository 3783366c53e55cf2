"""The key and value cache: plain arrays in a registered dataclass."""

import dataclasses
from typing import Any

import jax


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

  def write(self, positions, valid_mask) -> "KVCache":
    """Marks the columns at `index` as holding these tokens and moves on; keys and values come layer by layer."""
    put = lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), self.index, axis=1)
    valid, position = put(self.valid, valid_mask), put(self.position, positions)
    return KVCache(self.k, self.v, valid, position, self.index + valid_mask.shape[1])
