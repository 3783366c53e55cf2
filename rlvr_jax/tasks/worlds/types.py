"""What a world is: a task of several turns as array code. The policy speaks, the world answers, until it is done."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Int

from rlvr_jax.core import PyTree


class WorldStep(NamedTuple):
  """The world's answer to one action."""

  state: PyTree
  observation: Any  # Int["o"]   static width, observation_tokens
  mask: Any  # Bool["o"]
  reward: Any  # Float32[""]  of this turn; their sum is the reward of the row
  done: Any  # Bool[""]


class World(NamedTuple):
  """Problems numbered by `prompt_id` as in a `GraphTask`; every function is of ONE problem, arrays to arrays."""

  name: str
  symbols: tuple[str, ...]
  pad_id: int
  stop_id: int  # ends an action
  prompt_tokens: int
  max_turns: int
  action_tokens: int  # most tokens of one action, its stop token included
  observation_tokens: int
  num_train: int
  num_eval: int
  problem: Callable[[Int[Array, ""]], PyTree]  # prompt_id -> facts
  prompt: Callable[[PyTree], tuple[Any, Any]]  # facts -> the opening observation, Int["l"], Bool["l"]
  reset: Callable[[PyTree], PyTree]  # facts -> state
  step: Callable[[PyTree, PyTree, Any, Any], WorldStep]  # facts, state, action Int["a"], mask Bool["a"]
  plan: Callable[[PyTree, PyTree], tuple[Any, Any]]  # facts, state -> a best next action, Int["a"], Bool["a"]
  hint: Callable[[PyTree], tuple[Any, Any]]  # facts -> privileged text for a teacher, Int["u"], Bool["u"]
