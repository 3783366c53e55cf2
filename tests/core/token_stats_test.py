"""Token statistics against a plain softmax over whole logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.core import token_statistics

N, T, V, D = 3, 9, 17, 5


def inputs(dtype=jnp.float32):
  keys = jax.random.split(jax.random.key(0), 3)
  hidden = jax.random.normal(keys[0], (N, T, D), dtype)
  head = jax.random.normal(keys[1], (V, D), dtype)
  return hidden, head, jax.random.randint(keys[2], (N, T), 0, V)


def plain(hidden, head, tokens, temperature, first):
  logits = jnp.einsum("ntd,vd->ntv", hidden, head, preferred_element_type=jnp.float32) / temperature
  log_p = jax.nn.log_softmax(logits)[:, :-1]
  log_probs = jnp.take_along_axis(log_p, tokens[:, 1:, None], axis=-1)[..., 0]
  entropy = -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)
  keep = (jnp.arange(T) >= first)[None]
  pad = lambda x: jnp.where(keep, jnp.pad(x, ((0, 0), (1, 0))), 0.0)
  return dict(log_probs=pad(log_probs), entropy=pad(entropy))


@pytest.mark.parametrize(
  "chunk_tokens, first, temperature", [(1, 1, 1.0), (7, 4, 0.7), (12, 1, 0.7), (None, 1, 1.0), (7, T - 1, 1.0)]
)
def test_equals_plain_softmax_in_value_and_gradient(chunk_tokens, first, temperature):
  hidden, head, tokens = inputs()
  mix = dict(zip(("log_probs", "entropy"), jax.random.normal(jax.random.key(1), (2, N, T))))

  def ours(hidden, head):
    return token_statistics(
      hidden, head, tokens, temperature=temperature, want=tuple(mix), first=first, chunk_tokens=chunk_tokens
    )

  def all_of(fn):
    total = lambda *args: (sum(jnp.sum(m * fn(*args)[k]) for k, m in mix.items()), fn(*args))
    return jax.jit(jax.grad(total, (0, 1), has_aux=True))(hidden, head)

  grads, values = all_of(ours)
  plain_grads, plain_values = all_of(lambda hidden, head: plain(hidden, head, tokens, temperature, first))
  for name, value in plain_values.items():
    assert values[name].shape == (N, T) and values[name].dtype == jnp.float32
    np.testing.assert_allclose(values[name], value, atol=2e-6)
  for a, b in zip(grads, plain_grads):
    np.testing.assert_allclose(a, b, atol=2e-5)


def test_column_j_describes_token_j():
  """A table of transitions: log p(token j | token j-1) is known in closed form."""
  table = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]))
  tokens = jnp.array([[0, 1, 2, 2]])
  got = token_statistics(jax.nn.one_hot(tokens, 3), table.T, tokens)["log_probs"]
  np.testing.assert_allclose(got[0], [0, np.log(0.25), np.log(0.1), np.log(0.6)], atol=1e-6)


def test_bfloat16_product_is_summed_in_float32_and_softmax_is_float32():
  hidden, head, tokens = inputs(jnp.bfloat16)
  got = token_statistics(hidden, head, tokens, chunk_tokens=4)["log_probs"]
  assert got.dtype == jnp.float32
  np.testing.assert_allclose(got, plain(hidden, head, tokens, 1.0, 1)["log_probs"], atol=1e-5)


def test_head_gradient_is_summed_in_float32():
  """Many chunks of bfloat16 cotangents lose their sum if it is kept in bfloat16: 1 + 1/512 rounds back to 1."""
  keys = jax.random.split(jax.random.key(2), 3)
  hidden = jax.random.normal(keys[0], (1, 513, D)).astype(jnp.bfloat16)
  head = jax.random.normal(keys[1], (V, D))
  tokens = jax.random.randint(keys[2], (1, 513), 0, V)

  def grad(chunk):
    total = lambda h: token_statistics(hidden, h.astype(jnp.bfloat16), tokens, chunk_tokens=chunk)["log_probs"].sum()
    return jax.jit(jax.grad(total))(head)

  one, many = grad(10_000), grad(1)
  assert jnp.linalg.norm(one - many) / jnp.linalg.norm(one) < 0.01


def test_masked_vocabulary_entries_leave_entropy_finite():
  hidden, head, tokens = jnp.ones((1, 3, 1)), jnp.array([[0.0], [0.0], [-jnp.inf]]), jnp.array([[0, 1, 0]])
  want = ("log_probs", "entropy")
  got = token_statistics(hidden, head, tokens, want=want)
  np.testing.assert_allclose(got["entropy"][0], [0, np.log(2), np.log(2)], atol=1e-6)
  grad = jax.grad(lambda h: token_statistics(hidden, h, tokens, want=want)["entropy"].sum())
  assert np.isfinite(grad(head[:2])).all()


def test_nothing_to_score():
  hidden, head, tokens = inputs()
  assert token_statistics(hidden, head, tokens, want=()) == {}
  np.testing.assert_array_equal(token_statistics(hidden, head, tokens, first=T)["log_probs"], np.zeros((N, T)))


@pytest.mark.parametrize(
  "kwargs, words",
  [
    (dict(want=("log_prob",)), "did you mean 'log_probs'"),
    (dict(temperature=0.0), "temperature must be > 0, got 0.0"),
    (dict(first=0), "first must be >= 1, got 0"),
    (dict(chunk_tokens=0), "chunk_tokens must be >= 1, got 0"),
  ],
)
def test_errors(kwargs, words):
  with pytest.raises(ValueError, match=words):
    token_statistics(*inputs(), **kwargs)
