"""The draw against exact probabilities, and the filters against a plain numpy loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rlvr_jax.rollouts import draws
from rlvr_jax.rollouts.draws import Filters, check_filters

draw = jax.jit(draws.draw, static_argnums=(2, 3))
processed_log_probs = jax.jit(draws.processed_log_probs, static_argnums=1)

FILTERS = [
  Filters(),
  Filters(0.7),
  Filters(1.3, top_k=5),
  Filters(0.7, top_p=0.8),
  Filters(1.0, min_p=0.2),
  Filters(0.9, top_k=9, top_p=0.9),
  Filters(1.2, top_k=12, top_p=0.95, min_p=0.05),
  Filters(0.0),
]


def _oracle(logits, filters):
  """One row, in float64: sort, keep, renormalise."""
  temperature, top_k, top_p, min_p = filters
  if temperature == 0:
    return np.where(np.arange(len(logits)) == np.argmax(logits), 0.0, -np.inf)
  scaled = logits.astype(np.float64) / temperature
  order = np.argsort(-scaled, kind="stable")
  probs = np.exp(scaled - scaled.max())
  keep = np.ones(len(logits), bool)
  if top_k is not None:
    keep[order[top_k:]] = False
  probs = np.where(keep, probs, 0) / probs[keep].sum()
  if top_p is not None:
    mass = 0.0
    for token in order:
      keep[token] &= mass < top_p
      mass += probs[token]
  if min_p is not None:
    keep &= probs >= min_p * probs.max()
  probs = np.where(keep, probs, 0) / probs[keep].sum()
  with np.errstate(divide="ignore"):
    return np.log(probs)


def _logits(kind, vocab_size=37):
  flat = np.zeros(vocab_size)
  if kind == "peaked":
    flat[11] = 9.0
    flat[12] = 6.0
  if kind == "normal":
    flat = np.random.default_rng(0).normal(size=vocab_size) * 2
  if kind == "masked":
    flat = np.random.default_rng(1).normal(size=vocab_size)
    flat[np.r_[0:9, 20, 30:37]] = -np.inf
  return flat.astype(np.float32)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_processed_log_probs_equal_a_sorting_loop(filters):
  logits = np.random.default_rng(3).normal(size=(6, 37)).astype(np.float32) * 3
  expected = np.stack([_oracle(row, filters) for row in logits])
  np.testing.assert_allclose(processed_log_probs(jnp.asarray(logits), filters), expected, atol=2e-5)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_draw_returns_the_log_prob_and_entropy_of_its_distribution(filters):
  logits = jax.random.normal(jax.random.key(0), (64, 150)) * 3
  tokens, log_probs, entropy = draw(logits, jax.random.uniform(jax.random.key(1), (64, 2)), filters, True)
  exact = np.asarray(processed_log_probs(logits, filters), np.float64)
  np.testing.assert_allclose(log_probs, np.take_along_axis(exact, np.asarray(tokens)[:, None], 1)[:, 0], atol=1e-5)
  probs = np.exp(exact)
  np.testing.assert_allclose(entropy, -np.sum(probs * np.where(probs > 0, exact, 0), 1), atol=1e-5)
  np.testing.assert_allclose(probs.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("filters", [Filters(), Filters(0.7, top_k=20, top_p=0.9), Filters(1.5, min_p=0.1)], ids=str)
@pytest.mark.parametrize("kind", ["flat", "normal", "peaked", "masked"])
def test_draws_follow_the_distribution(kind, filters):
  """Chi-square over 60 000 draws with tokens expected under 5 times pooled; p > 1e-4 for a fixed seed."""
  n = 60_000
  logits = jnp.broadcast_to(jnp.asarray(_logits(kind)), (n, 37))
  tokens, _, _ = draw(logits, jax.random.uniform(jax.random.key(5), (n, 2)), filters)
  observed = np.bincount(np.asarray(tokens), minlength=37)
  expected = n * np.exp(np.asarray(processed_log_probs(logits[:1], filters), np.float64)[0])
  assert not observed[expected == 0].any()
  rare = expected < 5
  observed, expected = [np.append(x[~rare], x[rare].sum()) for x in (observed, expected)]
  keep = expected > 0
  if keep.sum() > 1:
    assert stats.chisquare(observed[keep], expected[keep] * n / expected.sum()).pvalue > 1e-4


def test_the_two_uniforms_cover_every_token_evenly():
  """A grid over both uniforms: 36 equal tokens in blocks get 1/36 of it each (blocks of 2**round(log2(36)/2) = 8)."""
  side = 72 * 8
  grid = (jnp.arange(side) + 0.5) / side
  uniforms = jnp.stack(jnp.meshgrid(grid, grid), -1).reshape(-1, 2)
  tokens, _, _ = draw(jnp.zeros((len(uniforms), 36)), uniforms, Filters())
  np.testing.assert_allclose(np.bincount(np.asarray(tokens), minlength=36) / side**2, 1 / 36, rtol=2e-2)


@pytest.mark.parametrize("vocab_size", [1, 2, 16, 37])
def test_edges_never_draw_a_token_of_no_probability(vocab_size):
  """Only one token is possible, at the very front, the middle or the very end; u = 1 is past what uniform gives."""
  keep = jnp.asarray([0, vocab_size // 2, vocab_size - 1])
  logits = jnp.where(jnp.arange(vocab_size)[None] == keep[:, None], 3.0, -jnp.inf)
  for u in (0.0, 0.5, 1 - 2**-24, 1.0):
    tokens, log_probs, _ = draw(logits, jnp.full((3, 2), u, jnp.float32), Filters())
    np.testing.assert_array_equal(tokens, keep)
    np.testing.assert_array_equal(log_probs, 0)


def test_edges_with_tokens_that_underflow():
  """exp(-200) is 0 in float32: at no uniform may such a token be drawn."""
  logits = jnp.full((4, 50), -200.0).at[:, jnp.asarray([3, 44])].set(0.0)
  edges = jnp.asarray([0.0, 2**-24, 1 - 2**-24, 1.0])
  for u2 in edges:
    tokens, log_probs, _ = draw(logits, jnp.stack([edges, jnp.full(4, u2)], -1), Filters())
    np.testing.assert_array_equal(tokens, [3, 3, 44, 44])
    np.testing.assert_allclose(log_probs, np.log(0.5), rtol=1e-6)


def test_rounding_of_the_cumulative_sum_gives_no_mass_to_what_has_none():
  """From about 390 entries XLA's cumsum rises, by rounding, across entries of zero mass; aim at such rises."""
  at_random, at_keep = jax.random.split(jax.random.key(0))
  mass = jax.random.uniform(at_random, (400, 512)) * jax.random.bernoulli(at_keep, 0.5, (400, 512))
  cumulative = np.asarray(jax.jit(jnp.cumsum, static_argnums=1)(mass, -1))
  false_rise = (np.diff(cumulative) > 0) & (np.asarray(mass)[:, 1:] == 0)
  rows = np.flatnonzero(false_rise.any(1))
  assert len(rows) > 20
  before = cumulative[rows, false_rise[rows].argmax(1)]
  index = jax.jit(draws._invert)(mass[rows], jnp.asarray(before / cumulative[rows, -1]))
  assert (np.take_along_axis(np.asarray(mass)[rows], np.asarray(index)[:, None], 1) > 0).all()


