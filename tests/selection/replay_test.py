"""The buffer of groups: order, admission, age, and rows that stay together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlvr_jax.selection as selection
from rlvr_jax.core import Rollout

MIXED, SOLVED, FAILED = [0, 1], [1, 1], [0, 0]


def groups_of(first_id, values, version=0, length=3):
  """A group of two per entry of `values` (its rewards); the fields of a row tell which it is."""
  values = jnp.asarray(values, jnp.float32)
  num = values.shape[0]
  prompt = jnp.repeat(first_id + jnp.arange(num, dtype=jnp.int32), 2)
  row = prompt * 10 + jnp.tile(jnp.arange(2, dtype=jnp.int32), num)
  tokens = row[:, None] * 10 + jnp.arange(length)[None]
  valid = jnp.arange(length)[None] <= (row % 3)[:, None]  # ragged
  return Rollout(
    tokens=tokens, valid_mask=valid, action_mask=valid, prompt_id=prompt,
    group_id=jnp.repeat(jnp.arange(num, dtype=jnp.int32), 2), row_mask=jnp.ones(num * 2, bool),
    reward=values.reshape(-1), rewards={"exact": row.astype(jnp.float32)}, behaviour_log_probs=-tokens / 1e3,
    truncated=row % 2 == 0, policy_version=jnp.full((num * 2,), version, jnp.int32), num_groups=num, first_action=1,
  )  # fmt: skip


def check_rows(rollout):
  """Rows of a group are together and whole, wherever they came from."""
  prompt = np.asarray(rollout.prompt_id)
  row = prompt * 10 + np.tile(np.arange(2), len(prompt) // 2)
  assert (prompt[::2] == prompt[1::2]).all()
  np.testing.assert_array_equal(rollout.tokens, row[:, None] * 10 + np.arange(3)[None])
  np.testing.assert_array_equal(rollout.valid_mask, np.arange(3)[None] <= (row % 3)[:, None])
  np.testing.assert_array_equal(rollout.action_mask, rollout.valid_mask)
  np.testing.assert_array_equal(rollout.rewards["exact"], row)
  np.testing.assert_array_equal(rollout.truncated, row % 2 == 0)
  np.testing.assert_allclose(rollout.behaviour_log_probs, -np.asarray(rollout.tokens) / 1e3)
  np.testing.assert_array_equal(rollout.group_id, np.repeat(np.arange(len(prompt) // 2), 2))


def stored(state):
  return np.asarray(state.rows.prompt_id)[::2].tolist()


def filled(part, *rollouts):
  state = part.init(rollouts[0])
  for rollout in rollouts:
    state = part.add(state, rollout, rollout.reward)
  return state


def test_first_in_first_out():
  part = selection.replay(3, 2, 1)
  state = filled(part, groups_of(10, [MIXED, SOLVED, MIXED]))  # 11 is not mixed
  assert stored(state) == [10, 12, 0] and (int(state.cursor), int(state.size)) == (2, 2)
  state = part.add(state, groups_of(20, [MIXED, MIXED, FAILED]), groups_of(20, [MIXED, MIXED, FAILED]).reward)
  assert stored(state) == [21, 12, 20] and (int(state.cursor), int(state.size)) == (1, 3)
  check_rows(state.rows)
  # Five at once: the last three stay, where five entries one after the other would have left them.
  many = groups_of(30, [MIXED] * 5)
  state = part.add(state, many, many.reward)
  assert stored(state) == [32, 33, 34] and (int(state.cursor), int(state.size)) == (0, 3)


def test_admission_is_by_the_metric_and_by_verdicts():
  # Group 10: shaped rewards differ, the metric does not. 11: the metric differs. 12: one verdict. 13: none.
  rollout = groups_of(10, [MIXED, SOLVED, MIXED, MIXED])
  rollout = rollout.replace(row_mask=jnp.array([True, True, True, True, True, False, False, False]))
  metric = jnp.array([1.0, 1, 0, 1, 0, jnp.nan, 0, 1])
  part = selection.replay(4, 2, 1)
  assert int(part.add(part.init(rollout), rollout, metric).size) == 1
  anything = selection.replay(4, 2, 1, mixed_only=False)
  assert stored(anything.add(anything.init(rollout), rollout, metric)) == [10, 11, 12, 0]


def test_sampled_groups_are_stored_distinct_and_young_enough():
  part = selection.replay(6, 2, 3, max_staleness=2)
  old, young = groups_of(10, [MIXED, MIXED], version=4), groups_of(20, [MIXED, MIXED], version=5)
  state = filled(part, old, young)
  keys = jax.random.split(jax.random.key(0), 600)
  at = jax.jit(jax.vmap(part.sample, (None, 0, None)))
  slot, available = at(state, keys, 6)
  assert available.all() and (slot < 4).all() and all(len(set(s)) == 3 for s in slot.tolist())
  # Each of 4 in a draw of 3 with probability 3/4.
  counts = np.bincount(np.asarray(slot).reshape(-1), minlength=4)
  assert np.abs(counts - 450).max() < 4 * np.sqrt(600 * 3 / 16)
  slot, available = at(state, keys, 7)  # 4 is three steps ago
  assert (available.sum(axis=1) == 2).all() and {tuple(sorted(s[:2])) for s in slot.tolist()} == {(2, 3)}
  assert not at(state, keys, 8)[1].any()


def test_mix_replaces_uniform_groups_only():
  part = selection.replay(4, 2, 2)
  state = filled(part, groups_of(10, [MIXED, MIXED, MIXED], version=3))
  fresh = groups_of(20, [FAILED, MIXED, SOLVED, FAILED], version=7)
  mixed, replayed = part.mix(fresh, state, fresh.reward, jax.random.key(0), 8)
  assert replayed.tolist() == [True, False, True, False]
  prompts = np.asarray(mixed.prompt_id)[::2].tolist()
  assert prompts[1] == 21 and prompts[3] == 23 and {prompts[0], prompts[2]} < {10, 11, 12}
  assert mixed.policy_version.tolist() == [3, 3, 7, 7, 3, 3, 7, 7]
  assert mixed.num_groups == 4 and mixed.first_action == 1
  check_rows(mixed)
  # One uniform group: one comes back. None: the rollout is as it was.
  one = groups_of(20, [MIXED, MIXED, FAILED, MIXED])
  assert part.mix(one, state, one.reward, jax.random.key(0), 8)[1].tolist() == [False, False, True, False]
  none = groups_of(20, [MIXED] * 4)
  same, replayed = part.mix(none, state, none.reward, jax.random.key(0), 8)
  assert not replayed.any()
  jax.tree.map(np.testing.assert_array_equal, same, none)


def test_an_empty_buffer_changes_nothing():
  part = selection.replay(4, 2, 2)
  fresh = groups_of(20, [FAILED, FAILED, SOLVED])
  same, replayed = part.mix(fresh, part.init(fresh), fresh.reward, jax.random.key(0), 1)
  assert not replayed.any()
  jax.tree.map(np.testing.assert_array_equal, same, fresh)


def test_more_replayed_than_a_rollout_has_groups():
  part = selection.replay(8, 2, 5)
  state = filled(part, groups_of(10, [MIXED] * 6))
  fresh = groups_of(20, [FAILED, MIXED])
  assert part.mix(fresh, state, fresh.reward, jax.random.key(0), 1)[1].tolist() == [True, False]


def test_init_takes_shapes_and_all_runs_under_jit_vmap_and_scan():
  part = selection.replay(4, 2, 1)

  def run(key):
    def step(state, inputs):
      number, key = inputs
      outcome_key, mix_key = jax.random.split(key)
      fresh = groups_of(0, jnp.zeros((3, 2)), version=0).replace(
        reward=jax.random.bernoulli(outcome_key, 0.4, (6,)).astype(jnp.float32),
        policy_version=jnp.full((6,), number, jnp.int32),
      )
      mixed, replayed = part.mix(fresh, state, fresh.reward, mix_key, number)
      return part.add(state, fresh, fresh.reward), (mixed, replayed, fresh)

    shapes = jax.eval_shape(lambda: groups_of(0, jnp.zeros((3, 2))))
    return jax.lax.scan(step, part.init(shapes), (jnp.arange(6), jax.random.split(key, 6)))[1]

  mixed, replayed, fresh = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 5))
  age = np.arange(6)[None, :, None] - np.asarray(mixed.policy_version)[:, :, ::2]
  assert ((age > 0) == np.asarray(replayed)).all() and replayed.any()  # what is replayed is never of this step
  spread = lambda r: np.asarray(r.reward).reshape(5, 6, 3, 2).std(axis=-1) > 0
  assert (spread(mixed) == (spread(fresh) | np.asarray(replayed))).all()


@pytest.mark.parametrize(
  "change, message",
  [
    (lambda r: r.replace(answer_id=r.prompt_id), "rollout.answer_id is absent in the buffer"),
    (lambda r: r.replace(tokens=r.tokens[:, :2]), "rollout.tokens is .*(3,).* in the buffer and .*(2,)"),
    (lambda r: r.replace(num_groups=3), "got 4 rows with num_groups = 3 and group_size = 2"),
  ],
)
def test_rollouts_of_another_kind_raise(change, message):
  part, rollout = selection.replay(4, 2, 1), groups_of(0, [MIXED, MIXED])
  with pytest.raises(ValueError, match=message):
    part.add(part.init(rollout), change(rollout), rollout.reward)


@pytest.mark.parametrize(
  "kwargs, message",
  [
    (dict(capacity_groups=0), "capacity_groups must be >= 1"),
    (dict(group_size=0), "group_size must be >= 1"),
    (dict(num_replayed=5), "num_replayed must be >= 1 and <= 4, got 5"),
    (dict(max_staleness=-1), "max_staleness must be >= 0"),
    (dict(tolerance=-1.0), "tolerance must be >= 0"),
  ],
)
def test_bad_settings_raise(kwargs, message):
  with pytest.raises(ValueError, match=message):
    selection.replay(**dict(dict(capacity_groups=4, group_size=2, num_replayed=1), **kwargs))


def test_replay_needs_behaviour_log_probs():
  with pytest.raises(ValueError, match="needs behaviour_log_probs"):
    selection.replay(4, 2, 1).init(groups_of(0, [MIXED]).replace(behaviour_log_probs=None))
