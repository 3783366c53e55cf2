"""Groups that move between rollouts: by hand, and against a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.core import Rollout
from rlvr_jax.rollouts.refill import (
  empty_groups,
  informative_groups,
  join_groups,
  merge_groups,
  refill,
  settle,
)


def groups_of(first_id, values, size=2, length=3):
  """A group per entry of `values` (its rewards), whose every field tells which group and which row it is from."""
  values = jnp.asarray(values, jnp.float32)
  num = values.shape[0]
  prompt = jnp.repeat(first_id + jnp.arange(num, dtype=jnp.int32), size)
  row = prompt * 10 + jnp.tile(jnp.arange(size, dtype=jnp.int32), num)
  tokens = row[:, None] * 10 + jnp.arange(length)[None]
  valid = jnp.arange(length)[None] <= (row % 3)[:, None]  # ragged
  return Rollout(
    tokens=tokens, valid_mask=valid, action_mask=valid, prompt_id=prompt,
    group_id=jnp.repeat(jnp.arange(num, dtype=jnp.int32), size), row_mask=jnp.ones(num * size, bool),
    reward=values.reshape(-1), rewards={"exact": row.astype(jnp.float32)},
    behaviour_log_probs=jnp.where(valid, -row[:, None] / 1e3, 0.0), truncated=row % 2 == 0, policy_version=row,
    stats={"behaviour.entropy": tokens.astype(jnp.float32)}, num_groups=num, first_action=1,
  )  # fmt: skip


def intact(rollout, size=2):
  """Whether all rows belong together, in every field: as `groups_of` made them, wherever they stand now."""
  prompt = np.asarray(rollout.prompt_id).reshape(-1, size)
  row = prompt * 10 + np.arange(size)[None]
  tokens = row.reshape(-1)[:, None] * 10 + np.arange(rollout.tokens.shape[1])[None]
  valid = np.arange(rollout.tokens.shape[1])[None] <= (row.reshape(-1) % 3)[:, None]
  return (
    (np.asarray(rollout.tokens) == tokens).all()
    and (np.asarray(rollout.valid_mask) == valid).all()
    and (np.asarray(rollout.action_mask) == valid).all()
    and (np.asarray(rollout.policy_version) == row.reshape(-1)).all()
    and (np.asarray(rollout.rewards["exact"]) == row.reshape(-1)).all()
    and (np.asarray(rollout.stats["behaviour.entropy"]) == tokens).all()
    and (np.asarray(rollout.truncated) == (row.reshape(-1) % 2 == 0)).all()
    and (np.asarray(rollout.group_id) == np.repeat(np.arange(len(prompt)), size)).all()
    and np.allclose(rollout.behaviour_log_probs, np.where(valid, -row.reshape(-1)[:, None] / 1e3, 0))
  )


def prompts(rollout, size=2):
  return np.asarray(rollout.prompt_id)[::size].tolist()


MIXED, SOLVED, FAILED = [0, 1], [1, 1], [0, 0]


def test_informative_by_hand():
  rollout = groups_of(0, [MIXED, SOLVED, [0.5, 0.5 + 1e-7], [0, 1], [0, 1]])
  masked = rollout.row_mask.at[7].set(False).at[8].set(False).at[9].set(False)  # one verdict left; none left
  metric = rollout.reward.at[7].set(jnp.nan)
  assert informative_groups(metric, rollout.replace(row_mask=masked)).tolist() == [True, False, False, False, False]
  assert informative_groups(rollout.reward, rollout, tolerance=0.0).tolist() == [True, False, True, True, True]


def test_merge_by_hand():
  # Round 0 keeps groups 1 and 3; 0 and 2 are filler. Round 1 has 10, 11, 13: 10 and 11 fit, 13 is dropped.
  first, second = groups_of(0, [FAILED, MIXED, SOLVED, MIXED]), groups_of(10, [MIXED, MIXED, FAILED, MIXED])
  kept, count, dropped = merge_groups(first, 0, first, informative_groups(first.reward, first))
  assert (prompts(kept), int(count), int(dropped)) == ([1, 3, 0, 2], 2, 0)
  kept, count, dropped = merge_groups(kept, count, second, informative_groups(second.reward, second))
  assert (prompts(kept), int(count), int(dropped)) == ([1, 3, 10, 11], 4, 1)
  assert intact(kept)
  kept, count, dropped = merge_groups(kept, count, second, informative_groups(second.reward, second))
  assert (prompts(kept), int(count), int(dropped)) == ([1, 3, 10, 11], 4, 3)


def test_filler_is_of_the_last_round():
  rounds = [groups_of(0, [MIXED, FAILED, SOLVED]), groups_of(10, [SOLVED, FAILED, FAILED])]
  kept, count = empty_groups(rounds[0], 3), 0
  for new in rounds:
    kept, count, _ = merge_groups(kept, count, new, informative_groups(new.reward, new))
  assert (prompts(kept), int(count)) == ([0, 10, 11], 1)


def test_optional_fields_and_host_arrays_move_along():
  full = lambda r: r.replace(answer_id=r.policy_version, turn_id=r.tokens, keep_mask=r.valid_mask)
  first, second = full(groups_of(0, [MIXED, FAILED])), full(groups_of(10, [FAILED, MIXED]))
  kept, _, _ = merge_groups(first, 1, jax.tree.map(np.asarray, second), jnp.array([False, True]))
  assert prompts(kept) == [0, 11] and intact(kept)
  np.testing.assert_array_equal(kept.answer_id, kept.policy_version)
  np.testing.assert_array_equal(kept.turn_id, kept.tokens)
  np.testing.assert_array_equal(kept.keep_mask, kept.valid_mask)


def test_first_action_is_the_earliest():
  first, second = groups_of(0, [MIXED]).replace(first_action=2), groups_of(1, [MIXED])
  kept, _, _ = merge_groups(first, 1, second, jnp.array([True]))
  assert kept.first_action == 1


@pytest.mark.parametrize(
  "change, words",
  [
    (lambda r: r.replace(answer_id=r.prompt_id), ["answer_id", "absent"]),
    (lambda r: r.replace(tokens=r.tokens[:, :2]), ["tokens", "(3,)", "(2,)"]),
    (lambda r: r.replace(rewards={}), ["rewards", "exact", "absent"]),
    (lambda r: r.replace(num_groups=1), ["4 rows per group", "2"]),
    (lambda r: r.replace(num_groups=3), ["4 rows in 3 groups"]),
  ],
)
def test_rollouts_of_another_kind_raise(change, words):
  kept = groups_of(0, [MIXED, FAILED])
  with pytest.raises(ValueError) as error:
    merge_groups(kept, 0, change(kept), jnp.array([True, False]))
  assert all(word in str(error.value) for word in words), error.value


def test_settle():
  kept = groups_of(0, [[1, 2], [3, 4]])
  masked = settle(kept, 1, "mask")
  assert masked.row_mask.tolist() == [True, True, False, False] and masked.reward.tolist() == [1, 2, 0, 0]
  assert settle(kept, 1, "keep").row_mask.all()
  with pytest.raises(ValueError, match="on_short has no 'masked'; did you mean 'mask'"):
    settle(kept, 1, "masked")


def test_join_groups():
  joined = join_groups(groups_of(0, [[1, 2], [3, 4]]), groups_of(0, [[5], [6]], size=1))
  assert joined.reward.tolist() == [1, 2, 5, 3, 4, 6]
  assert joined.prompt_id.tolist() == joined.group_id.tolist() == [0, 0, 0, 1, 1, 1]
  assert joined.policy_version.tolist() == [0, 1, 0, 10, 11, 10]
  with pytest.raises(ValueError, match="num_groups must be equal, got 1 and 2"):
    join_groups(groups_of(0, [MIXED]), groups_of(0, [[5], [6]], size=1))


def plain_loop(outcomes, wanted, size=2):
  """The same in Python: (prompt ids in slots, rounds, kept, dropped). outcomes[r][g]: rewards of group g of round r."""
  kept, filler, dropped, rounds = [], [], 0, 0
  for r, groups in enumerate(outcomes):
    if len(kept) == wanted:
      break
    rounds += 1
    rest = []
    for g, rewards in enumerate(groups):
      if max(rewards) == min(rewards):
        rest.append(100 * r + g)
      elif len(kept) < wanted:
        kept.append(100 * r + g)
      else:
        dropped += 1
    filler = rest
  return kept, filler, rounds, dropped


def runner(wanted, on_short="keep", num_rounds=4):
  def one_round(outcomes, key, step, index, state):
    del key, step
    new = groups_of(100 * index, outcomes[index])
    return new, new.reward, state + index

  return refill(one_round, num_rounds=num_rounds, num_groups=wanted, on_short=on_short)


@pytest.mark.parametrize("wanted", [3, 5])
def test_equals_a_plain_loop_over_seeds(wanted):
  # 40 runs at once of 4 rounds of 5 groups, from hardly ever mixed to nearly always.
  rng = np.random.default_rng(0)
  outcomes = (rng.random((40, 4, 5, 2)) < np.linspace(0.02, 0.6, 40)[:, None, None, None]).astype(np.float32)
  run = jax.jit(jax.vmap(lambda x: runner(wanted)(x, jax.random.key(0), 0, jnp.int32(0))))
  rollouts, state, stats = run(outcomes)
  seen = set()
  for i in range(40):
    kept, filler, rounds, dropped = plain_loop(outcomes[i], wanted)
    one = jax.tree.map(lambda x, i=i: x[i], rollouts)
    short = wanted - len(kept)
    assert prompts(one) == kept + filler[:short]  # no group lost, doubled or out of order
    assert intact(one)
    got = jax.tree.map(lambda x, i=i: int(x[i]), stats)
    assert got == (rounds, 5 * rounds, len(kept), dropped, short)
    assert int(state[i]) == sum(range(rounds))
    seen.add((short > 0, dropped > 0, rounds))
  assert {s[0] for s in seen} == {s[1] for s in seen} == {True, False} and {s[2] for s in seen} >= {2, 4}


def test_short_rows_are_masked_and_rounds_are_bounded():
  outcomes = jnp.array([[FAILED, MIXED, FAILED], [SOLVED, FAILED, SOLVED]], jnp.float32)
  run = runner(3, on_short="mask", num_rounds=2)
  rollout, _, stats = jax.jit(lambda x: run(x, jax.random.key(0), 0, jnp.int32(0)))(outcomes)
  assert rollout.row_mask.tolist() == [True, True, False, False, False, False]
  assert rollout.reward.tolist() == [0, 1, 0, 0, 0, 0]
  assert (int(stats.rounds), int(stats.short), int(stats.groups_kept)) == (2, 2, 1)


def test_more_slots_than_a_round_has_groups():
  # One round of 2 groups for 4 slots: two slots were never sampled.
  run = runner(4, on_short="mask", num_rounds=1)
  rollout, _, stats = run(jnp.array([[MIXED, FAILED]], jnp.float32), jax.random.key(0), 0, jnp.int32(0))
  assert rollout.row_mask.tolist() == [True, True] + [False] * 6 and not rollout.valid_mask[4:].any()
  assert (int(stats.groups_kept), int(stats.short)) == (1, 3)


def test_each_round_has_its_own_key():
  def one_round(params, key, step, index, state):
    new = groups_of(0, [FAILED])
    return new, new.reward, state.at[index].set(jax.random.uniform(key))

  _, draws, _ = refill(one_round, num_rounds=3)(None, jax.random.key(0), 0, jnp.zeros(3))
  expected = [jax.random.uniform(jax.random.fold_in(jax.random.key(0), r)) for r in range(3)]
  np.testing.assert_array_equal(draws, expected)


@pytest.mark.parametrize(
  "kwargs, message",
  [
    (dict(num_rounds=0), "num_rounds must be >= 1, got 0"),
    (dict(num_rounds=1, num_groups=0), "num_groups must be >= 1, got 0"),
    (dict(num_rounds=1, on_short="drop"), "on_short has no 'drop'"),
    (dict(num_rounds=1, tolerance=-1.0), "tolerance must be >= 0"),
  ],
)
def test_bad_settings_raise(kwargs, message):
  with pytest.raises(ValueError, match=message):
    refill(lambda *_: None, **kwargs)
