"""The decoder against itself: padding, packing, cache, remat, dtype, mesh and batch change nothing they should not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.core import positions
from rlvr_jax.models import Decoder, DecoderConfig, RopeScaling, tiny_config
from rlvr_jax.sharding import RULES, make_mesh, named_sharding, place

TINY = tiny_config(37, width=32, num_layers=3, mlp_width=48)
SLIDING = DecoderConfig(
  family="gemma3_text", vocab_size=37, width=32, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, mlp_width=48,
  norm_placement="both", norm_offset=1.0, qk_norm="head", activation="gelu_tanh", embed_scale=32**0.5,
  rope_theta=500.0, rope_scaling=RopeScaling("linear", 2.0), local_rope_theta=50.0, sliding_window=3,
  layer_types=("sliding_attention", "full_attention", "sliding_attention"),
)  # fmt: skip
SPARSE = tiny_config(37, width=32, num_layers=2, mlp_width=48, family="qwen3_moe", qk_norm="head", num_experts=5,
                     experts_per_token=2, expert_width=24, normalise_experts=True, tie_embeddings=False)  # fmt: skip
CONFIGS = dict(tiny=TINY, sliding=SLIDING, sparse=SPARSE)
BY_KIND = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


@functools.lru_cache
def built(config):
  """(model, params, jitted hidden): one compile for all tests of two rows and nine columns."""
  model = Decoder(config)
  return model, jax.jit(model.init)(jax.random.key(0)), jax.jit(model.hidden)


def rows(spans, length, seed=0):
  """(tokens, positions, valid_mask): row i has the first tokens of one stream in columns spans[i]."""
  stream = np.random.default_rng(seed).integers(1, 37, (len(spans), length))
  tokens, valid = np.zeros((len(spans), length), np.int32), np.zeros((len(spans), length), bool)
  for i, (start, stop) in enumerate(spans):
    tokens[i, start:stop], valid[i, start:stop] = stream[i, : stop - start], True
  return jnp.asarray(tokens), positions(jnp.asarray(valid)), jnp.asarray(valid)


def close(a, b, atol=2e-5):
  np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), atol=atol, rtol=0)


@BY_KIND
def test_padding_side_does_not_matter(config):
  _, params, forward = built(config)
  left, right = forward(params, *rows([(3, 9), (5, 9)], 9)), forward(params, *rows([(0, 6), (0, 4)], 9))
  close(left[0, 3:], right[0, :6])
  close(left[1, 5:], right[1, :4])
  assert np.isfinite(np.asarray(left)).all() and np.isfinite(np.asarray(right)).all()


@BY_KIND
def test_packed_rows_are_separate_rows(config):
  _, params, forward = built(config)
  tokens, position, valid = rows([(0, 6), (0, 4)], 9)
  apart = forward(params, tokens, position, valid)
  join = lambda x: jnp.concatenate([x[0, :6], x[1, :4]])[None]
  segment_id = jnp.asarray([[0] * 6 + [1] * 4])
  packed = forward(params, join(tokens), join(position), join(valid), segment_id)
  close(packed[0, :6], apart[0, :6])
  close(packed[0, 6:], apart[1, :4])


@BY_KIND
def test_cached_decode_is_the_full_forward(config):
  model, params, forward = built(config)
  tokens, position, valid = rows([(3, 9), (2, 8)], 9)
  full = forward(params, tokens, position, valid)
  extend, cache, parts = jax.jit(model.extend), model.init_cache(2, 12), []
  for start, stop in ((0, 5), *((i, i + 1) for i in range(5, 9))):
    part, cache = extend(params, cache, *(x[:, start:stop] for x in (tokens, position, valid)))
    parts.append(part)
  assert int(cache.index) == 9
  close(jnp.concatenate(parts, axis=1)[valid], full[valid])


def test_cache_is_written_in_place():
  """Were the cache copied, the temporaries would be at least as large as the cache."""
  model = Decoder(tiny_config(37, width=32, num_layers=8, mlp_width=48))
  params, cache = model.init(jax.random.key(0)), model.init_cache(4, 256)
  one = jnp.ones((4, 1), jnp.int32)
  compiled = jax.jit(model.extend, donate_argnums=1).lower(params, cache, one, one, one > 0).compile()
  assert compiled.memory_analysis().temp_size_in_bytes < (cache.k.nbytes + cache.v.nbytes) / 2


def test_a_call_longer_than_the_cache_raises():
  model = Decoder(TINY)
  with pytest.raises(ValueError, match="5 columns do not fit a cache of 4"):
    model.extend(model.init(jax.random.key(0)), model.init_cache(1, 4), *rows([(0, 5)], 5))


@BY_KIND
def test_no_token_sees_its_future_or_another_row(config):
  _, params, forward = built(config)
  tokens, position, valid = rows([(0, 9), (0, 9)], 9)
  before = forward(params, tokens, position, valid)
  after = forward(params, tokens.at[0, 5].set(36).at[1].set(7), position, valid)
  close(before[0, :5], after[0, :5], atol=1e-6)
  assert np.abs(np.asarray(before[0, 5] - after[0, 5])).max() > 1e-3


def test_a_sliding_layer_sees_its_window_and_no_more():
  config = tiny_config(37, width=32, num_layers=1, family="olmo3", sliding_window=3, layer_types=("sliding_attention",))
  model, params = Decoder(config), Decoder(config).init(jax.random.key(0))
  tokens, position, valid = rows([(0, 8)], 8)
  forward = jax.jit(model.hidden)
  before = forward(params, tokens, position, valid)
  changed = jnp.where(tokens[:, 2] == 5, 6, 5)
  moved = jnp.abs(forward(params, tokens.at[:, 2].set(changed), position, valid) - before).max(axis=-1)[0]
  assert (np.asarray(moved) > 1e-5).tolist() == [False, False, True, True, True, False, False, False]


@BY_KIND
def test_gradients_are_finite_and_equal_under_every_remat(config):
  data = rows([(4, 9), (0, 0)], 9)  # the last row is all padding

  def gradient(remat):
    model = Decoder(config, remat=remat)
    loss = lambda params: jnp.sum(jnp.where(data[2][:, :, None], model.hidden(params, *data), 0.0)[:, :, :7] ** 2)
    return jax.jit(jax.grad(loss)), loss

  params = built(config)[1]
  plain = gradient("none")[0](params)
  assert all(np.isfinite(np.asarray(g)).all() for g in jax.tree.leaves(plain))
  assert all(np.abs(np.asarray(g)).max() > 0 for g in jax.tree.leaves(plain["layers"]))
  for remat in ("full", "dots_saveable") if config == TINY else ():  # which layer it wraps does not matter to remat
    grad, loss = gradient(remat)
    assert "remat" in str(jax.make_jaxpr(loss)(params)) or "checkpoint" in str(jax.make_jaxpr(loss)(params))
    jax.tree.map(close, grad(params), plain)


@pytest.mark.parametrize("field, value, hint", [
  ("remat", "dots_savable", "dots_saveable"), ("dtype", "bfloat61", "bfloat16"), ("param_dtype", "float23", "float32"),
])  # fmt: skip
def test_an_unknown_name_is_an_error_with_the_nearest(field, value, hint):
  with pytest.raises(ValueError, match=f"{field} must be .*{value}.*did you mean '{hint}'"):
    Decoder(TINY, **{field: value})


@pytest.mark.parametrize("changes, message", [
  (dict(num_kv_heads=3), "multiple of num_kv_heads"), (dict(width=30), "multiple of num_heads"),
  (dict(layer_types=("full_attention",)), "layer_types needs num_layers=4"),
  (dict(layer_types=("sliding_attention",) * 4), "sliding_window must be set"),
  (dict(activation="silo"), "did you mean 'silu'"), (dict(num_experts=4), "experts_per_token"),
  (dict(vocab_size=0), "vocab_size must be positive"), (dict(head_dim=7), "head_dim must be even"),
])  # fmt: skip
def test_a_config_that_makes_no_decoder_raises(changes, message):
  with pytest.raises(ValueError, match=message):
    tiny_config(**(dict(vocab_size=37) | changes))


def test_bfloat16_is_close_and_logits_are_float32():
  (_, params, forward), data = built(TINY), rows([(0, 9), (2, 9)], 9)
  half = Decoder(TINY, dtype="bfloat16")
  states, exact = jax.jit(half.hidden)(params, *data), forward(params, *data)
  assert states.dtype == jnp.bfloat16 and half.init_cache(1, 2).k.dtype == jnp.bfloat16
  assert half.logits(params, states).dtype == jnp.float32
  assert np.abs(np.asarray(states - exact)[np.asarray(data[2])]).max() < 0.1
  assert jax.tree.leaves(Decoder(TINY, param_dtype="bfloat16").init(jax.random.key(0)))[0].dtype == jnp.bfloat16


@BY_KIND
def test_axes_and_shapes_describe_every_parameter(config):
  model, params, _ = built(config)
  is_tuple = lambda x: isinstance(x, tuple)
  axes, shapes = model.axes(), model.shapes()
  assert jax.tree.structure(params) == jax.tree.structure(axes, is_leaf=is_tuple)
  assert jax.tree.map(lambda x: x.shape, params) == shapes
  jax.tree.map(lambda x, a: named_sharding(make_mesh(2, 2, 2), a, x.shape), params, axes)
  assert {a for names in jax.tree.leaves(axes, is_leaf=is_tuple) for a in names} <= set(RULES)
  assert model.num_params() == sum(x.size for x in jax.tree.leaves(params))


@BY_KIND
def test_eight_devices_give_the_numbers_of_one(config):
  (model, params, forward), data = built(config), rows([(0, 6), (1, 6), (0, 3), (2, 6)], 6)
  one = forward(params, *data)
  mesh = make_mesh(2, 2, 2)
  with jax.set_mesh(mesh):
    spread = place(mesh, params, model.axes())
    eight = jax.jit(model.hidden)(spread, *place(mesh, data, ("batch", "time")))
  assert len(eight.sharding.device_set) == 8
  close(np.asarray(eight)[np.asarray(data[2])], one[data[2]])


def test_code_size_does_not_grow_with_depth():
  def length(num_layers):
    model = Decoder(tiny_config(37, width=32, num_layers=num_layers))
    params = jax.eval_shape(model.init, jax.random.key(0))
    return len(str(jax.make_jaxpr(model.hidden)(params, *rows([(0, 4)], 4))).splitlines())

  assert length(2) == length(6)


def test_sizes_of_the_tiny_decoder():
  model = Decoder(tiny_config(100))
  assert 0.75e6 < model.num_params() < 0.85e6
  assert hash(model) == hash(Decoder(tiny_config(100)))
  matrices = 4 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 384 * 128) + 100 * 128
  assert model.flops_per_token() == pytest.approx(2 * matrices, rel=0.01)
  assert model.flops_per_token(10) - model.flops_per_token() == 4 * 4 * 128 * 10
  # of 5 experts 2 work for a token; the untied embedding is a lookup
  active = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 5 * 32 + 2 * 3 * 24 * 32) + 37 * 32
  assert Decoder(SPARSE).flops_per_token() == pytest.approx(2 * active, rel=0.02)
