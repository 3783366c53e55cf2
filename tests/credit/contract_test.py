"""What every transform of the credit chain promises; one row each."""

import functools
import json
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import credit
from rlvr_jax.core import Rollout, build
from rlvr_jax.sharding import make_mesh, place


class Row(NamedTuple):
  spec: dict
  takes: str = "n"  # the shape of credit given to it
  whole_batch: bool = False  # statistics over all rows, so that groups do see each other
  equal: float | str | None = 0.0  # credit of a group whose rewards are all .3; "kept": as it was; None: not of groups


ROWS = [
  Row(dict(name="batch_normalise"), whole_batch=True),
  Row(dict(name="clip_cov", ratio=0.3, low=-0.5, high=9.0), takes="n t", whole_batch=True, equal=None),
  Row(dict(name="confidence"), equal=None),
  Row(dict(name="discounted_return", gamma=0.5), takes="n t", equal=None),
  Row(dict(name="entropy_mask", share=0.4), whole_batch=True, equal="kept"),
  Row(dict(name="gae", lam=0.5, value_lam=1.0, length_adaptive_alpha=0.5), takes="n t", equal=None),
  Row(dict(name="gdpo", weights=dict(exact=1.0, format=0.5), whiten="token"), whole_batch=True, equal=None),
  Row(dict(name="gpg"), whole_batch=True),
  Row(dict(name="group_normalise", ddof=1)),
  Row(dict(name="keep_mixed_groups"), equal="kept"),
  Row(dict(name="kl_cov", share=0.3), takes="n t", whole_batch=True, equal=None),
  Row(dict(name="kl_in_reward", coef=0.1), equal=None),
  Row(dict(name="leave_one_out")),
  Row(dict(name="leave_one_out_normalise")),
  Row(dict(name="length_weighted_baseline")),
  Row(dict(name="majority_vote"), equal=None),
  Row(dict(name="max_rl")),
  Row(dict(name="minillm_return", discount=0.5), takes="n t", equal=None),
  Row(dict(name="off_policy_sequence_mask", delta=0.1), takes="n t", equal=None),
  Row(dict(name="optimal_advantage")),
  Row(dict(name="overlong_filter"), equal="kept"),
  Row(dict(name="overlong_penalty", max_tokens=4, cache_tokens=3), equal=None),
  Row(dict(name="pass_at_k")),
  Row(dict(name="pass_at_k", form="unbiased", k=2, threshold=0.0)),
  Row(dict(name="sampler_correction", level="geometric", mode="mask", low=0.9), takes="n t", equal=None),
  Row(dict(name="spread_over_tokens"), equal="kept"),
  Row(dict(name="teacher_log_ratio", discount=0.5), takes="n t", equal=None),
  Row(dict(name="token_rewards"), equal=None),
  Row(dict(name="whiten"), takes="n t", whole_batch=True, equal=None),
]
rows = pytest.mark.parametrize("row", ROWS, ids=lambda r: r.spec["name"])
GROUP_ID = np.array([0, 1, 1, 0, 2, 2, 1, 3])  # sizes 2, 3, 2 and a lone row, which has no action either
N, T = len(GROUP_ID), 7
VIEWS = ("old", "reference", "teacher", "behaviour")
STATISTICS = ("log_probs", "entropy", "value", "self_certainty")


def make(seed=0):
  """A prompt of two, up to five tokens of which the second of some rows is an observation, then padding."""
  rng = np.random.default_rng(seed)
  column, length = np.arange(T), np.array([1, 2, 3, 4, 5, 3, 4, 0])[:, None]
  valid = column < 2 + length
  action = valid & (column >= 2) & ~((column == 3) & (length > 2))

  def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)

  return Rollout(
    tokens=rng.integers(0, 50, (N, T)), valid_mask=valid, action_mask=action, prompt_id=GROUP_ID, group_id=GROUP_ID,
    row_mask=np.arange(N) != 6, reward=normal(N), rewards={"exact": normal(N), "format": normal(N)},
    behaviour_log_probs=normal(N, T), truncated=np.arange(N) % 3 == 1, policy_version=np.zeros(N, np.int32),
    stats={f"{view}.{name}": normal(N, T) for view in VIEWS for name in STATISTICS},
    answer_id=np.array([0, 5, 2, 1, 3, 3, 2, -1]), num_groups=4,
  )  # fmt: skip


def given(row, rollout):
  """The credit that enters: the reward, or a number per token that depends on it."""
  return rollout.reward if row.takes == "n" else rollout.reward[:, None] * (1 + rollout.stats["old.entropy"])


