"""Dynamic sampling: rounds of groups until enough of them are informative, or the rounds run out.

  informative: max_i m_i - min_i m_i > tolerance    over the rows of the group with a verdict
  keep informative groups, in the order they were sampled, until num_groups of them or num_rounds rounds

m is a raw metric, such as correctness, rather than the shaped reward, which may vary where correctness does not. All
rollouts here have prompt-major blocks of equally many rows per group; blocks move as one, and only `group_id` changes.
`merge_groups` and `settle` ask nothing of how rows were verified: a host loop calls them between its rounds, `refill`
does within one graph.

Peers:   verl `filter_groups` stops a run whose `max_num_gen_batches` rounds do not suffice; here on_short decides.
Ref:     Yu et al., DAPO, arXiv:2503.14476, sec. 3.2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.core import PyTree, Rollout, check_keys, check_number, group_max, group_min

ON_SHORT = ("mask", "keep")


class Refilled(NamedTuple):
  """What a refill did: groups_sampled = groups_kept + groups_dropped + those that were not informative."""

  rounds: Any  # Int[""]   rounds sampled
  groups_sampled: Any  # Int[""]
  groups_kept: Any  # Int[""]   informative groups in the rollout
  groups_dropped: Any  # Int[""]   informative groups for which no slot was free
  short: Any  # Int[""]   slots without an informative group


def _rows_per_group(rollout: Rollout) -> int:
  n = rollout.tokens.shape[0]
  if n % rollout.num_groups:
    raise ValueError(f"a rollout needs equally many rows per group, got {n} rows in {rollout.num_groups} groups")
  return n // rollout.num_groups


def _bare(rollout: Rollout) -> Rollout:
  return rollout.replace(num_groups=1, first_action=1)


def _check_alike(kept: Rollout, new: Rollout) -> None:
  """Raises ValueError naming the first field that two rollouts do not have in common."""
  table = lambda r: {
    jax.tree_util.keystr(path): (x.shape[1:], x.dtype) for path, x in jax.tree_util.tree_leaves_with_path(_bare(r))
  }
  ours, theirs = table(kept), table(new)
  for name in sorted(ours.keys() | theirs.keys()):
    if ours.get(name) != theirs.get(name):
      raise ValueError(
        f"rollouts that are merged must have the same fields, shapes per row and types; rollout{name} is "
        f"{ours.get(name, 'absent')} in one and {theirs.get(name, 'absent')} in the other"
      )


def informative_groups(metric: Float[Array, "n"], rollout: Rollout, tolerance: float = 1e-6) -> Bool[Array, "p"]:
  """Whether a raw metric differs within the group, among its rows with a verdict. NaN in other rows is not read."""
  spread = group_max(metric, rollout) - group_min(metric, rollout)
  return spread[:: _rows_per_group(rollout)] > tolerance


def empty_groups(like: Rollout, num_groups: int) -> Rollout:
  """`num_groups` free slots for groups such as those of `like`, which may be its shapes alone. All rows are masked."""
  size = _rows_per_group(like)
  zeros = jax.tree.map(lambda x: jnp.zeros((num_groups * size, *x.shape[1:]), x.dtype), like)
  group_id = jnp.repeat(jnp.arange(num_groups, dtype=like.group_id.dtype), size)
  return zeros.replace(group_id=group_id, num_groups=num_groups)


def merge_groups(
  kept: Rollout, count: int | Int[Array, ""], new: Rollout, informative: Bool[Array, "p"]
) -> tuple[Rollout, Int[Array, ""], Int[Array, ""]]:
  """Puts the informative groups of `new`, in order, into the free slots of `kept`, which are those from `count` on.

  Slots that are still free then hold the other groups of `new`, in order, as filler for the case that no round follows;
  the next merge writes over them.

  Returns: the rollout, its count of informative groups, and how many informative groups found no free slot.
  Raises: ValueError where the two differ in rows per group, in fields, or in a shape or type.
  """
  size, num_slots = _rows_per_group(kept), kept.num_groups
  if _rows_per_group(new) != size:
    raise ValueError(f"merge_groups: {_rows_per_group(new)} rows per group cannot join groups of {size}")
  _check_alike(kept, new)
  order = jnp.argsort(~informative, stable=True)
  slot = count + jnp.arange(new.num_groups)

  def put(old, fresh):
    old, fresh = jnp.asarray(old), jnp.asarray(fresh)
    blocks = lambda x: x.reshape(-1, size, *x.shape[1:])
    return blocks(old).at[slot].set(blocks(fresh)[order], mode="drop").reshape(old.shape)

  wanted = count + jnp.sum(informative, dtype=jnp.int32)
  after = jnp.minimum(wanted, num_slots)
  merged = jax.tree.map(put, _bare(kept), _bare(new)).replace(
    group_id=jnp.asarray(kept.group_id), num_groups=num_slots, first_action=min(kept.first_action, new.first_action)
  )
  return merged, after, wanted - after


def settle(kept: Rollout, count: int | Int[Array, ""], on_short: str) -> Rollout:
  """The rollout for training: rows of slots without an informative group are masked ("mask") or stay ("keep")."""
  check_keys("on_short", [on_short], ON_SHORT)
  if on_short == "keep":
    return kept
  slot = jnp.arange(kept.tokens.shape[0]) // _rows_per_group(kept)
  row_mask = kept.row_mask & (slot < count)
  return kept.replace(row_mask=row_mask, reward=jnp.where(row_mask, kept.reward, 0.0))


def join_groups(first: Rollout, second: Rollout) -> Rollout:
  """Groups with the rows of both: those of `first`, then those of `second`. Slot by slot they must be of one prompt.

  For screening and continuation (`selection.speed_rl`): the second must be sampled with another key than the first, or
  their completions are the same. `answer_id` must depend on the answer alone, not on the batch it was read in.
  """
  if first.num_groups != second.num_groups:
    raise ValueError(f"join_groups: num_groups must be equal, got {first.num_groups} and {second.num_groups}")
  _check_alike(first, second)
  sizes = _rows_per_group(first), _rows_per_group(second)

  def join(a, b):
    blocks = [x.reshape(-1, size, *x.shape[1:]) for x, size in zip((a, b), sizes)]
    return jnp.concatenate(blocks, axis=1).reshape(-1, *a.shape[1:])

  return jax.tree.map(join, _bare(first), _bare(second)).replace(
    group_id=jnp.repeat(first.group_id[:: sizes[0]], sum(sizes)),
    num_groups=first.num_groups,
    first_action=min(first.first_action, second.first_action),
  )


def refill(
  sample_and_verify: Callable[..., tuple[Rollout, Array, PyTree]],
  num_rounds: int,
  num_groups: int | None = None,
  on_short: str = "mask",
  tolerance: float = 1e-6,
) -> Callable[..., tuple[Rollout, PyTree, Refilled]]:
  """`run(params, key, step, state=()) -> (Rollout, state, Refilled)`, all of its rounds in one graph; pure.

  Args:
    sample_and_verify: `(params, key, step, round, state) -> (Rollout, metric["n"], state)` of one round. `key` is
      fold_in(run's key, round), so a prompt that comes twice is answered anew; `round` counts from 0. `state` is
      whatever rounds pass on, such as that of a prompt selection.
    num_rounds: the most rounds to sample.
    num_groups: groups wanted; None: as many as one round has.
    on_short:   where the rounds run out, free slots hold groups sampled last that are not informative, and rows never
      sampled where there are too few of those. "mask" takes them out of loss and statistics, "keep" leaves them in.
    tolerance:  what still counts as equal.
  """
  check_number("refill: num_rounds", num_rounds, minimum=1)
  check_keys("refill: on_short", [on_short], ON_SHORT)
  check_number("refill: tolerance", tolerance, minimum=0)
  if num_groups is not None:
    check_number("refill: num_groups", num_groups, minimum=1)

  def run(params, key, step, state=()):
    def one_round(index, state):
      return sample_and_verify(params, jax.random.fold_in(key, index), step, index, state)

    zero = jnp.zeros((), jnp.int32)
    like, _, _ = jax.eval_shape(one_round, zero, state)
    wanted = like.num_groups if num_groups is None else num_groups

    def body(carry):
      index, kept, count, dropped, state = carry
      new, metric, state = one_round(index, state)
      kept, count, lost = merge_groups(kept, count, new, informative_groups(metric, new, tolerance))
      return index + 1, kept, count, dropped + lost, state

    unfinished = lambda carry: (carry[0] < num_rounds) & (carry[2] < wanted)
    start = (zero, empty_groups(like, wanted), zero, zero, state)
    rounds, kept, count, dropped, state = jax.lax.while_loop(unfinished, body, start)
    stats = Refilled(rounds, rounds * like.num_groups, count, dropped, wanted - count)
    return settle(kept, count, on_short), state, stats

  return run
