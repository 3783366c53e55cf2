"""Array types, masked and group operations, token statistics, and `build`. Imports nothing of the project."""

from rlvr_jax.core.build import build, check_keys, check_number, nearest
from rlvr_jax.core.groups import group_count, group_max, group_mean, group_min, group_std, group_sum
from rlvr_jax.core.masked import masked, positions
from rlvr_jax.core.token_stats import STATISTICS, token_statistics
from rlvr_jax.core.types import (
  Divergence,
  PyTree,
  Reducer,
  Rollout,
  Stat,
  Term,
  Transform,
  View,
  Weights,
  make_view,
)  # fmt: skip

__all__ = [
  "Divergence", "PyTree", "Reducer", "Rollout", "Stat", "Term", "Transform", "View", "Weights", "make_view",
  "build", "check_keys", "check_number", "nearest",
  "group_count", "group_max", "group_mean", "group_min", "group_std", "group_sum",
  "masked", "positions",
  "STATISTICS", "token_statistics",
]  # fmt: skip