@functools.cache
def compiled(spec):
  part = build(credit, json.loads(spec))

  def update(credit, state, rollout):
    out, state, rollout = part.update(credit, state, rollout)
    provided = {name: x for name, x in rollout.stats.items() if name.startswith("credit.")}
    assert set(provided) == set(part.provides)
    return dict(credit=out, loss_mask=rollout.loss_mask, **provided), state

  return part, jax.jit(update)


def run(row, rollout):
  part, update = compiled(json.dumps(row.spec))
  rollout = jax.tree.map(jnp.asarray, rollout)
  return jax.tree.map(np.asarray, update(given(row, rollout), part.init(), rollout)[0])


def assert_close(got, want):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, want)


@rows
def test_rows_may_be_permuted(row):
  rollout, order = make(), np.random.default_rng(1).permutation(N)
  permuted, want = run(row, jax.tree.map(lambda x: x[order], rollout)), run(row, rollout)
  assert_close(permuted, jax.tree.map(lambda x: x[order], want))


@pytest.mark.parametrize("row", [r for r in ROWS if not r.whole_batch], ids=lambda r: r.spec["name"])
def test_groups_do_not_see_each_other(row):
  rollout, inside = make(), GROUP_ID == 1
  another = make(seed=2)
  other = jax.tree.map(lambda x, y: np.where(inside.reshape(-1, *(1,) * (x.ndim - 1)), y, x), rollout, another)
  got, want = run(row, other), run(row, rollout)
  assert_close(jax.tree.map(lambda x: x[~inside], got), jax.tree.map(lambda x: x[~inside], want))


@rows
def test_masked_rows_are_as_if_deleted_and_nothing_reads_what_stands_off_the_actions(row):
  rollout = make()
  rows, tokens = rollout.row_mask, rollout.action_mask & rollout.row_mask[:, None]

  def poison(x):
    return np.where(rows if x.ndim == 1 else tokens, x, np.nan).astype(np.float32)

  poisoned = rollout.replace(
    reward=poison(rollout.reward), rewards=jax.tree.map(poison, rollout.rewards),
    stats=jax.tree.map(poison, rollout.stats), behaviour_log_probs=poison(rollout.behaviour_log_probs),
  )  # fmt: skip
  got, want = run(row, poisoned), run(row, jax.tree.map(lambda x: x[rows], rollout))
  assert_close(jax.tree.map(lambda x: x[rows], got), want)
  jax.tree.map(lambda x: np.testing.assert_array_equal(x[~rows], 0), got)
  jax.tree.map(lambda x: np.testing.assert_array_equal(x[~tokens] if x.ndim == 2 else 0, 0), got)


@rows
def test_padding_columns_change_nothing(row):
  rollout = make()
  wide = jax.tree.map(lambda x: np.pad(x, ((0, 0), (2, 3))) if x.ndim == 2 else x, rollout)
  got, want = run(row, wide), run(row, rollout)
  assert_close(jax.tree.map(lambda x: x[:, 2:-3] if x.ndim == 2 else x, got), want)


@rows
def test_eight_devices_equal_one(row):
  rollout, (part, update) = make(), compiled(json.dumps(row.spec))
  mesh = make_mesh(8)
  with jax.set_mesh(mesh):
    placed = place(mesh, rollout, ("batch", "time"))
    assert len(placed.reward.sharding.device_set) == 8
    got, _ = update(given(row, placed), part.init(), placed)
  assert_close(jax.tree.map(np.asarray, got), run(row, rollout))


@rows
def test_types_are_stable_and_a_second_call_does_not_recompile(row):
  rollout, (part, update) = jax.tree.map(jnp.asarray, make()), compiled(json.dumps(row.spec))
  out, state = update(given(row, rollout), part.init(), rollout)
  assert out["credit"].dtype == jnp.float32 and out["loss_mask"].dtype == bool
  assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == jax.tree.map(lambda x: (x.shape, x.dtype), part.init())
  before = update._cache_size()
  update(given(row, rollout), state, rollout)
  assert update._cache_size() == before


@pytest.mark.parametrize("row", [r for r in ROWS if r.equal is not None], ids=lambda r: r.spec["name"])
def test_a_group_of_equal_rewards_gets_what_the_method_declares(row):
  rollout, inside = make(), GROUP_ID == 1
  equal = rollout.replace(reward=np.where(inside, np.float32(0.3), rollout.reward))
  got = run(row, equal)["credit"]
  got = got[inside & rollout.row_mask] if got.ndim == 1 else got[rollout.loss_mask & inside[:, None]]
  np.testing.assert_array_equal(got, np.float32(0.3) if row.equal == "kept" else row.equal)


def test_every_method_has_a_row():
  assert {r.spec["name"] for r in ROWS} == set(credit.__all__) - {"chain", "stateless"}
