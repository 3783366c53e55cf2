"""What every term and every reducer promises inside a train step; one row each. The model is a table of transitions.

All of them are in one program, which is given which one counts, so that a property costs one compilation and not one
per row. What is not finite in one fails all.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from table import HeadedTable

from rlvr_jax import credit, objectives
from rlvr_jax.core import Rollout, Weights, build
from rlvr_jax.objectives import reducers
from rlvr_jax.sharding import make_mesh, place
from rlvr_jax.train import ViewSpec, make_train_step, optimisers

TERMS = [
  dict(name="clipped_surrogate", clip_low=0.1, dual_clip=2.0),
  dict(name="a_star_po", beta2=0.5),
  dict(name="cispo", low=0.8, high=1.3),
  dict(name="dppo_tv", delta_low=0.02, delta_high=0.02),
  dict(name="entropy_bonus"),
  dict(name="flow_rl", beta=2.0),
  dict(name="generalised_jsd", beta=0.3),
  dict(name="gmpo"),
  dict(name="gspo", clip_low=0.2, clip_high=0.3),
  dict(name="gspo", clip_low=0.2, clip_high=0.3, form="token"),
  dict(name="kl_cov_penalty"),
  dict(name="kl_to_reference", unbiased=True),
  dict(name="kl_to_reference", estimator="k3+"),
  dict(name="mirror_descent", tau=0.5),
  dict(name="negative_log_likelihood"),
  dict(name="reinforce"),
  dict(name="sampled_reverse_kl", max_ratio=2.0),
  dict(name="sapo"),
  dict(name="top_k_kl", k=3),
  dict(name="top_k_kl", k=3, direction="reverse", tail="renormalise"),
  dict(name="value_loss", clip=0.5),
  dict(name="vespo"),
]
REDUCERS = [
  dict(name="token_mean"),
  dict(name="constant_length", length=5),
  dict(name="length_weighted"),
  dict(name="prompt_mean"),
  dict(name="sequence_mean"),
  dict(name="sequence_mean", count_empty=True),
  dict(name="sequence_sum"),
  dict(name="token_sum"),
  dict(name="local_token_mean", num_parts=2),
]
# Positions in the two lists: every term under the first reducer, the first term under every reducer.
ROWS = [(i, 0) for i in range(len(TERMS))] + [(0, j) for j in range(1, len(REDUCERS))]
OF_ANY_ORDER = [(i, j) for i, j in ROWS if REDUCERS[j]["name"] != "local_token_mean"]


def label(row):
  return "-".join(str(v) for spec in (TERMS[row[0]], REDUCERS[row[1]]) for k, v in spec.items())


rows = pytest.mark.parametrize("row", ROWS, ids=label)
rows_of_any_order = pytest.mark.parametrize("row", OF_ANY_ORDER, ids=label)
V, N, T = 7, 16, 6
GROUP_ID = np.array([0, 1, 1, 0, 2, 2, 1, 3, 3, 0, 0, 2, 4, 4, 4, 4])
LOG_PROBS = ("old.log_probs", "reference.log_probs", "teacher.log_probs")
STATS = (*LOG_PROBS, "old.value", "credit.returns", "credit.kl_cov")


def make():
  rng = np.random.default_rng(0)
  action = (np.arange(T) >= 2) & (np.arange(T) < 3 + np.arange(N)[:, None] % 4)
  row_mask = np.arange(N) != 6
  normal = lambda mean, std: rng.normal(mean, std, (N, T)).astype(np.float32)
  stats = {name: normal(-2, 0.3) for name in LOG_PROBS} | {"old.value": normal(0, 1), "credit.returns": normal(0, 1)}
  return Rollout(
    tokens=rng.integers(0, V, (N, T)).astype(np.int32), valid_mask=np.ones((N, T), bool), action_mask=action,
    prompt_id=GROUP_ID, group_id=GROUP_ID, row_mask=row_mask, reward=rng.normal(size=N).astype(np.float32), rewards={},
    behaviour_log_probs=-np.ones((N, T), np.float32), truncated=np.zeros(N, bool),
    policy_version=np.zeros(N, np.int32), num_groups=5, first_action=1,
    stats=stats | {"credit.kl_cov": (rng.random((N, T)) < 0.5).astype(np.float32)},
  )  # fmt: skip


def table(seed):
  return jax.random.normal(jax.random.key(seed), (V, V))


def params(dtype="float32"):
  """Numbers that bfloat16 holds exactly."""
  out = dict(table=table(1), value=table(2)[0], log_z=table(2)[1])
  return jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(dtype), out)


@functools.cache
def program(num_microbatches):
  """Old, reference and teacher log-probs are supplied, so that ratios differ from 1 and every branch is taken."""
  parts = credit.chain(("g", credit.group_normalise()), ("s", credit.spread_over_tokens()))
  names = [f"term{i}" for i in range(len(TERMS))]
  each = [build(reducers, spec) for spec in REDUCERS]

  @jax.jit
  def step(term_weights, reducer_weights, params, rollout):
    def reduce(rollout):
      answers = [reduce(rollout) for reduce in each]
      return Weights(*(sum(w * x for w, x in zip(reducer_weights, xs)) for xs in zip(*answers)))

    objective = [(name, w, build(objectives, spec)) for name, w, spec in zip(names, term_weights, TERMS)]
    made = make_train_step(
      HeadedTable(), optimisers.sgd(1.0), parts, objective, reduce, num_microbatches=num_microbatches,
      supplied=STATS, views=dict(teacher=ViewSpec("given")), chunk_tokens=20,
    )  # fmt: skip
    before = made.init(params, 0, dict(teacher=dict(table=table(5), value=params["value"], log_z=params["log_z"])))
    after, metrics = made.step(before, rollout)
    return after.params, metrics

  return step


def run(row, rollout, num_microbatches=1, dtype="float32"):
  """Loss and gradient; with a rate of 1 and no clipping the update is the gradient."""
  before = params(dtype)
  which = [jnp.zeros(len(specs)).at[index].set(1.0) for specs, index in zip((TERMS, REDUCERS), row)]
  after, metrics = program(num_microbatches)(*which, before, jax.tree.map(jnp.asarray, rollout))
  assert all(x.dtype == dtype for x in jax.tree.leaves(after))
  after, before, metrics = jax.device_get((after, before, metrics))
  assert np.isfinite(jax.tree.leaves(metrics)).all()
  moved = [np.ravel(np.float32(before[name]) - np.float32(after[name])) for name in sorted(before)]
  return float(metrics["loss"].mean()), np.concatenate(moved)


@functools.cache
def plain(row):
  return run(row, make())


def assert_same(a, b, tolerance=2e-6):
  size = np.abs(b[1]).max()
  assert size > 1e-3  # there is a gradient to compare
  np.testing.assert_allclose(a[0], b[0], atol=tolerance, rtol=1e-5)
  np.testing.assert_allclose(a[1], b[1], atol=tolerance * max(1.0, size))


def widened(rollout, left, right, fill):
  def one(x):
    if x.ndim < 2:
      return x
    return np.pad(x, ((0, 0), (left, right)), constant_values=np.asarray(fill if x.dtype == np.float32 else 0, x.dtype))

  return jax.tree.map(one, rollout)


@rows
def test_padding_columns_change_nothing_even_full_of_nan(row):
  assert_same(run(row, widened(make(), 2, 3, np.nan)), plain(row))


@rows
def test_nan_off_the_loss_mask_is_not_read(row):
  rollout = make()
  mask = np.asarray(rollout.loss_mask)
  poison = lambda x: np.where(mask, x, np.nan).astype(np.float32)
  poisoned = rollout.replace(
    stats={k: poison(x) for k, x in rollout.stats.items()}, behaviour_log_probs=poison(rollout.behaviour_log_probs),
    reward=np.where(rollout.row_mask, rollout.reward, np.nan).astype(np.float32),
  )  # fmt: skip
  assert_same(run(row, poisoned), plain(row))


@rows_of_any_order
def test_rows_may_be_permuted(row):
  order = np.random.default_rng(3).permutation(N)
  assert_same(run(row, jax.tree.map(lambda x: x[order], make())), plain(row))


@rows_of_any_order
def test_masked_rows_are_as_if_deleted(row):
  rollout = make().replace(row_mask=np.arange(N) % 2 == 0)
  assert_same(run(row, rollout), run(row, jax.tree.map(lambda x: x[::2], rollout)))


@rows
def test_microbatches_change_nothing(row):
  assert_same(run(row, make(), 4), plain(row))


@rows
def test_an_empty_batch_has_no_gradient_and_a_finite_loss(row):
  loss, grad = run(row, make().replace(row_mask=np.zeros(N, bool)))
  assert loss == 0 and not grad.any()


@pytest.mark.parametrize("row", ROWS[: len(TERMS)], ids=label)
def test_bfloat16_parameters_keep_everything_else_float32(row):
  """The parameters and their products are exact here, so the loss is too; only the new parameters are rounded."""
  low, full = run(row, make(), dtype="bfloat16"), plain(row)
  np.testing.assert_allclose(low[0], full[0], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(low[1], full[1], atol=2**-6 * max(1.0, np.abs(full[1]).max()))


@rows
def test_eight_devices_equal_one(row):
  mesh = make_mesh(8)
  with jax.set_mesh(mesh):
    rollout = place(mesh, make(), ("batch", "time"))
    assert len(rollout.tokens.sharding.device_set) == 8 and not rollout.tokens.sharding.is_fully_replicated
    got = run(row, rollout, 4)
  assert_same(got, plain(row))


def test_every_method_has_a_row():
  assert {s["name"] for s in TERMS} == set(objectives.__all__)
  assert {s["name"] for s in REDUCERS} == set(reducers.__all__)
