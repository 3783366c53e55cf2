"""Critic heads over hidden states: a scalar, or a distribution over bins whose mean is the value. Always float32."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32


class ValueHead(NamedTuple):
  """`value(params, hidden)` is what credit reads. `logits` and `bins` are None for a scalar head."""

  init: Callable  # (key, width) -> params; the key is consumed
  axes: Callable  # () -> logical axes of params
  value: Callable  # (params, Float["*s d"]) -> Float32["*s"]
  logits: Callable | None = None  # (params, Float["*s d"]) -> Float32["*s m"]
  decode: Callable | None = None  # Float["*s m"] logits -> Float32["*s"]
  bins: np.ndarray | None = None  # Float32["m"] centres


def _linear(params, hidden):
  y = jnp.einsum("...d,od->...o", hidden.astype(jnp.float32), params["weight"].astype(jnp.float32))
  return y + jnp.expand_dims(params["bias"].astype(jnp.float32), tuple(range(y.ndim - 1)))


def _init(outputs: int, init_scale: float):
  def init(key, width: int):
    weight = init_scale * width**-0.5 * jax.random.normal(key, (outputs, width))
    return dict(weight=weight, bias=jnp.zeros((outputs,)))

  return init


def scalar_head(init_scale: float = 0.01) -> ValueHead:
  """v = w . h + b; starts near 0."""

  def value(params, hidden: Float[Array, "*s d"]) -> Float32[Array, "*s"]:
    return _linear(params, hidden)[..., 0]

  axes = lambda: dict(weight=(None, "embed"), bias=(None,))
  return ValueHead(_init(1, init_scale), axes, value)


def categorical_head(num_bins: int = 51, low: float = 0.0, high: float = 1.0, init_scale: float = 0.01) -> ValueHead:
  """v = sum_m softmax(W h + b)_m c_m with `num_bins` centres c evenly from `low` to `high`; starts near the middle.

  Ref: Farebrother et al., Stop regressing, arXiv:2403.03950.
  """
  if num_bins < 2:
    raise ValueError(f"categorical_head needs num_bins >= 2, got {num_bins}")
  if not low < high:
    raise ValueError(f"categorical_head needs low < high, got {low} and {high}")
  bins = np.linspace(low, high, num_bins, dtype=np.float32)

  def decode(logits: Float[Array, "*s m"]) -> Float32[Array, "*s"]:
    return jnp.einsum("...m,m->...", jax.nn.softmax(logits.astype(jnp.float32), axis=-1), bins)

  def value(params, hidden: Float[Array, "*s d"]) -> Float32[Array, "*s"]:
    return decode(_linear(params, hidden))

  axes = lambda: dict(weight=("bins", "embed"), bias=("bins",))
  return ValueHead(_init(num_bins, init_scale), axes, value, _linear, decode, bins)
