"""Array types, masked and group operations, token statistics, and `build`. Imports nothing of the project."""

from rlvr_jax.core.build import build, check_keys, check_number, nearest
from rlvr_jax.core.groups import group_count, group_max, group_mean, group_min, group_std, group_sum
from rlvr_jax.core.masked import masked, masked_mean, positions
from rlvr_jax.core.token_stats import STATISTICS, token_statistics
from rlvr_jax.core.types import PyTree, Reducer, Rollout, Stat, Term, Transform, Weights

__all__ = [
  "PyTree", "Reducer", "Rollout", "Stat", "Term", "Transform", "Weights",
  "build", "check_keys", "check_number", "nearest",
  "group_count", "group_max", "group_mean", "group_min", "group_std", "group_sum",
  "masked", "masked_mean", "positions",
  "STATISTICS", "token_statistics",
]  # fmt: skip
