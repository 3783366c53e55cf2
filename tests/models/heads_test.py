"""Critic heads: values by hand, float32 whatever comes in, and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.models import categorical_head, scalar_head


def test_scalar_value_by_hand():
  params = dict(weight=jnp.asarray([[1.0, -2.0]]), bias=jnp.asarray([0.5]))
  hidden = jnp.asarray([[[1.0, 1.0], [3.0, 0.0], [0.0, 0.25]]])  # 1 - 2 + .5, 3 + .5, -.5 + .5
  np.testing.assert_allclose(scalar_head().value(params, hidden), [[-0.5, 3.5, 0.0]], rtol=1e-6)


def test_categorical_value_by_hand():
  head = categorical_head(num_bins=3, low=-1.0, high=1.0)
  assert head.bins.tolist() == [-1.0, 0.0, 1.0]
  # probabilities 1/4, 1/4, 1/2 -> -1/4 + 1/2; and all on one bin
  logits = jnp.asarray([[0.0, 0.0, np.log(2.0)], [-1e4, 1e4, -1e4]])
  np.testing.assert_allclose(head.decode(logits), [0.25, 0.0], atol=1e-6)
  params = dict(weight=jnp.asarray([[0.0], [0.0], [np.log(2.0)]]), bias=jnp.zeros(3))
  np.testing.assert_allclose(head.value(params, jnp.ones((2, 4, 1))), np.full((2, 4), 0.25), atol=1e-6)


@pytest.mark.parametrize("head, start", [(scalar_head(), 0.0), (categorical_head(low=0.0, high=2.0), 1.0)])
def test_heads_start_near_the_middle_in_float32(head, start):
  params = head.init(jax.random.key(0), 16)
  hidden = jax.random.normal(jax.random.key(1), (2, 5, 16))
  value = jax.jit(head.value)(params, hidden)
  assert value.shape == (2, 5)
  np.testing.assert_allclose(value, np.full((2, 5), start), atol=0.05)
  half = head.value(params, hidden.astype(jnp.bfloat16))
  assert half.dtype == jnp.float32
  is_tuple = lambda x: isinstance(x, tuple)
  assert jax.tree.structure(params) == jax.tree.structure(head.axes(), is_leaf=is_tuple)
  jax.tree.map(lambda x, a: (x.ndim == len(a)) or pytest.fail(str(a)), params, head.axes())


@pytest.mark.parametrize("kwargs, message", [
  (dict(num_bins=1), "num_bins >= 2, got 1"), (dict(low=1.0, high=1.0), "low < high, got 1.0 and 1.0"),
])  # fmt: skip
def test_bins_that_make_no_range_raise(kwargs, message):
  with pytest.raises(ValueError, match=message):
    categorical_head(**kwargs)
