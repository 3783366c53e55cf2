"""A first-in-first-out buffer of whole groups, which stand in for groups of a fresh batch that teach nothing.

  add:     groups with max_i m_i - min_i m_i > tolerance enter; once the buffer is full, in place of the oldest
  sample:  num_replayed distinct groups, uniform over the stored ones with step - policy_version ≤ max_staleness
  mix:     they replace groups of a rollout with max_i m_i - min_i m_i ≤ tolerance, those first that come first

m is a raw metric over the rows with a verdict. A rollout has prompt-major blocks of group_size rows, which move as one:
tokens, masks, rewards, components and ids of a stored row come back as they were, with the log-probabilities of the
policy that sampled it (`behaviour_log_probs`) and its `policy_version`. Only `group_id` is of the batch it returns to.
No mixed fresh group is ever replaced, so fewer than num_replayed return where fewer fresh groups are uniform or fewer
stored ones are young enough; `mix` tells which.

A replayed row is off-policy. The objective must take its ratio against `behaviour_log_probs`; with `old` recomputed
before the update, the ratio of a stale row starts at 1 and says nothing of how stale it is.

Add the fresh rollout after mixing it, and never the mixed one: what was just added is then not replayed in the same
step, and nothing enters twice.

Differs: as in Headroom-Drift Replay without its ordering and gate, and with replayed groups in place of uniform fresh
         ones rather than on top of the batch, so shapes stay as they are.
Ref:     the buffer of Headroom-Drift Replay, arXiv:2609.03941.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.core import Rollout, check_number, group_max, group_min
from rlvr_jax.selection.types import Replay


class Stored(NamedTuple):
  """Groups in slots; a slot is filled below `size`."""

  rows: Rollout  # capacity_groups blocks
  cursor: Any  # Int[""]   slot of the next group to enter, and of the oldest once the buffer is full
  size: Any  # Int[""]   filled slots


def _static_parts(rollout: Rollout):
  return rollout.replace(num_groups=1, first_action=1)


def _check(rollout: Rollout, group_size: int) -> None:
  n = rollout.tokens.shape[0]
  if n != rollout.num_groups * group_size:
    raise ValueError(
      f"replay: a rollout needs num_groups * group_size rows, got {n} rows with num_groups = {rollout.num_groups} "
      f"and group_size = {group_size}"
    )


def _check_alike(rows: Rollout, rollout: Rollout) -> None:
  """Raises ValueError naming the first field that the stored rows and the rollout do not have in common."""
  table = lambda r: {
    jax.tree_util.keystr(path): (x.shape[1:], x.dtype) for path, x in jax.tree_util.tree_leaves_with_path(r)
  }
  stored, fresh = table(_static_parts(rows)), table(_static_parts(rollout))
  for name in sorted(stored.keys() | fresh.keys()):
    if stored.get(name) != fresh.get(name):
      raise ValueError(
        f"replay: stored and fresh rollouts must have the same fields, shapes per row and types; rollout{name} is "
        f"{stored.get(name, 'absent')} in the buffer and {fresh.get(name, 'absent')} in the rollout"
      )


def _put(rows: Rollout, slot: Int[Array, "k"], groups: Rollout, group_size: int) -> Rollout:
  """`rows` with its blocks at `slot` replaced by those of `groups`; a slot out of range is left out."""

  def put(old, new):
    old, new = jnp.asarray(old), jnp.asarray(new)
    blocks = lambda x: x.reshape(-1, group_size, *x.shape[1:])
    return blocks(old).at[slot].set(blocks(new), mode="drop").reshape(old.shape)

  out = jax.tree.map(put, _static_parts(rows), _static_parts(groups))
  first = min(rows.first_action, groups.first_action)
  return out.replace(group_id=rows.group_id, num_groups=rows.num_groups, first_action=first)


def _take(rows: Rollout, slot: Int[Array, "k"], group_size: int) -> Rollout:
  """The blocks at `slot`, as a rollout of their own."""
  row = (slot[:, None] * group_size + jnp.arange(group_size)[None, :]).reshape(-1)
  group_id = jnp.repeat(jnp.arange(slot.shape[0], dtype=jnp.int32), group_size)
  return jax.tree.map(lambda x: x[row], rows).replace(group_id=group_id, num_groups=slot.shape[0])


def replay(
  capacity_groups: int,
  group_size: int,
  num_replayed: int,
  max_staleness: int | None = None,
  mixed_only: bool = True,
  tolerance: float = 1e-6,
) -> Replay:
  """Args:
  capacity_groups: groups the buffer holds.
  group_size:      rows per group.
  num_replayed:    the most groups that return per batch, at most capacity_groups.
  max_staleness:   in optimiser steps, of the oldest row of a group; None: any age.
  mixed_only:      False: groups of equal metrics enter too.
  tolerance:       what still counts as equal.

  Raises: ValueError, at init, for rollouts without behaviour_log_probs; later, for rollouts of other fields or shapes.
  """
  check_number("replay: capacity_groups", capacity_groups, minimum=1)
  check_number("replay: group_size", group_size, minimum=1)
  check_number("replay: num_replayed", num_replayed, minimum=1, maximum=capacity_groups)
  if max_staleness is not None:
    check_number("replay: max_staleness", max_staleness, minimum=0)
  check_number("replay: tolerance", tolerance, minimum=0)

  def mixed(rollout: Rollout, metric: Float[Array, "n"]) -> Bool[Array, "p"]:
    return (group_max(metric, rollout) - group_min(metric, rollout) > tolerance)[::group_size]

  def init(rollout):
    _check(rollout, group_size)
    if rollout.behaviour_log_probs is None:
      raise ValueError("replay: a rollout needs behaviour_log_probs: without them no ratio can correct for its age")
    zeros = jax.tree.map(lambda x: jnp.zeros((capacity_groups * group_size, *x.shape[1:]), x.dtype), rollout)
    group_id = jnp.repeat(jnp.arange(capacity_groups, dtype=jnp.int32), group_size)
    zero = jnp.zeros((), jnp.int32)
    return Stored(zeros.replace(group_id=group_id, num_groups=capacity_groups), zero, zero)

  def add(state, rollout, metric):
    _check(rollout, group_size)
    _check_alike(state.rows, rollout)
    enters = mixed(rollout, metric) if mixed_only else jnp.any(rollout.row_mask.reshape(-1, group_size), axis=1)
    rank, total = jnp.cumsum(enters, dtype=jnp.int32) - 1, jnp.sum(enters, dtype=jnp.int32)
    stays = enters & (rank >= total - capacity_groups)  # the rest would leave again at once
    slot = jnp.where(stays, (state.cursor + rank) % capacity_groups, capacity_groups)
    cursor, size = (state.cursor + total) % capacity_groups, jnp.minimum(state.size + total, capacity_groups)
    return Stored(_put(state.rows, slot, rollout, group_size), cursor, size)

  def sample(state, key, step):
    slots = jnp.arange(capacity_groups)
    version = jnp.min(state.rows.policy_version.reshape(-1, group_size), axis=1)
    eligible = slots < state.size
    if max_staleness is not None:
      eligible &= step - version <= max_staleness
    order = jnp.where(eligible, jax.random.uniform(key, (capacity_groups,)), -1.0)
    best, slot = jax.lax.top_k(order, num_replayed)
    return slot, best >= 0

  def mix(rollout, state, metric, key, step):
    _check(rollout, group_size)
    _check_alike(state.rows, rollout)
    num_groups = rollout.num_groups
    slot, available = sample(state, key, step)
    uniform = ~mixed(rollout, metric)
    order = jnp.argsort(~uniform, stable=True)[:num_replayed]  # uniform groups first
    k = order.shape[0]
    target = jnp.where(available[:k] & uniform[order], order, num_groups)
    out = _put(rollout, target, _take(state.rows, slot[:k], group_size), group_size)
    return out, jnp.zeros((num_groups,), bool).at[target].set(True, mode="drop")

  return Replay(init, add, sample, mix)
