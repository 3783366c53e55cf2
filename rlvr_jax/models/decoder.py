"""One decoder for every family: a pure function of a nested dict of arrays whose layers are stacked."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Float32, Int

from rlvr_jax.core import PyTree, nearest
from rlvr_jax.models.cache import KVCache
from rlvr_jax.models.config import DecoderConfig
from rlvr_jax.models.layers import Layer, RMSNorm
from rlvr_jax.models.rope import rotation
from rlvr_jax.sharding import constrain

POLICIES = ("everything_saveable", "nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable")
REMAT = ("none", "full", *POLICIES)
DTYPES = ("float32", "bfloat16", "float16")


@functools.lru_cache(maxsize=64)
def _layer_parts(config: DecoderConfig):
  """(graph definition, tree of logical axes, tree of shapes) of one layer."""
  graph, state = nnx.split(nnx.eval_shape(lambda: Layer(config, nnx.Rngs(0))))
  axes = nnx.to_pure_dict(jax.tree.map(lambda v: v.replace(v.get_metadata("axes")), state, is_leaf=_is_param))
  return graph, axes, jax.tree.map(lambda s: s.shape, nnx.to_pure_dict(state))


@functools.lru_cache(maxsize=64)
def _norm_graph(config: DecoderConfig):
  return nnx.split(nnx.eval_shape(lambda: RMSNorm(config.width, config.norm_eps, config.norm_offset)))[0]


def _is_param(x) -> bool:
  return isinstance(x, nnx.Variable)


def _is_tuple(x) -> bool:
  return isinstance(x, tuple)


@dataclasses.dataclass(frozen=True)
class Decoder:
  """`params` is a nested dict: embed, layers (each leaf [num_layers, ...]), final_norm, and head where it is untied."""

  config: DecoderConfig
  dtype: str = "float32"  # of activations and of the cache
  param_dtype: str = "float32"
  remat: str = "none"  # what the backward pass recomputes: nothing, all (full), or a name of jax.checkpoint_policies

  def __post_init__(self):
    for name, value, known in (
      ("dtype", self.dtype, DTYPES), ("param_dtype", self.param_dtype, DTYPES), ("remat", self.remat, REMAT),
    ):  # fmt: skip
      if value not in known:
        raise ValueError(f"{name} must be one of {known}, got {value!r}{nearest(value, known)}")

  def init(self, key: Array) -> PyTree:
    """Random parameters. The key is consumed."""
    c = self.config
    embed_key, layers_key, head_key = jax.random.split(key, 3)
    table = lambda k: dict(weight=jax.random.normal(k, (c.vocab_size, c.width)) * c.width**-0.5)
    layer = lambda k: nnx.to_pure_dict(nnx.state(Layer(c, nnx.Rngs(k)), nnx.Param))
    params = dict(
      embed=table(embed_key),
      layers=jax.vmap(layer)(jax.random.split(layers_key, c.num_layers)),
      final_norm=dict(weight=jnp.full((c.width,), 1.0 - c.norm_offset)),
    )
    if not c.tie_embeddings:
      params["head"] = table(head_key)
    return jax.tree.map(lambda x: x.astype(self.param_dtype), params)

  def axes(self) -> PyTree:
    """Logical axes of every parameter, in the structure of `params`."""
    layers = jax.tree.map(lambda a: ("layers", *a), _layer_parts(self.config)[1], is_leaf=_is_tuple)
    axes = dict(embed=dict(weight=("vocab", "embed")), layers=layers, final_norm=dict(weight=("act_embed",)))
    return axes if self.config.tie_embeddings else axes | dict(head=dict(weight=("vocab", "embed")))

  def shapes(self) -> PyTree:
    """Shape of every parameter, in the structure of `params`."""
    c = self.config
    layers = jax.tree.map(lambda s: (c.num_layers, *s), _layer_parts(c)[2], is_leaf=_is_tuple)
    shapes = dict(embed=dict(weight=(c.vocab_size, c.width)), layers=layers, final_norm=dict(weight=(c.width,)))
    return shapes if c.tie_embeddings else shapes | dict(head=dict(weight=(c.vocab_size, c.width)))

  def hidden(self, params: PyTree, tokens: Int[Array, "n t"], positions: Int[Array, "n t"],
             valid_mask: Bool[Array, "n t"], segment_id: Int[Array, "n t"] | None = None
             ) -> Float[Array, "n t d"]:  # fmt: skip
    """States after the final norm. A token sees valid tokens of its row and segment at positions up to its own.

    States at padding are finite and mean nothing.
    """
    mask = valid_mask[:, None, :] & (positions[:, None, :] <= positions[:, :, None])
    if segment_id is not None:
      mask &= segment_id[:, None, :] == segment_id[:, :, None]
    select = _per_layer(self.config, positions, positions, mask)

    def block(x, xs):
      layer, sliding = xs
      x, _ = self._layer(layer)(x, *select(sliding), lambda k, v: (k, v, None))
      return x, None

    x, _ = jax.lax.scan(_remat(block, self.remat), self._embed(params, tokens), (params["layers"], self._sliding()))
    return self._final_norm(params, x)

  def init_cache(self, n: int, length: int) -> KVCache:
    """An empty cache of `length` columns for `n` rows."""
    c = self.config
    zeros = lambda: constrain(
      jnp.zeros((c.num_layers, n, length, c.num_kv_heads, c.head_dim), self.dtype),
      ("layers", "batch", "time", "kv_heads", "head_dim"),
    )
    positions = jnp.zeros((n, length), jnp.int32)
    return KVCache(zeros(), zeros(), positions.astype(bool), positions, jnp.zeros((), jnp.int32))

  def extend(self, params: PyTree, cache: KVCache, tokens: Int[Array, "n t"], positions: Int[Array, "n t"],
             valid_mask: Bool[Array, "n t"]) -> tuple[Float[Array, "n t d"], KVCache]:  # fmt: skip
    """Writes `t` columns at `cache.index` and gives their states after the final norm, equal to those of `hidden`.

    The caller keeps `cache.index + t <= cache.length`; `index` is traced, so this can only be checked outside.
    """
    if tokens.shape[1] > cache.length:
      raise ValueError(f"extend: {tokens.shape[1]} columns do not fit a cache of {cache.length}")
    at, cache = cache.index, cache.write(positions, valid_mask)
    mask = cache.valid[:, None, :] & (cache.position[:, None, :] <= positions[:, :, None])
    select = _per_layer(self.config, positions, cache.position, mask)

    def block(carry, xs):
      x, all_k, all_v = carry  # the whole cache is carried, so that XLA writes it in place
      layer, sliding, i = xs

      def mix(k, v):
        put = lambda old, new: jax.lax.dynamic_update_slice(old, new[None].astype(old.dtype), (i, 0, at, 0, 0))
        new_k, new_v = put(all_k, k), put(all_v, v)
        take = lambda y: jax.lax.dynamic_index_in_dim(y, i, keepdims=False)
        return take(new_k), take(new_v), (new_k, new_v)

      x, (all_k, all_v) = self._layer(layer)(x, *select(sliding), mix)
      return (x, all_k, all_v), None

    xs = (params["layers"], self._sliding(), jnp.arange(self.config.num_layers))
    (x, k, v), _ = jax.lax.scan(block, (self._embed(params, tokens), cache.k, cache.v), xs)
    return self._final_norm(params, x), dataclasses.replace(cache, k=k, v=v)

  def head(self, params: PyTree) -> Float[Array, "v d"]:
    """Weight of the vocabulary head, which is the embedding where they are tied."""
    return params["embed" if self.config.tie_embeddings else "head"]["weight"]

  def logits(self, params: PyTree, hidden: Float[Array, "*s d"]) -> Float32[Array, "*s v"]:
    """For a few positions only; whole rows go through `core.token_statistics`."""
    weight = self.head(params).astype(hidden.dtype)
    return jnp.einsum("...d,vd->...v", hidden, weight, preferred_element_type=jnp.float32)

  def num_params(self) -> int:
    return sum(math.prod(s) for s in jax.tree.leaves(self.shapes(), is_leaf=_is_tuple))

  def flops_per_token(self, context: int = 0) -> float:
    """Of one forward pass: two per active weight of a matrix, and attention over `context` tokens."""
    c = self.config
    one_expert = 3 * c.num_layers * c.width * c.expert_width
    idle = one_expert * (c.num_experts - c.experts_per_token)
    lookup = 0 if c.tie_embeddings else c.vocab_size * c.width  # a tied table is multiplied once, as the head
    return 2.0 * (self.num_params() - lookup - idle) + 4.0 * c.num_layers * c.num_heads * c.head_dim * context

  def _embed(self, params, tokens):
    # The scale is rounded to the compute dtype first, as the released weights expect.
    x = params["embed"]["weight"][tokens].astype(self.dtype) * jnp.asarray(self.config.embed_scale, self.dtype)
    return constrain(x, ("batch", "time", "act_embed"))

  def _layer(self, layer_params) -> Layer:
    return nnx.merge(_layer_parts(self.config)[0], layer_params)

  def _final_norm(self, params, x):
    return nnx.merge(_norm_graph(self.config), params["final_norm"])(x)

  def _sliding(self):
    return jnp.asarray([kind == "sliding_attention" for kind in self.config.layer_types])


def _per_layer(config: DecoderConfig, positions, key_positions, mask):
  """`select(sliding) -> ((cos, sin), mask)` for one layer; both kinds are computed once, outside the scan."""
  c, kinds = config, set(config.layer_types)
  rope = rotation(positions, c.head_dim, c.rope_theta, c.rope_scaling)
  if kinds == {"full_attention"}:
    return lambda sliding: (rope, mask)
  local_mask = mask & (key_positions[:, None, :] > positions[:, :, None] - c.sliding_window)
  local_rope = rope
  if c.local_rope_theta is not None:
    local_rope = rotation(positions, c.head_dim, c.local_rope_theta, c.local_rope_scaling)
  choose = lambda sliding, a, b: jax.tree.map(lambda x, y: jnp.where(sliding, x, y), a, b)
  return lambda sliding: choose(sliding, (local_rope, local_mask), (rope, mask))


def _remat(block, name: str):
  if name == "none":
    return block
  policy = None if name == "full" else getattr(jax.checkpoint_policies, name)
  return jax.checkpoint(block, policy=policy, prevent_cse=False)  # inside scan nothing needs the barrier