def test_greedy_is_a_point_mass_of_the_first_largest():
  logits = jnp.asarray([[0.0, 7.0, 7.0, 1.0]])
  for u in (0.0, 0.999):
    for filters in (Filters(0.0), Filters(1.0, top_k=1)):
      tokens, log_probs, entropy = draw(logits, jnp.full((1, 2), u), filters, True)
      assert (int(tokens[0]), float(log_probs[0]), float(entropy[0])) == (1, 0.0, 0.0)


def test_equally_likely_tokens_pass_top_p_together():
  """p = .4 .2 .2 .2 and top_p = .5: the second place is shared by three, and no order among them is invented."""
  log_probs = processed_log_probs(jnp.log(jnp.asarray([[0.4, 0.2, 0.2, 0.2]])), Filters(top_p=0.5))
  np.testing.assert_allclose(jnp.exp(log_probs), [[0.4, 0.2, 0.2, 0.2]], rtol=1e-5)


def test_top_p_keeps_the_likeliest_token_however_small_it_is():
  np.testing.assert_allclose(
    processed_log_probs(jnp.asarray([[1.0, 5.0, 2.0]]), Filters(top_p=1e-6)), [[-np.inf, 0, -np.inf]]
  )


def test_top_p_tells_tokens_one_bit_apart():
  log_probs = processed_log_probs(jnp.asarray([[-1e-7, 0.0, -3.0]]), Filters(top_p=0.3))
  np.testing.assert_allclose(log_probs, [[-np.inf, 0, -np.inf]])


