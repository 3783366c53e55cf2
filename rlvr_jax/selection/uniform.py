"""Every prompt equally likely, in every batch anew.

  {x_1, ..., x_p} ~ uniform over the subsets of p prompts, independent between steps

Distinct within a batch, with replacement between batches. Needs no memory in proportion to the pool.

Differs: subsets come from a keyed hash (`selection/order.py`), uniform as far as 64 bits of key and the hash go.
"""

import jax.numpy as jnp

from rlvr_jax.selection.order import order_of, permuted
from rlvr_jax.selection.types import Selection, check_sizes


def uniform(num_prompts: int, per_step: int) -> Selection:
  """Args: num_prompts is the size of the pool, per_step that of a batch."""
  check_sizes("uniform", num_prompts, "per_step", per_step)

  def propose(state, key):
    return permuted(jnp.arange(per_step), order_of(key), num_prompts), state

  return Selection(dict, propose, lambda state, index, num_correct, num_judged: state, per_step)
