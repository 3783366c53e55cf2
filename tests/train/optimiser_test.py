"""Schedules, clipping and the decay mask, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import models
from rlvr_jax.core import build
from rlvr_jax.train import optimisers
from rlvr_jax.train.optimiser import decay_mask, make_schedule


def rates(schedule, warmup_steps=0, total_steps=None, final_fraction=0.0, count=6):
  made = make_schedule(2.0, schedule, warmup_steps, total_steps, final_fraction)
  return [float(made(i)) for i in range(count)]


def test_schedules():
  np.testing.assert_allclose(rates("constant"), [2] * 6)
  np.testing.assert_allclose(rates("constant", warmup_steps=4), [0.5, 1, 1.5, 2, 2, 2])
  np.testing.assert_allclose(rates("constant", warmup_steps=1), [2] * 6)
  np.testing.assert_allclose(rates("linear", total_steps=4), [2, 1.5, 1, 0.5, 0, 0], atol=1e-6)
  np.testing.assert_allclose(rates("linear", 2, 4, 0.5), [1, 2, 2, 1.5, 1, 1])
  cosine = [1 + np.cos(np.pi * i / 4) for i in range(5)]
  np.testing.assert_allclose(rates("cosine", total_steps=4, count=5), cosine, atol=1e-6)


def one_update(optimiser, params, grads):
  updates, _ = optimiser.update(grads, optimiser.init(params), params)
  return updates


def test_sgd_clips_by_global_norm():
  grads = dict(a=jnp.array([3.0]), b=jnp.array([4.0]))
  got = one_update(optimisers.sgd(1.0, clip_norm=1.0), grads, grads)
  np.testing.assert_allclose([got["a"][0], got["b"][0]], [-0.6, -0.8], rtol=1e-6)
  got = one_update(optimisers.sgd(1.0), grads, grads)
  np.testing.assert_allclose([got["a"][0], got["b"][0]], [-3, -4])


def test_adamw_decays_matrices_only():
  """With no gradient Adam does nothing, so the update is -rate * decay * parameter."""
  params = dict(w=jnp.full((2, 2), 3.0), norm=dict(weight=jnp.full((2, 2), 3.0)), bias=jnp.full(2, 3.0))
  got = one_update(optimisers.adamw(0.1, weight_decay=0.5), params, jax.tree.map(jnp.zeros_like, params))
  np.testing.assert_allclose(got["w"], np.full((2, 2), -0.15), rtol=1e-6)
  assert not got["norm"]["weight"].any() and not got["bias"].any()


def test_first_adam_update_is_the_sign():
  params = dict(w=jnp.zeros((1, 2)))
  got = one_update(optimisers.adamw(0.1, clip_norm=None), params, dict(w=jnp.array([[5.0, -0.01]])))
  np.testing.assert_allclose(got["w"], [[-0.1, 0.1]], rtol=1e-5)


def test_decay_mask_of_the_decoder():
  """Stacked over layers, norms and biases are matrices too; they are told by their names."""
  config = models.tiny_config(16, width=8, num_layers=2, num_heads=2, num_kv_heads=1, mlp_width=8)
  config = models.DecoderConfig(**{**vars(config), "qkv_bias": True, "qk_norm": "head"})
  mask = decay_mask(jax.eval_shape(models.Decoder(config).init, jax.random.key(0)))
  flat = {jax.tree_util.keystr(path): on for path, on in jax.tree_util.tree_leaves_with_path(mask)}
  for path, on in flat.items():
    assert on == ("norm" not in path and "bias" not in path), path
  assert any(flat.values()) and sum("bias" in path for path in flat) == 3


@pytest.mark.parametrize(
  "spec, words",
  [
    (dict(name="adam", learning_rate=1), "no 'adam'; did you mean 'adamw'"),
    (dict(name="adamw", learning_rate=1, schedule="cosin"), "did you mean 'cosine'"),
    (dict(name="adamw", learning_rate=1, schedule="cosine"), "needs total_steps > warmup_steps = 0, got None"),
    (
      dict(name="adamw", learning_rate=1, schedule="linear", warmup_steps=5, total_steps=5),
      "> warmup_steps = 5, got 5",
    ),
    (dict(name="adamw", learning_rate=-1), "learning_rate must be >= 0, got -1"),
    (dict(name="adamw", learning_rate=1, clip_norm=0), "clip_norm must be > 0, or None"),
    (dict(name="sgd", learning_rate=1, momentum=1.0), "momentum must be in"),
    (dict(name="sgd", learning_rate=1, weight_decay=0.1), "no 'weight_decay'"),
  ],
)
def test_errors(spec, words):
  with pytest.raises(ValueError, match=words):
    build(optimisers, spec)