def test_nan_logits_are_not_hidden():
  for filters in (Filters(), Filters(0.9, top_k=9, top_p=0.9), Filters(0.0)):
    logits = jnp.zeros((2, 37)).at[1, 4].set(jnp.nan)
    tokens, log_probs, _ = draw(logits, jnp.full((2, 2), 0.3), filters)
    assert np.isfinite(log_probs[0]) and np.isnan(log_probs[1])
    assert 0 <= tokens[1] < 37


def test_log_probs_are_float32_for_bfloat16_logits():
  logits = jax.random.normal(jax.random.key(0), (3, 40)).astype(jnp.bfloat16)
  _, log_probs, entropy = draw(logits, jnp.full((3, 2), 0.3), Filters(0.5), True)
  assert log_probs.dtype == entropy.dtype == jnp.float32


def _vocab_sized(jaxpr, size, found):
  for equation in jaxpr.eqns:
    if any(getattr(v.aval, "size", 0) >= size for v in equation.outvars):
      found.append(equation.primitive.name)
    for value in equation.params.values():
      inner = getattr(value, "jaxpr", value)
      if hasattr(inner, "eqns"):
        _vocab_sized(inner, size, found)
  return found


@pytest.mark.parametrize("filters", [Filters(), Filters(0.7), Filters(min_p=0.1)], ids=str)
def test_the_vocabulary_is_neither_sorted_nor_scanned_nor_given_noise(filters):
  n, v = 4, 4096
  jaxpr = jax.make_jaxpr(lambda x, u: draws.draw(x, u, filters))(jnp.zeros((n, v)), jnp.zeros((n, 2)))
  found = _vocab_sized(jaxpr.jaxpr, n * v, [])
  assert found and not {"sort", "top_k", "cumsum", "random_bits", "threefry2x32", "log"} & set(found)
  assert found.count("exp") == 1


@pytest.mark.parametrize(
  "bad",
  [
    dict(temperature=-0.1), dict(temperature=float("nan")), dict(temperature=float("inf")), dict(top_k=0),
    dict(top_k=1.5), dict(top_p=0.0), dict(top_p=1.1), dict(min_p=-0.1), dict(min_p=1.0),
  ],
  ids=str,
)  # fmt: skip
def test_bad_settings_are_named(bad):
  (name, value), *_ = bad.items()
  with pytest.raises(ValueError, match=f"{name} must .*{value}"):
    check_filters(Filters(**bad))


def test_top_k_beyond_the_vocabulary_is_an_error():
  with pytest.raises(ValueError, match="top_k must be at most the vocabulary size 8, got 9"):
    draws.draw(jnp.zeros((1, 8)), jnp.zeros((1, 2)), Filters(top_k=9))
