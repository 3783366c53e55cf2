"""Which prompts come next: uniform, epochs, MoPPS, SPEED-RL."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlvr_jax.selection as selection
from rlvr_jax.core import build
from rlvr_jax.selection.order import order_of, permuted

KEYS = jax.random.split(jax.random.key(7), 4000)
ROWS = [
  dict(name="uniform"),
  dict(name="epochs"),
  dict(name="epochs", shuffle=False),
  dict(name="mopps"),
  dict(name="mopps", num_candidates=6),
  dict(name="speed_rl", num_candidates=5),
]


def proposals(part, num_steps, key=KEYS[0], state=None):
  """All batches of a run, and its last state."""

  def step(state, key):
    index, state = part.propose(state, key)
    return state, index

  state, index = jax.lax.scan(step, part.init() if state is None else state, jax.random.split(key, num_steps))
  return np.asarray(index), state


@pytest.mark.parametrize("num", [1, 2, 3, 5, 13, 64, 65, 97, 1000])
def test_an_order_is_a_permutation(num):
  order = jax.jit(lambda key: permuted(jnp.arange(num), order_of(key), num))
  assert sorted(order(KEYS[0]).tolist()) == list(range(num))


def test_an_order_of_a_large_pool_needs_only_the_places_asked_for():
  for num in (10**6, 2**31 - 1):
    index = np.asarray(jax.jit(lambda key, num=num: permuted(num - 500 + jnp.arange(500), order_of(key), num))(KEYS[0]))
    assert len(set(index.tolist())) == 500 and 0 <= index.min() and index.max() < num
    assert abs(index.mean() / num - 0.5) < 4 * np.sqrt(1 / 12 / 500)


def test_orders_are_uniform():
  # 4000 orders of 4 prompts: chi square with 23 degrees of freedom over all 24; 49.7 is its 0.999 quantile.
  drawn = np.asarray(jax.jit(jax.vmap(lambda key: permuted(jnp.arange(4), order_of(key), 4)))(KEYS))
  counts = np.array([(drawn == np.array(p)).all(axis=1).sum() for p in itertools.permutations(range(4))])
  assert counts.sum() == 4000 and ((counts - 4000 / 24) ** 2 / (4000 / 24)).sum() < 49.7


def test_an_order_depends_on_all_of_its_bits():
  bits = jnp.array([[1, 1], [1, 2], [2, 1], [1, 1 + 2**31], [1 + 2**31, 1]], jnp.uint32)
  orders = jax.jit(jax.vmap(lambda order: permuted(jnp.arange(30), order, 1000)))(bits)
  assert len({tuple(order) for order in orders.tolist()}) == 5


@pytest.mark.parametrize("spec", ROWS, ids=str)
def test_contract(spec):
  # Indices in range and distinct, same key same proposal, another key another, state type stable, vmap over seeds.
  part = build(selection, spec, num_prompts=50, per_step=4)
  state = part.init()
  many, after = jax.jit(jax.vmap(part.propose, (None, 0)))(state, jnp.stack([KEYS[0], KEYS[0], KEYS[1]]))
  first, again, other = many.tolist()
  assert len(first) == len(set(first)) == part.num_proposed and set(first) <= set(range(50))
  assert first == again and (first == other) == (spec.get("shuffle") is False)
  after = jax.tree.map(lambda x: x[0], after)
  ones = jnp.ones(part.num_proposed)
  seen = jax.jit(part.observe)(after, many[0], ones, 2 * ones)
  spec_of = lambda s: jax.tree.map(lambda x: (x.shape, x.dtype), s)
  assert spec_of(state) == spec_of(after) == spec_of(seen)


def test_every_builder_has_a_row():
  assert {row["name"] for row in ROWS} == set(selection.__all__) - {"replay"}


def test_uniform_counts():
  # 2000 batches of 3 out of 10: each prompt in Binomial(2000, 0.3), each pair in Binomial(2000, 3/10 * 2/9).
  index, _ = proposals(selection.uniform(10, 3), 2000)
  inside = (index[:, :, None] == np.arange(10)).any(axis=1)
  assert np.abs(inside.sum(axis=0) - 600).max() < 4 * np.sqrt(2000 * 0.3 * 0.7)
  pairs = (inside[:, :, None] & inside[:, None, :]).sum(axis=0)[np.triu_indices(10, 1)]
  assert np.abs(pairs - 2000 / 15).max() < 4 * np.sqrt(2000 / 15)


@pytest.mark.parametrize("num_prompts, per_step", [(1, 1), (7, 7), (12, 4), (13, 4)])
def test_an_epoch_has_each_prompt_once(num_prompts, per_step):
  batches = num_prompts // per_step
  index, _ = proposals(selection.epochs(num_prompts, per_step), 3 * batches)
  passes = index.reshape(3, batches * per_step)
  for epoch in passes:
    assert len(set(epoch.tolist())) == batches * per_step
  if num_prompts > 7:
    assert len({tuple(epoch) for epoch in passes}) == 3  # each in an order of its own


def test_no_prompt_waits_forever():
  # 13 prompts, 12 per epoch: which one waits is drawn anew, so 20 epochs leave out different ones.
  index, _ = proposals(selection.epochs(13, 4), 60)
  assert len({(set(range(13)) - set(epoch)).pop() for epoch in index.reshape(20, 12).tolist()}) > 5


def test_epochs_in_order_go_round():
  index, _ = proposals(selection.epochs(5, 2, shuffle=False), 6)
  assert index.tolist() == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4], [0, 1]]


@pytest.mark.parametrize("stop", [0, 2, 3, 4])
def test_a_restored_epoch_goes_on(stop):
  # The keys of steps are derived from the step, so a resumed run has the same ones.
  part, keys = selection.epochs(13, 4), jax.random.split(KEYS[0], 7)
  propose = jax.jit(part.propose)

  def run(state, keys):
    batches = []
    for key in keys:
      index, state = propose(state, key)
      batches.append(index.tolist())
    return state, batches

  _, whole = run(part.init(), keys)
  saved, first = run(part.init(), keys[:stop])
  saved = jax.tree.map(np.array, saved)  # as read from a checkpoint
  _, rest = run(jax.tree.map(jnp.asarray, saved), keys[stop:])
  assert first + rest == whole


def test_mopps_posterior_by_hand():
  # λ = 1/4, prior Beta(2, 1); prompt 1: 3 of 4, then 0 of 2; prompt 2: no verdict.
  # α: 2/4 + 3·2/4 + 3 = 5, then 5/4 + 3·2/4 + 0 = 2.75.   β: 1/4 + 3/4 + 1 = 2, then 2/4 + 3/4 + 2 = 3.25.
  part = selection.mopps(3, 2, decay=0.25, prior_a=2.0, prior_b=1.0)
  state = part.observe(part.init(), jnp.array([1, 2]), jnp.array([3.0, 0.0]), jnp.array([4.0, 0.0]))
  assert state.alpha.tolist() == [2, 5, 2] and state.beta.tolist() == [1, 2, 1]
  state = part.observe(state, jnp.array([1, 2]), jnp.array([0.0, 0.0]), jnp.array([2.0, 0.0]))
  assert state.alpha.tolist() == [2, 2.75, 2] and state.beta.tolist() == [1, 3.25, 1]
  state = part.observe(state, jnp.array([0, 1]), jnp.array([1.0, 0.0]), jnp.array([1.0, 0.0]))
  assert state.alpha.tolist() == [3, 2.75, 2] and state.beta.tolist() == [1, 3.25, 1]


def test_mopps_samples_its_posterior_and_takes_the_nearest():
  # Posteriors so sharp that samples are their means 0.1, 0.45, 0.9, 0.6: the two nearest to each target.
  mean = jnp.array([0.1, 0.45, 0.9, 0.6])
  state = selection.mopps(4, 2).init()._replace(alpha=1e6 * mean, beta=1e6 * (1 - mean))
  near = jax.vmap(lambda target: selection.mopps(4, 2, target=target).propose(state, KEYS[0])[0])
  assert [set(x) for x in jax.jit(near)(jnp.array([0.5, 1.0, 0.0])).tolist()] == [{1, 3}, {2, 3}, {0, 1}]
  # Beta(2, 1) against a certain 0.25, target 0.5: nearer with P(0.25 < X < 0.75) = 0.75² - 0.25² = 0.5.
  part = selection.mopps(2, 1)
  state = part.init()._replace(alpha=jnp.array([2.0, 2.5e6]), beta=jnp.array([1.0, 7.5e6]))
  first = jax.jit(jax.vmap(lambda key: part.propose(state, key)[0][0]))(KEYS) == 0
  assert abs(float(first.mean()) - 0.5) < 4 * np.sqrt(0.25 / 4000)


def test_mopps_concentrates_on_prompts_of_intermediate_difficulty():
  # A bandit of 40 prompts, 8 with rate 0.5, the others 0 or 1; 8 per step, 4 completions each. Uniform: a fifth.
  rate = jnp.tile(jnp.array([0.5, 0.0, 0.0, 1.0, 1.0]), 8)
  part = selection.mopps(40, 8, num_candidates=24, decay=0.9)

  def step(state, key):
    propose_key, sample_key = jax.random.split(key)
    index, state = part.propose(state, propose_key)
    correct = jax.random.bernoulli(sample_key, rate[index][:, None], (8, 4)).sum(axis=1).astype(jnp.float32)
    return part.observe(state, index, correct, jnp.full((8,), 4.0)), jnp.mean(rate[index] == 0.5)

  run = lambda key: jax.lax.scan(step, part.init(), jax.random.split(key, 60))[1]
  share = jax.jit(jax.vmap(run))(KEYS[:8]).mean(axis=0)
  # 24 candidates hold 4.8 of the 8 on average: no more than 0.6 can be had.
  assert share[0] < 0.35 and share[-20:].mean() > 0.45


def test_speed_rl_by_hand():
  # Verdicts (correct of judged): passes are 1/4 and 3/4; 0, all, and no verdict do not.
  part = selection.speed_rl(20, 2, num_candidates=5, capacity=3)
  correct, judged = jnp.array([1.0, 0.0, 4.0, 3.0, 0.0]), jnp.array([4.0, 4.0, 4.0, 4.0, 0.0])
  assert part.screen(correct, judged).tolist() == [True, False, False, True, False]
  state = part.observe(part.init(), jnp.array([10, 11, 12, 13, 14]), correct, judged)
  assert state.queue.tolist() == [10, 13, -1] and int(state.size) == 2
  # 13 waits already; of 15, 16 and 17 one fits.
  state = part.observe(state, jnp.array([13, 15, 16, 17, 18]), jnp.array([1.0, 1, 1, 1, 0]), jnp.full((5,), 2.0))
  assert state.queue.tolist() == [10, 13, 15] and (int(state.size), int(state.num_dropped)) == (3, 2)
  index, state = part.take(state)
  assert index.tolist() == [10, 13] and state.queue.tolist() == [15, -1, -1] and int(state.size) == 1
  index, state = part.take(state)
  assert index.tolist() == [15, -1] and int(state.size) == 0


def test_speed_rl_bounds_are_excluded():
  part = selection.speed_rl(20, 1, num_candidates=4, low=0.25, high=0.75)
  assert part.screen(jnp.array([1.0, 2, 3, 4]), jnp.full((4,), 4.0)).tolist() == [False, True, False, False]


def test_speed_rl_iterations():
  # Rate 0.5 for even prompts, 0 or 1 for odd ones. Every batch is of even prompts, distinct; nothing is lost.
  part = selection.speed_rl(30, 4, num_candidates=6)
  rate = jnp.where(jnp.arange(30) % 2 == 0, 0.5, jnp.arange(30) % 4 // 2)

  def iteration(state, key):
    def screen(carry):
      state, key = carry
      key, propose_key, sample_key = jax.random.split(key, 3)
      index, state = part.propose(state, propose_key)
      correct = jax.random.bernoulli(sample_key, rate[index][:, None], (6, 8)).sum(axis=1)
      return part.observe(state, index, correct, jnp.full((6,), 8)), key

    state, _ = jax.lax.while_loop(lambda carry: carry[0].size < 4, screen, (state, key))
    index, state = part.take(state)
    return state, index

  state, index = jax.jit(lambda key: jax.lax.scan(iteration, part.init(), jax.random.split(key, 25)))(KEYS[0])
  assert (index % 2 == 0).all() and int(state.num_dropped) == 0
  assert all(len(set(batch)) == 4 for batch in index.tolist())
  assert len(set(index.reshape(-1).tolist())) == 15


@pytest.mark.parametrize(
  "spec, message",
  [
    (dict(name="uniform", num_prompts=0, per_step=1), "uniform: num_prompts must be >= 1"),
    (dict(name="uniform", num_prompts=3, per_step=4), r"uniform: per_step must be in \[1, num_prompts = 3\], got 4"),
    (dict(name="epochs", num_prompts=3, per_step=0), "epochs: per_step must be in"),
    (dict(name="epochs", num_prompts=2**31, per_step=1), "epochs: num_prompts must be >= 1 and < 2147483648"),
    (dict(name="mopps", num_prompts=9, per_step=4, num_candidates=3), r"num_candidates must be in \[per_step = 4"),
    (dict(name="mopps", num_prompts=9, per_step=4, target=1.5), "mopps: target must be >= 0 and <= 1, got 1.5"),
    (dict(name="mopps", num_prompts=9, per_step=4, decay=-0.1), "mopps: decay"),
    (dict(name="mopps", num_prompts=9, per_step=4, prior_a=0.0), "mopps: prior_a must be > 0"),
    (dict(name="mopps", num_prompts=9, per_step=4, prior_b=0.0), "mopps: prior_b must be > 0"),
    (dict(name="speed_rl", num_prompts=9, per_step=4, num_candidates=10), "speed_rl: num_candidates must be in"),
    (dict(name="speed_rl", num_prompts=9, per_step=4, num_candidates=9, capacity=3), "speed_rl: capacity must be >= 4"),
    (dict(name="speed_rl", num_prompts=9, per_step=4, num_candidates=9, low=1.0), "speed_rl: low"),
    (dict(name="speed_rl", num_prompts=9, per_step=4, num_candidates=9, high=0.0), "speed_rl: high"),
    (dict(name="mops", num_prompts=9, per_step=4), "did you mean 'mopps'"),
  ],
)
def test_bad_settings_raise(spec, message):
  with pytest.raises(ValueError, match=message):
    build(selection, spec)
