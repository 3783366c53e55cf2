"""A permutation of the pool that is computed at the places asked for, so none is stored.

A Feistel network permutes the smallest square domain that holds the pool, and at least 64 values. A value outside the
pool is sent through it again until it is inside (cycle walking), which permutes the pool itself, whatever its size.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

_NUM_ROUNDS = 8


def order_of(key: Array) -> UInt32[Array, "2"]:
  """What names a permutation: 64 bits of the key."""
  return jax.random.bits(key, (2,), jnp.uint32)


def _mix(x):
  """The finaliser of MurmurHash3: every bit of the input sways every bit of the output."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
  x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
  return x ^ (x >> 16)


def permuted(index: Int[Array, "p"], order: UInt32[Array, "2"], num_prompts: int) -> Int[Array, "p"]:
  """The prompts at places `index`, in [0, num_prompts), of the permutation that `order` names."""
  half = max(3, ((num_prompts - 1).bit_length() + 1) // 2)
  low = jnp.uint32(2**half - 1)

  def scramble(x):
    left, right = x >> half, x & low
    for i in range(_NUM_ROUNDS):
      salt = jnp.uint32(0x9E3779B9 * (i + 1) % 2**32)
      left, right = right, left ^ (_mix(_mix((right + salt) ^ order[0]) ^ order[1]) & low)
    return (left << half) | right

  def walk(carry):
    x, outside = carry
    x = jnp.where(outside, scramble(x), x)
    return x, x >= jnp.uint32(num_prompts)

  start = index.astype(jnp.uint32), jnp.ones(index.shape, bool)  # all of them go through it once
  x, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[1]), walk, start)
  return x.astype(jnp.int32)
