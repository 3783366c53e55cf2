"""Divergences of whole distributions: plain numpy, limits, gradients by the logits, and what has no mass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import distill

P, T = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.1, 0.2, 0.3, 0.4])
LOG_P, LOG_T = jnp.log(jnp.array(P)), jnp.log(jnp.array(T))


def kl(a, b):
  return float(np.sum(a * np.log(a / b)))


def test_values():
  np.testing.assert_allclose(distill.forward_kl(LOG_P, LOG_T), kl(T, P), rtol=1e-5)
  np.testing.assert_allclose(distill.reverse_kl(LOG_P, LOG_T), kl(P, T), rtol=1e-5)
  for beta in (0.1, 0.5, 0.8):
    m = beta * T + (1 - beta) * P
    want = beta * kl(T, m) + (1 - beta) * kl(P, m)
    np.testing.assert_allclose(distill.generalised_jsd(beta)(LOG_P, LOG_T), want, rtol=1e-5)


def test_jensen_shannon_of_a_known_pair():
  """(.7, .3) and (.2, .8): JS = .132505 nats."""
  got = distill.generalised_jsd(0.5)(jnp.log(jnp.array([0.7, 0.3])), jnp.log(jnp.array([0.2, 0.8])))
  assert float(got) == pytest.approx(0.132505, abs=1e-6)


def test_ends_of_the_generalised_divergence():
  """At 0 and 1 the two KLs themselves; near them, divided by the small weight."""
  assert distill.generalised_jsd(0)(LOG_P, LOG_T) == distill.forward_kl(LOG_P, LOG_T)
  assert distill.generalised_jsd(1.0)(LOG_P, LOG_T) == distill.reverse_kl(LOG_P, LOG_T)
  small = 1e-2  # the error is of its order
  np.testing.assert_allclose(distill.generalised_jsd(small)(LOG_P, LOG_T) / small, kl(T, P), rtol=0.05)
  np.testing.assert_allclose(distill.generalised_jsd(1 - small)(LOG_P, LOG_T) / small, kl(P, T), rtol=0.05)


def test_a_traced_weight():
  got = jax.vmap(lambda beta: distill.generalised_jsd(beta)(LOG_P, LOG_T))(jnp.array([0.2, 0.7]))
  np.testing.assert_allclose(got, [distill.generalised_jsd(b)(LOG_P, LOG_T) for b in (0.2, 0.7)], rtol=1e-5)


def by_logits(fn):
  """Gradient by the logits of the policy at P."""
  return np.asarray(jax.grad(lambda x: fn(jax.nn.log_softmax(x), LOG_T))(LOG_P))


def test_gradients_by_the_logits():
  np.testing.assert_allclose(by_logits(distill.forward_kl), P - T, atol=1e-6)
  np.testing.assert_allclose(by_logits(distill.reverse_kl), P * (np.log(P / T) - kl(P, T)), atol=1e-6)
  # Of β KL(T ‖ M) + (1-β) KL(P ‖ M) by P: (1-β) log(P/M), since what moves M alone cancels.
  m = 0.3 * T + 0.7 * P
  by_p = 0.7 * np.log(P / m)
  np.testing.assert_allclose(by_logits(distill.generalised_jsd(0.3)), P * (by_p - np.sum(P * by_p)), atol=1e-6)


ALL = [
  distill.forward_kl, distill.reverse_kl, distill.generalised_jsd(0.3), distill.top_k_kl(2),
  distill.top_k_kl(2, "reverse"), distill.top_k_kl(4), distill.top_k_kl(2, tail="renormalise"),
]  # fmt: skip
every = pytest.mark.parametrize("fn", ALL, ids=range(len(ALL)))


@every
def test_equal_distributions_have_none(fn):
  np.testing.assert_allclose(fn(LOG_T, LOG_T), 0.0, atol=1e-6)
  assert float(fn(LOG_P, LOG_T)) > 1e-3


@every
def test_shapes_go_through(fn):
  x = jax.nn.log_softmax(jax.random.normal(jax.random.key(0), (2, 3, 5)))
  y = jax.nn.log_softmax(jax.random.normal(jax.random.key(1), (2, 3, 5)))
  assert fn(x, y).shape == (2, 3)
  np.testing.assert_allclose(fn(x, y)[1, 2], fn(x[1, 2], y[1, 2]), rtol=1e-5)


@every
@pytest.mark.parametrize("gap", [-jnp.inf, -200.0])
def test_a_token_without_mass_is_as_if_not_there(fn, gap):
  """In both distributions: masked out of the vocabulary, or underflowed. Also the gradients are finite."""
  more = lambda x: jnp.append(x, gap)
  value, grads = jax.value_and_grad(fn, argnums=(0, 1))(more(LOG_P), more(LOG_T))
  np.testing.assert_allclose(value, fn(LOG_P, LOG_T), rtol=1e-6)
  assert np.isfinite(grads).all()


def test_mass_where_the_other_has_none():
  """T gives a token nothing: forward ignores it, reverse is infinite, the mixture keeps both finite."""
  log_t = jnp.log(jnp.array([0.2, 0.3, 0.5, 0.0]))
  assert np.isfinite(distill.forward_kl(LOG_P, log_t)) and distill.reverse_kl(LOG_P, log_t) == np.inf
  value, grad = jax.value_and_grad(distill.generalised_jsd(0.3))(LOG_P, log_t)
  assert np.isfinite(value) and np.isfinite(grad).all()


@pytest.mark.parametrize("direction, a, b", [("forward", T, P), ("reverse", P, T)])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_top_k_by_hand(direction, a, b, k):
  top, rest = np.argsort(-a)[:k], np.argsort(-a)[k:]
  part = float(np.sum(a[top] * np.log(a[top] / b[top])))
  run = lambda tail: float(distill.top_k_kl(k, direction, tail)(LOG_P, LOG_T))
  assert run("drop") == pytest.approx(part, abs=1e-5)
  bucket = a[rest].sum() * np.log(a[rest].sum() / b[rest].sum()) if len(rest) else 0.0
  assert run("bucket") == pytest.approx(part + bucket, abs=1e-5)
  assert run("renormalise") == pytest.approx(kl(a[top] / a[top].sum(), b[top] / b[top].sum()), abs=1e-5)
  assert -1e-6 <= run("bucket") <= kl(a, b) + 1e-6  # lumping tokens together only loses


def test_only_the_truncated_sum_is_negative():
  """P holds more than T on T's best two: .4 log(.4/.6) + .3 log(.3/.35) < 0. The tail pays for it."""
  log_p, log_t = jnp.log(jnp.array([0.6, 0.35, 0.05])), jnp.log(jnp.array([0.4, 0.3, 0.3]))
  run = lambda tail: float(distill.top_k_kl(2, tail=tail)(log_p, log_t))
  assert run("drop") == pytest.approx(-0.208432, abs=1e-5)
  assert run("bucket") > 0 and run("renormalise") > 0


def test_top_k_takes_k_tokens_of_a_tie():
  uniform = jnp.log(jnp.full(4, 0.25))
  want = 2 * 0.25 * np.log(0.25) - 0.25 * np.log(P[0] * P[1])
  np.testing.assert_allclose(distill.top_k_kl(2, tail="drop")(LOG_P, uniform), want, rtol=1e-5)


@pytest.mark.parametrize(
  "make, words",
  [
    (lambda: distill.generalised_jsd(1.2), "beta must be >= 0 and <= 1, got 1.2"),
    (lambda: distill.top_k_kl(0), "k must be >= 1, got 0"),
    (lambda: distill.top_k_kl(5)(LOG_P, LOG_T), "size of the vocabulary, 4, got 5"),
    (lambda: distill.top_k_kl(2, "backward"), "no 'backward'"),
    (lambda: distill.top_k_kl(2, tail="dropped"), "did you mean 'drop'"),
  ],
)
def test_errors(make, words):
  with pytest.raises(ValueError, match=words):
    make()
