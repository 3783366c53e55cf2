"""Passes over the pool, each prompt at most once per pass.

  batch b of epoch e = (π_e(b p), ..., π_e(b p + p - 1)),   b < floor(num_prompts / p)

With shuffle, π_e is a permutation named by the key of the epoch's first proposal, which the state keeps: the keys of
later proposals in the epoch are not read, and a state restored in the middle of an epoch goes on with its order. It is
computed at the places asked for (`selection/order.py`), so a pool of 10^6 prompts costs no more memory than one of 10.
The last num_prompts mod p prompts of an epoch wait for the next one, as in the loader of text tasks: a batch lies
within one epoch, so no prompt is in it twice.

Without shuffle the pool is read in order and round and round: a batch that reaches its end goes on at its start, so
every prompt comes up equally often.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from rlvr_jax.selection.order import order_of, permuted
from rlvr_jax.selection.types import Selection, check_sizes


class Place(NamedTuple):
  """Where in which pass the next batch starts."""

  position: Any  # Int[""]      in the epoch
  order: Any  # UInt32["2"]  names the permutation of the epoch


def epochs(num_prompts: int, per_step: int, shuffle: bool = True) -> Selection:
  """Args: num_prompts is the size of the pool, per_step that of a batch, shuffle draws a new order for every epoch."""
  check_sizes("epochs", num_prompts, "per_step", per_step)

  def init():
    return Place(jnp.zeros((), jnp.int32), jnp.zeros((2,), jnp.uint32))

  def shuffled(state, key):
    order = jnp.where(state.position == 0, order_of(key), state.order)
    index = permuted(state.position + jnp.arange(per_step), order, num_prompts)
    # Compared without adding per_step twice, which may pass 2**31.
    last = state.position > num_prompts - 2 * per_step
    return index, Place(jnp.where(last, 0, state.position + per_step), order)

  def in_order(state, key):
    del key
    left = num_prompts - state.position  # before the end of the pool
    ahead = jnp.arange(per_step)
    index = jnp.where(ahead < left, state.position + ahead, ahead - left)
    return index, Place(jnp.where(per_step < left, state.position + per_step, per_step - left), state.order)

  observe = lambda state, index, num_correct, num_judged: state
  return Selection(init, shuffled if shuffle else in_order, observe, per_step)
