"""Statistics over groups given as ids, so uneven, filtered and permuted groups are the same case as even ones.

All of them count only rows where `rollout.row_mask` is True. NaN in other rows is not read.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlvr_jax.core.types import Rollout


def _sum(values, rollout: Rollout):
  kept = jnp.where(rollout.row_mask, values.astype(jnp.float32), 0.0)
  return jax.ops.segment_sum(kept, rollout.group_id, rollout.num_groups)


def group_sum(values: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
  """Sum over the row's group, given back to every row."""
  return _sum(values, rollout)[rollout.group_id]


def group_count(rollout: Rollout) -> Float[Array, "n"]:
  """Rows with a verdict in the row's group."""
  return group_sum(jnp.ones(rollout.group_id.shape, jnp.float32), rollout)


def group_mean(values: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
  return group_sum(values, rollout) / jnp.maximum(group_count(rollout), 1.0)


def group_std(values: Float[Array, "n"], rollout: Rollout, ddof: int = 0) -> Float[Array, "n"]:
  """Two-pass standard deviation with divisor `count - ddof`; 0 where the group has no more than `ddof` rows.

  Exactly 0 for a group of equal values, whose float mean may differ from the value by rounding (slime#1674).
  """
  deviation = jnp.where(rollout.row_mask, values - group_mean(values, rollout), 0.0)
  count = group_count(rollout)
  spread = group_max(values, rollout) - group_min(values, rollout)
  variance = group_sum(deviation**2, rollout) / jnp.maximum(count - ddof, 1.0)
  return jnp.where((count > ddof) & (spread > 0), jnp.sqrt(variance), 0.0)


def group_max(values: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
  """Largest value in the row's group; -inf where the group has no row with a verdict."""
  kept = jnp.where(rollout.row_mask, values.astype(jnp.float32), -jnp.inf)
  return jax.ops.segment_max(kept, rollout.group_id, rollout.num_groups)[rollout.group_id]


def group_min(values: Float[Array, "n"], rollout: Rollout) -> Float[Array, "n"]:
  return -group_max(-values, rollout)
