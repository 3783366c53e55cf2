"""K independent small sums in one prompt, one answered per turn.

  action:       the value of the request whose turn it is, in decimal, then stop
  observation:  the number of the next request, after a ? where the action was no number; nothing after the last
  prompt:       a+b;c-d;e*f;1   the requests, then the number of the first to answer
  reward:       1/k for a right value, each turn by itself: what is said in one turn changes nothing in another

A wrong or illegal answer passes on to the next request, so all are over after k turns.

Args: k sums; operands below `limit`; `operators` out of +-*, where a difference is never negative.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from rlvr_jax.core import check_number
from rlvr_jax.tasks.graph.types import draw_split
from rlvr_jax.tasks.worlds import words
from rlvr_jax.tasks.worlds.types import World, WorldStep

OPERATORS = {"+": jnp.add, "-": jnp.subtract, "*": jnp.multiply}


class RequestsFacts(NamedTuple):
  left: Any  # Int["k"]
  right: Any  # Int["k"]
  operator: Any  # Int["k"]  place in `operators`
  value: Any  # Int["k"]


class RequestsState(NamedTuple):
  turn: Any  # Int[""]  the request to answer; k when all are over


def requests(
  k: int = 3, limit: int = 10, operators: str = "+-", num_train: int = 4096, num_eval: int = 256, seed: int = 0
) -> World:
  """Raises: ValueError for k outside [1, 9], a limit outside [4, 1000], or an operator that is unknown or doubled."""
  check_number("requests: k", k, minimum=1, maximum=9)
  check_number("requests: limit", limit, minimum=4, maximum=1000)
  if not operators or set(operators) - set(OPERATORS) or len(set(operators)) < len(operators):
    raise ValueError(f"requests: operators must be some of {''.join(OPERATORS)}, each once, got {operators!r}")
  words.check_counts("requests", num_train, num_eval)
  symbols = (*words.SPECIAL, *words.DIGITS, *operators, ";", "?")
  zero_id, operator_id, semicolon_id, illegal_id = (symbols.index(s) for s in ("0", operators[0], ";", "?"))
  operand_digits = len(str(limit - 1))
  largest = {"+": 2 * (limit - 1), "-": limit - 1, "*": (limit - 1) ** 2}
  value_digits = len(str(max(largest[name] for name in operators)))

  def draw(key):
    left, right, operator = words.draw_below(key, [[limit] * k, [limit] * k, [len(operators)] * k])
    swap = (left < right) & (operator == operators.find("-"))  # find gives -1, which matches none, without a -
    left, right = jnp.where(swap, right, left), jnp.where(swap, left, right)
    value = jnp.select([operator == i for i in range(len(operators))], [OPERATORS[o](left, right) for o in operators])
    return RequestsFacts(left, right, operator, value)

  def prompt(facts):
    operand = lambda number: words.write_number(number, operand_digits, zero_id)
    each = [
      (operand(facts.left[i]), facts.operator[i] + operator_id, operand(facts.right[i]), semicolon_id) for i in range(k)
    ]
    return words.join(*(piece for pieces in each for piece in pieces), zero_id + 1)

  def reset(facts):
    del facts
    return RequestsState(jnp.zeros((), jnp.int32))

  def step(facts, state, tokens, mask):
    said = words.read_number(tokens, mask, value_digits, zero_id)
    live = state.turn < k
    right = live & (said == facts.value[jnp.minimum(state.turn, k - 1)])
    after = RequestsState(jnp.minimum(state.turn + 1, k))
    number = words.join(zero_id + after.turn + 1)
    observation = words.where(said >= 0, number, words.join(illegal_id, number))
    return WorldStep(after, *words.say_if(after.turn < k, observation), right.astype(jnp.float32) / k, after.turn >= k)

  def plan(facts, state):
    value = facts.value[jnp.minimum(state.turn, k - 1)]
    return words.say_if(state.turn < k, words.join(words.write_number(value, value_digits, zero_id), words.STOP_ID))

  def hint(facts):
    each = [(words.write_number(facts.value[i], value_digits, zero_id), semicolon_id) for i in range(k)]
    return words.join(*(piece for pieces in each for piece in pieces))

  words.check_split("requests", draw, prompt, dict(k=k, limit=limit, operators=operators))
  return World(
    name="requests", symbols=symbols, pad_id=words.PAD_ID, stop_id=words.STOP_ID,
    prompt_tokens=k * (2 * operand_digits + 2) + 1, max_turns=k, action_tokens=value_digits + 1, observation_tokens=2,
    num_train=num_train, num_eval=num_eval,
    problem=lambda prompt_id: draw_split(seed, prompt_id, draw, prompt),
    prompt=prompt, reset=reset, step=step, plan=plan, hint=hint,
  )  # fmt: skip
