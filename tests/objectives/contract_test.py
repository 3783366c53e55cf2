"""What every term and every reducer promises inside a train step; one row each. The model is a table of transitions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import credit, objectives
from rlvr_jax.core import Rollout, build
from rlvr_jax.objectives import reducers
from rlvr_jax.sharding import make_mesh, place
from rlvr_jax.train import make_train_step, optimisers

TERMS = [
  dict(name="clipped_surrogate", clip_low=0.1, dual_clip=2.0),
  dict(name="entropy_bonus"),
  dict(name="kl_to_reference", unbiased=True),
  dict(name="negative_log_likelihood"),
  dict(name="reinforce"),
]
REDUCERS = [
  dict(name="constant_length", length=5),
  dict(name="prompt_mean"),
  dict(name="sequence_mean"),
  dict(name="sequence_sum"),
  dict(name="token_mean"),
]
ROWS = [(term, dict(name="token_mean")) for term in TERMS] + [(TERMS[0], reducer) for reducer in REDUCERS[:-1]]
rows = pytest.mark.parametrize("spec", ROWS, ids=lambda s: f"{s[0]['name']}-{s[1]['name']}")
V, N, T = 7, 16, 6
GROUP_ID = np.array([0, 1, 1, 0, 2, 2, 1, 3, 3, 0, 0, 2, 4, 4, 4, 4])
STATS = ("old.log_probs", "reference.log_probs")


class Table:
  """log π(y | x) is the softmax of row x of the table."""

  def hidden(self, params, tokens, positions, valid_mask):
    return jax.nn.one_hot(tokens, V, dtype=params["table"].dtype)

  def head(self, params):
    return params["table"].T

  def axes(self):
    return dict(table=(None, "vocab"))


def make():
  rng = np.random.default_rng(0)
  action = (np.arange(T) >= 2) & (np.arange(T) < 3 + np.arange(N)[:, None] % 4)
  row_mask = np.arange(N) != 6
  return Rollout(
    tokens=rng.integers(0, V, (N, T)).astype(np.int32), valid_mask=np.ones((N, T), bool), action_mask=action,
    prompt_id=GROUP_ID, group_id=GROUP_ID, row_mask=row_mask, reward=rng.normal(size=N).astype(np.float32), rewards={},
    behaviour_log_probs=-np.ones((N, T), np.float32), truncated=np.zeros(N, bool),
    policy_version=np.zeros(N, np.int32), num_groups=5, first_action=1,
    stats={name: rng.normal(-2, 0.3, (N, T)).astype(np.float32) for name in STATS},
  )  # fmt: skip


def params(dtype="float32"):
  """Numbers that bfloat16 holds exactly."""
  return dict(table=jax.random.normal(jax.random.key(1), (V, V)).astype(jnp.bfloat16).astype(dtype))


@functools.cache
def steps(term, reducer, num_microbatches):
  """Old and reference log-probs are supplied, so that ratios differ from 1 and every branch is taken."""
  made = make_train_step(
    Table(), optimisers.sgd(1.0),
    credit.chain(("g", credit.group_normalise()), ("s", credit.spread_over_tokens())),
    [("term", 1.0, build(objectives, dict(term)))], build(reducers, dict(reducer)),
    num_microbatches=num_microbatches, supplied=STATS, chunk_tokens=20,
  )  # fmt: skip
  return made.init, jax.jit(made.step)


def run(spec, rollout, num_microbatches=1, dtype="float32"):
  """Loss and gradient; with a rate of 1 and no clipping the update is the gradient."""
  init, step = steps(*(tuple(s.items()) for s in spec), num_microbatches)
  before = init(params(dtype), 0)
  after, metrics = step(before, jax.tree.map(jnp.asarray, rollout))
  assert after.params["table"].dtype == dtype
  grad = before.params["table"].astype(jnp.float32) - after.params["table"].astype(jnp.float32)
  assert np.isfinite(jax.tree.leaves(jax.device_get(metrics))).all()
  return float(metrics["loss"].mean()), np.asarray(grad)


def assert_same(a, b, tolerance=2e-6):
  np.testing.assert_allclose(a[0], b[0], atol=tolerance, rtol=1e-5)
  np.testing.assert_allclose(a[1], b[1], atol=tolerance)
  assert np.abs(b[1]).max() > 1e-3  # there is a gradient to compare


def widened(rollout, left, right, fill):
  def one(x):
    if x.ndim < 2:
      return x
    return np.pad(x, ((0, 0), (left, right)), constant_values=np.asarray(fill if x.dtype == np.float32 else 0, x.dtype))

  return jax.tree.map(one, rollout)


@rows
def test_padding_columns_change_nothing_even_full_of_nan(spec):
  assert_same(run(spec, widened(make(), 2, 3, np.nan)), run(spec, make()))


@rows
def test_nan_off_the_loss_mask_is_not_read(spec):
  rollout = make()
  mask = np.asarray(rollout.loss_mask)
  poison = lambda x: np.where(mask, x, np.nan).astype(np.float32)
  poisoned = rollout.replace(
    stats={k: poison(x) for k, x in rollout.stats.items()}, behaviour_log_probs=poison(rollout.behaviour_log_probs),
    reward=np.where(rollout.row_mask, rollout.reward, np.nan).astype(np.float32),
  )  # fmt: skip
  assert_same(run(spec, poisoned), run(spec, rollout))


@rows
def test_rows_may_be_permuted(spec):
  order = np.random.default_rng(3).permutation(N)
  assert_same(run(spec, jax.tree.map(lambda x: x[order], make())), run(spec, make()))


@rows
def test_masked_rows_are_as_if_deleted(spec):
  rollout = make().replace(row_mask=np.arange(N) % 2 == 0)
  assert_same(run(spec, rollout), run(spec, jax.tree.map(lambda x: x[::2], rollout)))


@rows
def test_microbatches_change_nothing(spec):
  assert_same(run(spec, make(), 4), run(spec, make()))


@rows
def test_an_empty_batch_has_no_gradient_and_a_finite_loss(spec):
  loss, grad = run(spec, make().replace(row_mask=np.zeros(N, bool)))
  assert loss == 0 and not grad.any()


@pytest.mark.parametrize("spec", ROWS[: len(TERMS)], ids=lambda s: s[0]["name"])
def test_bfloat16_parameters_keep_everything_else_float32(spec):
  """The parameters and their products are exact here, so the loss is too; only the new parameters are rounded."""
  low, full = run(spec, make(), dtype="bfloat16"), run(spec, make())
  np.testing.assert_allclose(low[0], full[0], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(low[1], full[1], atol=2**-7)


@rows
def test_eight_devices_equal_one(spec):
  mesh = make_mesh(8)
  with jax.set_mesh(mesh):
    init, step = steps(*(tuple(s.items()) for s in spec), 4)
    before = init(params(), 0)
    rollout = place(mesh, make(), ("batch", "time"))
    after, metrics = step(before, rollout)
    assert len(rollout.tokens.sharding.device_set) == 8 and not rollout.tokens.sharding.is_fully_replicated
    got = float(metrics["loss"].mean()), np.asarray(before.params["table"] - after.params["table"])
  assert_same(got, run(spec, make()))


def test_every_method_has_a_row():
  assert {s["name"] for s in TERMS} == set(objectives.__all__)
  assert {s["name"] for s in REDUCERS} == set(reducers.__all__)
