"""Modules of one layer. Each parameter declares shape, initial value and logical axes in one place."""

import jax
import jax.numpy as jnp
from flax import nnx

from rlvr_jax.models.config import DecoderConfig
from rlvr_jax.models.rope import rotate
from rlvr_jax.sharding import constrain

ACTIVATION_FNS = dict(silu=jax.nn.silu, gelu_tanh=lambda x: jax.nn.gelu(x, approximate=True))


def _matmul(equation, x, weight):
  """In x's dtype with float32 accumulation."""
  return jnp.einsum(equation, x, weight.astype(x.dtype), preferred_element_type=jnp.float32).astype(x.dtype)


class Linear(nnx.Module):
  """y = W x + b, W stored as [out, in]. Initial W is normal with standard deviation scale / sqrt(in)."""

  def __init__(self, d_out, d_in, axes, rngs, use_bias=False, scale=1.0):
    initial = jax.random.normal(rngs.params(), (d_out, d_in)) * (scale * d_in**-0.5)
    self.weight = nnx.Param(initial, axes=axes)
    if use_bias:
      self.bias = nnx.Param(jnp.zeros((d_out,)), axes=axes[:1])

  def __call__(self, x):
    y = _matmul("...d,od->...o", x, self.weight[...])
    if hasattr(self, "bias"):
      y = y + jnp.expand_dims(self.bias[...].astype(x.dtype), tuple(range(y.ndim - 1)))
    return y


class RMSNorm(nnx.Module):
  """x / sqrt(mean(x^2) + eps) * (offset + weight), in float32."""

  def __init__(self, size, eps, offset, axes=("act_embed",)):
    self.eps, self.offset = eps, offset
    self.weight = nnx.Param(jnp.full((size,), 1.0 - offset), axes=axes)

  def __call__(self, x):
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.eps)
    scale = self.offset + self.weight[...].astype(jnp.float32)
    return (y * jnp.expand_dims(scale, tuple(range(y.ndim - 1)))).astype(x.dtype)


class Attention(nnx.Module):
  """Grouped-query attention. `mix` decides where keys and values come from: this call, or a cache."""

  def __init__(self, config: DecoderConfig, rngs):
    c = self.config = config
    queries, keys, bias = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim, c.qkv_bias
    self.q = Linear(queries, c.width, ("heads", "embed"), rngs, bias)
    self.k = Linear(keys, c.width, ("kv_heads", "embed"), rngs, bias)
    self.v = Linear(keys, c.width, ("kv_heads", "embed"), rngs, bias)
    self.o = Linear(c.width, queries, ("embed", "heads"), rngs, c.out_bias, scale=(2 * c.num_layers) ** -0.5)
    if c.qk_norm == "head":
      self.q_norm = RMSNorm(c.head_dim, c.norm_eps, c.norm_offset, ("head_dim",))
      self.k_norm = RMSNorm(c.head_dim, c.norm_eps, c.norm_offset, ("head_dim",))
    elif c.qk_norm == "full":
      self.q_norm = RMSNorm(queries, c.norm_eps, c.norm_offset, ("heads",))
      self.k_norm = RMSNorm(keys, c.norm_eps, c.norm_offset, ("kv_heads",))

  def __call__(self, x, rope, mask, mix):
    c = self.config
    split = lambda y, heads: y.reshape(*y.shape[:2], heads, c.head_dim)
    q, k, v = self.q(x), self.k(x), split(self.v(x), c.num_kv_heads)
    if c.qk_norm == "full":
      q, k = self.q_norm(q), self.k_norm(k)
    q, k = split(q, c.num_heads), split(k, c.num_kv_heads)
    if c.qk_norm == "head":
      q, k = self.q_norm(q), self.k_norm(k)
    q = constrain(rotate(q, *rope), ("batch", "time", "heads", "head_dim"))
    keys, values, carried = mix(rotate(k, *rope), v)
    scale = c.head_dim**-0.5 if c.query_scale is None else c.query_scale
    # A row that may look at nothing (padding) gets equal weights, hence finite numbers that nobody reads.
    y = jax.nn.dot_product_attention(q, keys, values, mask=mask[:, None], scale=scale)
    return self.o(y.reshape(*x.shape[:2], -1)), carried


