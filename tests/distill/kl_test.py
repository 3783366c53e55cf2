"""KL estimators: values by hand, and their exact expected gradients by enumeration of a three-token vocabulary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import distill

LOGITS = jnp.array([0.3, -0.7, 1.1])
REFERENCE = jnp.array([-0.2, 0.5, 0.1])


def test_values_and_derivatives_at_d_one():
  """log π = -1, log ref = -2: d = 1, so k2 = 1/2, k3 = 1/e - 1 + 1; derivatives 1, d, 1 - 1/e."""
  cases = (("k1", 1.0, 1.0), ("k2", 0.5, 1.0), ("k3", 0.367879, 0.632121), ("k3_plus", 0.367879, 1.0))
  for name, value, slope in cases:
    got, grad = jax.value_and_grad(getattr(distill, name))(-1.0, -2.0)
    np.testing.assert_allclose((got, grad), (value, slope), atol=1e-6)


def expected_gradient(name, unbiased=False):
  """Gradient of sum_y π(y) k(y) with π(y) held constant: what a loss on sampled tokens gives on average."""
  p, ref = jax.nn.softmax(LOGITS), jax.nn.log_softmax(REFERENCE)

  def loss(logits):
    log_p = jax.nn.log_softmax(logits)
    ratio = jnp.exp(log_p - jax.lax.stop_gradient(log_p)) if unbiased else 1.0
    return jnp.sum(p * ratio * getattr(distill, name)(log_p, ref))

  return jax.grad(loss)(LOGITS)


def kl_gradient(of):
  p, q = lambda x: jax.nn.log_softmax(x), jax.nn.log_softmax(REFERENCE)
  reverse = lambda x: jnp.sum(jnp.exp(p(x)) * (p(x) - q))
  forward = lambda x: jnp.sum(jnp.exp(q) * (q - p(x)))
  return jax.grad(dict(reverse=reverse, forward=forward)[of])(LOGITS)


@pytest.mark.parametrize(
  "name, unbiased, of",
  [
    ("k2", False, "reverse"),
    ("k3_plus", False, "reverse"),
    ("k3", False, "forward"),
    ("k3", True, "reverse"),
    ("k1", True, "reverse"),
  ],
)
def test_expected_gradient(name, unbiased, of):
  np.testing.assert_allclose(expected_gradient(name, unbiased), kl_gradient(of), atol=1e-6)
  assert jnp.max(jnp.abs(kl_gradient("reverse") - kl_gradient("forward"))) > 1e-2  # the two can be told apart


def test_k1_as_a_loss_does_nothing():
  np.testing.assert_allclose(expected_gradient("k1"), np.zeros(3), atol=1e-6)


def test_k1_and_k3_average_to_the_divergence():
  p, ref = jax.nn.softmax(LOGITS), jax.nn.log_softmax(REFERENCE)
  kl = jnp.sum(p * (jnp.log(p) - ref))
  for name in ("k1", "k3", "k3_plus"):
    np.testing.assert_allclose(jnp.sum(p * getattr(distill, name)(jnp.log(p), ref)), kl, rtol=1e-6)
