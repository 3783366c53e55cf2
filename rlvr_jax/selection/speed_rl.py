"""SPEED-RL: a few completions screen every candidate; only prompts of intermediate difficulty get the many.

  screen:    p̂_x = correct / judged of N_init completions;   x passes if low < p̂_x < high
  continue:  N_cont completions more for each of the per_step prompts that have waited longest since they passed

An iteration, host or graph: while fewer than per_step prompts wait (`state.size`), `propose` candidates, sample N_init
completions of each, verify, `observe`; then `take` per_step prompts and sample N_cont completions of each. Group sizes
are the sampler's. Candidates come from shuffled epochs (`epochs`); one that passes while it already waits is not queued
twice. Candidates that pass while the queue is full are lost and counted (`state.num_dropped`), which cannot happen with
the default capacity when proposals are made only while fewer than per_step wait.

Differs: The paper trains on all N_init + N_cont completions of a prompt; this state holds prompts, not completions.
         Where both phases are within one iteration, `rollouts.refill` screens and `rollouts.refill.join_groups` joins
         the two; a prompt that waits for a later iteration is trained on N_cont completions, all of them on-policy.
         The paper makes one inference call of a step's continuations and the next one's screening; here they are two.
Ref:     Zhang et al., SPEED-RL: Faster Training of Reasoning Models via Online Curriculum Learning, arXiv:2506.09016.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlvr_jax.core import PyTree, check_number
from rlvr_jax.selection.epochs import epochs
from rlvr_jax.selection.types import Screening, check_sizes


class Waiting(NamedTuple):
  """Prompts that passed, oldest first."""

  source: PyTree  # state of the stream of candidates
  queue: Any  # Int["q"]   -1 from `size` on
  size: Any  # Int[""]
  num_dropped: Any  # Int[""]    passed while the queue was full, since the start


def speed_rl(
  num_prompts: int,
  per_step: int,
  num_candidates: int,
  capacity: int | None = None,
  low: float = 0.0,
  high: float = 1.0,
) -> Screening:
  """Args:
  num_candidates: prompts screened by one proposal.
  capacity:       of the queue; None: per_step + num_candidates.
  low, high:      bounds of the success rate, both excluded.
  """
  check_sizes("speed_rl", num_prompts, "per_step", per_step)
  check_sizes("speed_rl", num_prompts, "num_candidates", num_candidates)
  capacity = per_step + num_candidates if capacity is None else capacity
  check_number("speed_rl: capacity", capacity, minimum=per_step)
  check_number("speed_rl: low", low, minimum=0, below=1)
  check_number("speed_rl: high", high, above=0, maximum=1)
  source = epochs(num_prompts, num_candidates)

  def init():
    zero = jnp.zeros((), jnp.int32)
    return Waiting(source.init(), jnp.full((capacity,), -1, jnp.int32), zero, zero)

  def propose(state, key):
    index, after = source.propose(state.source, key)
    return index, state._replace(source=after)

  def screen(num_correct: Float[Array, "c"], num_judged: Float[Array, "c"]) -> Bool[Array, "c"]:
    return (num_correct > low * num_judged) & (num_correct < high * num_judged)

  def observe(state, index, num_correct, num_judged):
    waits = jnp.any(state.queue[None, :] == index[:, None], axis=1)
    joins = screen(num_correct, num_judged) & ~waits
    place = jnp.where(joins, state.size + jnp.cumsum(joins, dtype=jnp.int32) - 1, capacity)
    wanted = state.size + jnp.sum(joins, dtype=jnp.int32)
    size = jnp.minimum(wanted, capacity)
    queue = state.queue.at[place].set(index, mode="drop")
    return Waiting(state.source, queue, size, state.num_dropped + wanted - size)

  def take(state):
    queue = jnp.concatenate([state.queue[per_step:], jnp.full((per_step,), -1, jnp.int32)])
    return state.queue[:per_step], state._replace(queue=queue, size=jnp.maximum(state.size - per_step, 0))

  return Screening(init, propose, observe, num_candidates, screen, take)
