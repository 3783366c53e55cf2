"""Terms and reducers by hand, and exact expected gradients by enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import rollout

from rlvr_jax import credit, objectives
from rlvr_jax.objectives import reducers


def reduced(reducer, per_token, *args, **kwargs):
  weights = reducer(rollout(*args, **kwargs))
  return float(jnp.sum(weights.token * jnp.array(per_token, jnp.float32)) / weights.total)


# Two rows with losses [1] and [3, 3, 3].
ACTION, LOSSES = [[0, 1, 0, 0], [0, 1, 1, 1]], [[9, 1, 9, 9], [9, 3, 3, 3]]


@pytest.mark.parametrize(
  "reducer, value",
  [
    (reducers.token_mean(), 2.5),
    (reducers.sequence_mean(), 2.0),
    (reducers.sequence_sum(), 5.0),
    (reducers.constant_length(4), 1.25),
    (reducers.prompt_mean(), 2.0),
    (reducers.length_weighted(), 5.0),
    (reducers.token_sum(), 10.0),
    (reducers.local_token_mean(2), 2.0),  # a mean of the means of two microbatches of one row
    (reducers.local_token_mean(1), 2.5),
  ],
)
def test_reducers(reducer, value):
  assert reduced(reducer, LOSSES, ACTION) == pytest.approx(value)
  # A row without a verdict, and one without a token, are as if they were not there.
  action, losses = [*ACTION, [0, 1, 1, 0], [0, 0, 0, 0]], [*LOSSES, [7, 7, 7, 7], [7, 7, 7, 7]]
  masked = reduced(reducer, losses, action, row_mask=[True, True, False, True])
  assert masked == pytest.approx(value)


def test_prompt_mean_counts_groups():
  """Group 0 has rows [1] and [3, 3, 3], mean 2.5; group 1 the row [4, 4], mean 4: (2.5 + 4) / 2."""
  losses, action = [*LOSSES, [9, 4, 4, 9]], [*ACTION, [0, 1, 1, 0]]
  assert reduced(reducers.prompt_mean(), losses, action, group_id=[0, 0, 1]) == pytest.approx(3.25)


@pytest.mark.parametrize(
  "make, value, counting",
  [
    (reducers.sequence_mean, 2.0, 4 / 3),
    (reducers.sequence_sum, 5.0, 10 / 3),
    (reducers.length_weighted, 5.0, 10 / 3),
    (lambda **kw: reducers.constant_length(4, **kw), 1.25, 10 / 12),
    (reducers.prompt_mean, 2.0, 4 / 3),
  ],
)
def test_count_empty(make, value, counting):
  """Three rows with a verdict, one of them without a token, and a row without a verdict, which never counts."""
  action, losses = [*ACTION, [0, 0, 0, 0], [0, 1, 1, 0]], [*LOSSES, [7, 7, 7, 7], [7, 7, 7, 7]]
  row_mask = [True, True, True, False]
  assert reduced(make(), losses, action, row_mask=row_mask) == pytest.approx(value)
  assert reduced(make(count_empty=True), losses, action, row_mask=row_mask) == pytest.approx(counting)


def test_local_token_mean_depends_on_the_order_of_rows():
  """Parts take rows in turn: {[1], [4, 4]} and {[3, 3, 3], [2]} have means 3 and 11/4."""
  action, losses = [*ACTION, [0, 1, 1, 0], [0, 1, 0, 0]], [*LOSSES, [9, 4, 4, 9], [9, 2, 9, 9]]
  assert reduced(reducers.local_token_mean(2), losses, action) == pytest.approx((3 + 11 / 4) / 2)
  with pytest.raises(ValueError, match="num_parts must divide the rows, 4, got 3"):
    reduced(reducers.local_token_mean(3), losses, action)


def test_prompt_mean_weighs_rows_by_their_tokens_and_sequence_mean_does_not():
  """One group with rows [1] and [3, 3, 3]: 10/4 against (1 + 3)/2."""
  assert reduced(reducers.prompt_mean(), LOSSES, ACTION, group_id=[0, 0]) == pytest.approx(2.5)
  assert reduced(reducers.sequence_mean(), LOSSES, ACTION, group_id=[0, 0]) == pytest.approx(2.0)


EVERY = [
  reducers.constant_length(4), reducers.length_weighted(), reducers.local_token_mean(2), reducers.prompt_mean(),
  reducers.sequence_mean(), reducers.sequence_sum(), reducers.token_mean(), reducers.token_sum(),
  reducers.sequence_mean(count_empty=True), reducers.prompt_mean(count_empty=True),
]  # fmt: skip


@pytest.mark.parametrize("reducer", EVERY, ids=range(len(EVERY)))
def test_reducers_count_after_all_masks(reducer):
  """A token that a credit link takes out of the loss is in neither sum nor divisor, as if it had not been sampled."""
  kept = jnp.array([[0, 1, 0, 0], [0, 1, 0, 1]], bool)
  narrowed, shorter = reducer(rollout(ACTION).keeping(kept)), reducer(rollout(kept))
  jax.tree.map(np.testing.assert_array_equal, narrowed, shorter)


@pytest.mark.parametrize("reducer", EVERY, ids=range(len(EVERY)))
def test_reducers_of_nothing_have_no_weight(reducer):
  weights = reducer(rollout(ACTION, row_mask=[False, False]))
  assert weights.total == 0 and np.isfinite(weights.token).all() and not weights.token.any()


def surrogate(ratio, advantage, **kwargs):
  """Value and derivative by log π of one token of the given ratio."""
  batch = rollout([[1]], **{"old.log_probs": jnp.full((1, 1), -1.0)})
  term = objectives.clipped_surrogate(**kwargs)
  log_prob = -1.0 + jnp.log(ratio)
  loss = lambda x: term.loss(dict(log_probs=jnp.full((1, 1), x)), batch, jnp.full((1, 1), advantage))[0][0, 0]
  return tuple(map(float, jax.value_and_grad(loss)(log_prob)))


@pytest.mark.parametrize(
  "ratio, advantage, value, slope",
  [
    (1.0, 2.0, -2.0, -2.0),  # on policy: all of the gradient, although min and clip are tied
    (1.0, -2.0, 2.0, 2.0),
    (1.5, 2.0, -2.56, 0.0),  # 1.28 * 2
    (1.5, -2.0, 3.0, 3.0),
    (0.5, 2.0, -1.0, -1.0),
    (0.5, -2.0, 1.6, 0.0),  # 0.8 * 2
    (1.1, 2.0, -2.2, -2.2),
    (9.0, -2.0, 18.0, 18.0),
    (9.0, 0.0, 0.0, 0.0),
  ],
)
def test_clipped_surrogate(ratio, advantage, value, slope):
  got = surrogate(ratio, advantage, clip_low=0.2, clip_high=0.28)
  np.testing.assert_allclose(got, (value, slope), atol=1e-5)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 1.25, 2.0, 2.9, 3.1, 50.0])
@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_dual_clip_equals_capping_the_ratio_first(ratio, advantage):
  """TRL: -min(min(ρ, δ) A, clip(ρ) A) with δ = c > 1 + ε_high."""
  capped = -min(min(ratio, 3.0) * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
  np.testing.assert_allclose(surrogate(ratio, advantage, dual_clip=3.0)[0], capped, rtol=1e-5)


@pytest.mark.parametrize("ratio", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_a_huge_range_is_plain_importance_weighting(ratio, advantage):
  for wide in (1e9, float("inf")):
    got = surrogate(ratio, advantage, clip_low=wide, clip_high=wide)
    np.testing.assert_allclose(got, (-ratio * advantage, -ratio * advantage), rtol=1e-5)


def test_a_clipped_ratio_that_overflows_leaves_no_nan():
  assert surrogate(jnp.exp(85.0) * 1e3, 1.0) == (pytest.approx(-1.2), 0.0)
  assert surrogate(jnp.exp(85.0) * 1e3, 0.0) == (0.0, 0.0)
  assert surrogate(jnp.exp(85.0) * 1e3, -1.0, dual_clip=3.0) == (pytest.approx(3.0), 0.0)


def test_kl_to_reference_values():
  """log π = -1, log ref = -2, log π_old = -1.5: k2 = .5, k3 = .367879; the ratio is e^.5."""
  batch = rollout([[1]], **{"reference.log_probs": jnp.full((1, 1), -2.0), "old.log_probs": jnp.full((1, 1), -1.5)})
  value = lambda **kw: float(
    objectives.kl_to_reference(**kw).loss(dict(log_probs=jnp.full((1, 1), -1.0)), batch, None)[0][0, 0]
  )
  assert value(estimator="k2") == pytest.approx(0.5)
  assert value() == value(estimator="k3+") == pytest.approx(0.367879, abs=1e-6)
  assert value(unbiased=True) == pytest.approx(0.367879 * np.exp(0.5), abs=1e-5)
  assert value(estimator="k1", unbiased=True) == pytest.approx(np.exp(0.5), abs=1e-5)


def test_supervised_and_entropy_signs():
  batch, current = rollout([[1]]), dict(log_probs=jnp.full((1, 1), -2.0), entropy=jnp.full((1, 1), 0.7))
  assert objectives.negative_log_likelihood().loss(current, batch, None)[0] == 2.0
  assert objectives.entropy_bonus().loss(current, batch, None)[0] == pytest.approx(-0.7)
  assert objectives.reinforce().loss(current, batch, jnp.full((1, 1), 3.0))[0] == pytest.approx(6.0)


@pytest.mark.parametrize("term", [objectives.clipped_surrogate(), objectives.reinforce()])
@pytest.mark.parametrize("part, scale", [(credit.leave_one_out(), 1.0), (credit.group_normalise(scale=False), 2 / 3)])
def test_expected_gradient_is_that_of_the_expected_reward(term, part, scale):
  """All 27 groups of three one-token answers over a vocabulary of three, weighted by their probability.

  E[gradient] = -∇ E[r] for leave-one-out, and (g-1)/g of it for the group mean, whose baseline contains the row itself.
  """
  logits, reward = jnp.array([0.3, -0.7, 1.1]), jnp.array([0.2, 1.0, 0.5])
  batch = rollout([[1]] * 3, group_id=[0, 0, 0])
  groups = jnp.stack(jnp.meshgrid(*[jnp.arange(3)] * 3, indexing="ij"), -1).reshape(-1, 3)

  def gradient(tokens):
    advantages = part.update(reward[tokens], part.init(), batch)[0][:, None]

    def loss(logits):
      log_probs = jax.nn.log_softmax(logits)[tokens][:, None]
      full = batch.replace(stats={"old.log_probs": jax.lax.stop_gradient(log_probs)})
      per_token, _ = term.loss(dict(log_probs=log_probs), full, advantages)
      weights = reducers.sequence_mean()(full)
      return jnp.sum(weights.token * per_token) / weights.total

    return jax.grad(loss)(logits)

  p = jax.nn.softmax(logits)
  expected = jnp.einsum("g,gv->v", jnp.prod(p[groups], axis=1), jax.jit(jax.vmap(gradient))(groups))
  truth = jax.grad(lambda x: -jnp.sum(jax.nn.softmax(x) * reward))(logits)
  np.testing.assert_allclose(expected, scale * truth, atol=1e-6)


@pytest.mark.parametrize(
  "make, words",
  [
    (lambda: objectives.clipped_surrogate(clip_low=-0.1), "clip_low must be >= 0, got -0.1"),
    (lambda: objectives.clipped_surrogate(dual_clip=1.0), "dual_clip must be > 1, got 1.0"),
    (lambda: objectives.kl_to_reference(estimator="k4"), "no 'k4'"),
    (lambda: objectives.kl_to_reference(estimator="k1"), "no gradient on average"),
    (lambda: objectives.kl_to_reference(estimator="k2", unbiased=True), "stays biased"),
    (lambda: objectives.kl_to_reference(estimator="k3+", unbiased=True), "got 'k3\\+', which stays biased"),
    (lambda: reducers.local_token_mean(0), "num_parts must be >= 1, got 0"),
    (lambda: reducers.constant_length(0), "length must be > 0, got 0"),
  ],
)
def test_errors(make, words):
  with pytest.raises(ValueError, match=words):
    make()
