"""What every transform of the credit chain promises; one row each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import credit
from rlvr_jax.core import Rollout, build
from rlvr_jax.sharding import make_mesh, place

ROWS = [dict(name="group_normalise", ddof=1), dict(name="leave_one_out"), dict(name="spread_over_tokens")]
rows = pytest.mark.parametrize("spec", ROWS, ids=lambda s: s["name"])
GROUP_ID = np.array([0, 1, 1, 0, 2, 2, 1, 3])  # sizes 2, 3, 2 and a lone row
N, T = len(GROUP_ID), 5


def make(seed=0):
  rng = np.random.default_rng(seed)
  action = (np.arange(T) >= 2) & (np.arange(T) < 3 + np.arange(N)[:, None] % 3)
  return Rollout(
    tokens=np.zeros((N, T), np.int32), valid_mask=np.ones((N, T), bool), action_mask=action,
    prompt_id=GROUP_ID, group_id=GROUP_ID, row_mask=np.arange(N) != 6, reward=rng.normal(size=N).astype(np.float32),
    rewards={}, behaviour_log_probs=np.zeros((N, T), np.float32), truncated=np.zeros(N, bool),
    policy_version=np.zeros(N, np.int32), num_groups=4,
  )  # fmt: skip


def run(spec, rollout):
  part = build(credit, spec)
  rollout = jax.tree.map(jnp.asarray, rollout)
  out, state, _ = jax.jit(part.update)(rollout.reward, part.init(), rollout)
  assert jax.tree.structure(state) == jax.tree.structure(part.init())
  assert out.dtype == jnp.float32
  return np.asarray(out)


@rows
def test_rows_may_be_permuted(spec):
  rollout, order = make(), np.random.default_rng(1).permutation(N)
  np.testing.assert_allclose(run(spec, jax.tree.map(lambda x: x[order], rollout)), run(spec, rollout)[order], atol=1e-6)


@rows
def test_groups_do_not_see_each_other(spec):
  rollout = make()
  other = rollout.replace(reward=np.where(GROUP_ID == 1, 7.0, rollout.reward).astype(np.float32))
  np.testing.assert_allclose(run(spec, other)[GROUP_ID != 1], run(spec, rollout)[GROUP_ID != 1], atol=1e-6)


@rows
def test_masked_rows_are_as_if_deleted_and_nan_there_is_not_read(spec):
  rollout = make()
  poisoned = rollout.replace(reward=np.where(rollout.row_mask, rollout.reward, np.nan).astype(np.float32))
  kept = run(spec, jax.tree.map(lambda x: x[rollout.row_mask], rollout))
  got = run(spec, poisoned)
  np.testing.assert_allclose(got[rollout.row_mask], kept, atol=1e-6)
  np.testing.assert_array_equal(got[~rollout.row_mask], 0)


@rows
def test_padding_columns_change_nothing(spec):
  rollout = make()
  wide = jax.tree.map(lambda x: np.pad(x, ((0, 0), (2, 3))) if x.ndim == 2 else x, rollout)
  got, want = run(spec, wide), run(spec, rollout)
  np.testing.assert_array_equal(got[:, 2:-3] if got.ndim == 2 else got, want)


@rows
def test_eight_devices_equal_one(spec):
  rollout, part = make(), build(credit, spec)
  mesh = make_mesh(8)
  with jax.set_mesh(mesh):
    placed = place(mesh, rollout, ("batch", "time"))
    got = jax.jit(part.update)(placed.reward, part.init(), placed)[0]
    assert len(placed.reward.sharding.device_set) == 8
  np.testing.assert_allclose(got, run(spec, rollout), atol=1e-6)


def test_every_method_has_a_row():
  assert {s["name"] for s in ROWS} == set(credit.__all__) - {"chain", "stateless"}
