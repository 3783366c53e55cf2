"""The contract of selection: a state machine that says which prompts come next and hears how they went."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Int

from rlvr_jax.core import PyTree, check_number


class Selection(NamedTuple):
  """Which prompts of a pool make the next batch. Pure functions on arrays, for jit, vmap over seeds, and scan.

  The state holds everything a resume needs besides the keys, which the caller derives from (run key, step). Prompts are
  named by their index in the pool, in [0, num_prompts); the indices of one proposal differ from each other, since the
  sampler would answer a prompt that stands twice with the same completions twice.

  `observe` takes, for each index, how many completions were correct (a sum of rewards in [0, 1] is one too) and how
  many had a verdict. Zero of the latter is no evidence and changes nothing, which is what filler rows carry.
  """

  init: Callable[[], PyTree]
  propose: Callable[..., tuple[Int[Array, "p"], PyTree]]  # (state, key) -> (index, state)
  observe: Callable[..., PyTree]  # (state, index Int["p"], num_correct Float["p"], num_judged Float["p"]) -> state
  num_proposed: int  # p


class Screening(NamedTuple):
  """A Selection whose proposals are candidates, with a queue in its state of those that passed the screen."""

  init: Callable[[], PyTree]
  propose: Callable[..., tuple[Int[Array, "c"], PyTree]]  # (state, key) -> (candidates, state)
  observe: Callable[..., PyTree]  # as in Selection; queues the candidates that pass
  num_proposed: int  # c
  screen: Callable[..., Any]  # (num_correct Float["c"], num_judged Float["c"]) -> Bool["c"]
  take: Callable[[PyTree], tuple[Int[Array, "p"], PyTree]]  # the p that wait longest leave the queue; -1: none is left


class Replay(NamedTuple):
  """A buffer of whole groups. It proposes rollouts rather than prompts, so it has its own verbs.

  `init(rollout)` takes a rollout, or its shapes, of the kind that will be stored. All others are functions of arrays.
  """

  init: Callable[..., PyTree]  # (rollout or its shapes) -> state
  add: Callable[..., PyTree]  # (state, rollout, metric Float["n"]) -> state
  sample: Callable[..., tuple[Any, Any]]  # (state, key, step) -> (slot Int["k"], available Bool["k"])
  mix: Callable[..., tuple[Any, Any]]  # (rollout, state, metric, key, step) -> (rollout, replayed Bool["p"])


def check_sizes(builder: str, num_prompts: int, name: str, value: int) -> None:
  """Raises ValueError unless the pool has prompts, is countable in int32, and has `value` of them."""
  check_number(f"{builder}: num_prompts", num_prompts, minimum=1, below=2**31)
  if not 1 <= value <= num_prompts:
    raise ValueError(f"{builder}: {name} must be in [1, num_prompts = {num_prompts}], got {value}")
