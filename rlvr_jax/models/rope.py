"""Rotary position embedding, rotate-half layout, with the published ways to stretch it."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from rlvr_jax.models.config import RopeScaling


def frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> tuple[np.ndarray, float]:
  """Radians per position of each of the head_dim / 2 pairs, and what cos and sin are multiplied by."""
  inverse = 1.0 / theta ** (np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim))
  inverse = inverse.astype(np.float32)
  if scaling is None:
    return inverse, 1.0
  return _SCALERS[scaling.kind](inverse, theta, scaling), scaling.attention_factor


def _linear(inverse, theta, s: RopeScaling):
  return inverse / np.float32(s.factor)


def _llama3(inverse, theta, s: RopeScaling):
  """Long waves are divided by `factor`, short ones kept, those between interpolated (Llama 3.1)."""
  turns = s.original_max_positions * inverse / (2 * np.float32(np.pi))  # full turns within the pretraining length
  smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
  smooth = np.clip(smooth, 0.0, 1.0)
  return ((1 - smooth) * inverse / s.factor + smooth * inverse).astype(np.float32)


def _yarn(inverse, theta, s: RopeScaling):
  """Ramp over pairs from kept to divided by `factor`, between beta_fast and beta_slow turns (arXiv:2309.00071)."""
  dim = 2 * len(inverse)

  def pair_of(turns):
    return dim * math.log(s.original_max_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

  low, high = max(math.floor(pair_of(s.beta_fast)), 0), min(math.ceil(pair_of(s.beta_slow)), dim - 1)
  high = high + 0.001 if low == high else high
  ramp = np.clip((np.arange(len(inverse), dtype=np.float32) - low) / (high - low), 0, 1)
  return (inverse / s.factor * ramp + inverse * (1 - ramp)).astype(np.float32)


_SCALERS = dict(linear=_linear, llama3=_llama3, yarn=_yarn)


def rotation(positions: Int[Array, "n t"], head_dim: int, theta: float, scaling: RopeScaling | None
             ) -> tuple[Float32[Array, "n t r"], Float32[Array, "n t r"]]:  # fmt: skip
  """cos and sin of every position's angle, r = head_dim / 2."""
  inverse, factor = frequencies(head_dim, theta, scaling)
  angles = positions[:, :, None].astype(jnp.float32) * inverse[None, None, :]
  return jnp.cos(angles) * factor, jnp.sin(angles) * factor


def rotate(x: Float[Array, "n t h e"], cos: Float[Array, "n t r"], sin: Float[Array, "n t r"]
           ) -> Float[Array, "n t h e"]:  # fmt: skip
  """Turns the pairs (i, i + e/2) of every head; computed in float32."""
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  cos, sin = cos[:, :, None, :], sin[:, :, None, :]
  return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
