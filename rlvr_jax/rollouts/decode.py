"""Prefill, fan-out and the decode loop over a key-value cache of static size."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.core import PyTree, positions
from rlvr_jax.rollouts.draws import Filters, draw
from rlvr_jax.sharding import constrain


class Completions(NamedTuple):
  """What was sampled, in columns counted from the end of the prompt. Off `mask` all is 0."""

  tokens: Any  # Int["n t"]
  mask: Any  # Bool["n t"]     up to the first stop token, which is included
  log_probs: Any  # Float32["n t"]
  entropy: Any  # Float32["n t"]  or None
  done: Any  # Bool["n"]       met a stop token, or has no prompt


class _Loop(NamedTuple):
  column: Any  # Int[""]    next column to draw
  last: Any  # Int["n"]   token drawn at the column before
  cache: Any
  out: Completions


def left_pad(tokens: Int[Array, "p l"], valid_mask: Bool[Array, "p l"]) -> tuple[Int[Array, "p l"], Bool[Array, "p l"]]:
  """The same rows with all padding in front, so that every prompt ends at the column before the first completion."""
  order = jnp.argsort(valid_mask, axis=-1, stable=True)
  take = lambda x: jnp.take_along_axis(x, order, axis=-1)
  return take(tokens), take(valid_mask)


def compute_params(params: PyTree, dtype: str) -> PyTree:
  """Weights in the dtype the layers cast them to, once rather than at every step; norms are float32 and stay."""

  def cast(path, x):
    in_norm = any(str(getattr(entry, "key", entry)).endswith("norm") for entry in path)
    return x if in_norm or not jnp.issubdtype(x.dtype, jnp.floating) else x.astype(dtype)

  return jax.tree_util.tree_map_with_path(cast, params)


def fan_out(cache: Any, group_size: int) -> Any:
  """The cache of p prompts as one of p * group_size rows, prompt-major, each with its own copy of the prompt."""
  axes = ("layers", "batch", "time", "kv_heads", "head_dim")
  return dataclasses.replace(
    cache,
    k=constrain(jnp.repeat(cache.k, group_size, axis=1), axes),
    v=constrain(jnp.repeat(cache.v, group_size, axis=1), axes),
    valid=constrain(jnp.repeat(cache.valid, group_size, axis=0), ("batch", "time")),
    position=constrain(jnp.repeat(cache.position, group_size, axis=0), ("batch", "time")),
  )


def uniforms_at(keys: Array, column: Int[Array, ""]) -> Float[Array, "n 2"]:
  """Two uniforms per row, of the row's key and the index of the generated token alone."""
  return jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, column), (2,)))(keys)


def make_decode(
  model: Any,
  stop_ids: tuple[int, ...],
  group_size: int,
  max_new_tokens: int,
  filters: Filters,
  with_entropy: bool,
  early_exit: bool = True,
) -> Callable[..., Completions]:
  """`decode(params, tokens["p l"], valid_mask["p l"], keys["n"]) -> Completions` for left-padded prompts."""

  def put(x, column, values):
    return jax.lax.dynamic_update_slice_in_dim(x, values[:, None].astype(x.dtype), column, axis=1)

  def draw_column(params, hidden, keys, column, out: Completions):
    """Draws one token per row from the states [n d] of the token before, and writes what is not done yet."""
    logits = constrain(model.logits(params, hidden), ("batch", "vocab"))
    tokens, log_probs, entropy = draw(logits, uniforms_at(keys, column), filters, with_entropy)
    live = ~out.done
    tokens = jnp.where(live, tokens, 0)
    stops = jnp.any(tokens[:, None] == jnp.asarray(stop_ids, jnp.int32)[None], axis=-1)
    written = Completions(
      put(out.tokens, column, tokens),
      put(out.mask, column, live),
      put(out.log_probs, column, jnp.where(live, log_probs, 0.0)),
      put(out.entropy, column, jnp.where(live, entropy, 0.0)) if with_entropy else None,
      out.done | stops,
    )
    return tokens, jax.tree.map(lambda x: constrain(x, ("batch", "time")[: x.ndim]), written)

  def decode(params, tokens, valid_mask, keys):
    params = compute_params(params, model.dtype)
    p, length = tokens.shape
    n = p * group_size
    # The token of the last column is drawn and never read, so the cache ends one column before.
    cache = model.init_cache(p, length + max_new_tokens - 1)
    hidden, cache = model.extend(params, cache, tokens, positions(valid_mask), valid_mask)
    hidden, cache = jnp.repeat(hidden[:, -1], group_size, axis=0), fan_out(cache, group_size)
    num_prompt_tokens = jnp.repeat(jnp.sum(valid_mask, axis=-1, dtype=jnp.int32), group_size)
    floats = jnp.zeros((n, max_new_tokens), jnp.float32)
    out = Completions(
      floats.astype(jnp.int32), floats.astype(bool), floats, floats if with_entropy else None, num_prompt_tokens == 0
    )

    def unfinished(loop: _Loop):
      return (loop.column < max_new_tokens) & ~jnp.all(loop.out.done)

    def advance(loop: _Loop):
      # The token of column - 1 stands at that index after the prompt. Rows that are done write invalid columns.
      position = (num_prompt_tokens + loop.column - 1)[:, None]
      hidden, cache = model.extend(params, loop.cache, loop.last[:, None], position, ~loop.out.done[:, None])
      last, out = draw_column(params, hidden[:, 0], keys, loop.column, loop.out)
      return _Loop(loop.column + 1, last, cache, out)

    last, out = draw_column(params, hidden, keys, jnp.int32(0), out)
    loop = _Loop(jnp.int32(1), last, cache, out)
    if early_exit:
      return jax.lax.while_loop(unfinished, advance, loop).out
    return jax.lax.fori_loop(1, max_new_tokens, lambda _, loop: advance(loop), loop).out

  return decode