class MLP(nnx.Module):
  """down(act(gate x) * up x)."""

  def __init__(self, config: DecoderConfig, rngs):
    c = self.config = config
    self.gate = Linear(c.mlp_width, c.width, ("mlp", "embed"), rngs, c.mlp_bias)
    self.up = Linear(c.mlp_width, c.width, ("mlp", "embed"), rngs, c.mlp_bias)
    self.down = Linear(c.width, c.mlp_width, ("embed", "mlp"), rngs, c.mlp_bias, scale=(2 * c.num_layers) ** -0.5)

  def __call__(self, x):
    return self.down(ACTIVATION_FNS[self.config.activation](self.gate(x)) * self.up(x))


class Experts(nnx.Module):
  """One linear map per expert, [experts, out, in], applied to rows sorted by expert."""

  def __init__(self, num_experts, d_out, d_in, axes, rngs, scale=1.0):
    initial = jax.random.normal(rngs.params(), (num_experts, d_out, d_in)) * (scale * d_in**-0.5)
    self.weight = nnx.Param(initial, axes=("experts", *axes))

  def __call__(self, rows, group_sizes):
    weight = jnp.swapaxes(self.weight[...].astype(rows.dtype), 1, 2)
    return jax.lax.ragged_dot(rows, weight, group_sizes, preferred_element_type=jnp.float32).astype(rows.dtype)


class SparseMLP(nnx.Module):
  """Each token goes to its `experts_per_token` most probable experts; none is dropped, so no row sees its batch."""

  def __init__(self, config: DecoderConfig, rngs):
    c = self.config = config
    self.router = Linear(c.num_experts, c.width, ("experts", "embed"), rngs)
    self.gate = Experts(c.num_experts, c.expert_width, c.width, ("mlp", "embed"), rngs)
    self.up = Experts(c.num_experts, c.expert_width, c.width, ("mlp", "embed"), rngs)
    self.down = Experts(c.num_experts, c.width, c.expert_width, ("embed", "mlp"), rngs, (2 * c.num_layers) ** -0.5)

  def __call__(self, x):
    c, tokens = self.config, x.reshape(-1, x.shape[-1])
    probs = jax.nn.softmax(self.router(tokens).astype(jnp.float32), axis=-1)
    weights, chosen = jax.lax.top_k(probs, c.experts_per_token)
    if c.normalise_experts:
      weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    order = jnp.argsort(chosen.reshape(-1), stable=True)  # (token, choice) pairs, by expert
    sizes = jnp.bincount(chosen.reshape(-1), length=c.num_experts).astype(jnp.int32)
    rows = tokens[order // c.experts_per_token]
    hidden = ACTIVATION_FNS[c.activation](self.gate(rows, sizes)) * self.up(rows, sizes)
    out = self.down(hidden, sizes)[jnp.argsort(order)].reshape(*chosen.shape, -1)
    return jnp.sum(out * weights.astype(x.dtype)[:, :, None], axis=1).reshape(x.shape)


class Layer(nnx.Module):
  """Attention and MLP around a residual stream, normed before each block, after it, or both."""

  def __init__(self, config: DecoderConfig, rngs):
    c = self.config = config
    norm = lambda: RMSNorm(c.width, c.norm_eps, c.norm_offset)
    self.attention = Attention(c, rngs)
    self.mlp = SparseMLP(c, rngs) if c.num_experts else MLP(c, rngs)
    if c.norm_placement in ("pre", "both"):
      self.pre_attention_norm, self.pre_mlp_norm = norm(), norm()
    if c.norm_placement in ("post", "both"):
      self.post_attention_norm, self.post_mlp_norm = norm(), norm()

  def __call__(self, x, rope, mask, mix):
    before, after = self.config.norm_placement in ("pre", "both"), self.config.norm_placement in ("post", "both")
    y, carried = self.attention(self.pre_attention_norm(x) if before else x, rope, mask, mix)
    x = constrain(x + (self.post_attention_norm(y) if after else y), ("batch", "time", "act_embed"))
    y = self.mlp(self.pre_mlp_norm(x) if before else x)
    return constrain(x + (self.post_mlp_norm(y) if after else y), ("batch", "time", "act_embed")), carried
