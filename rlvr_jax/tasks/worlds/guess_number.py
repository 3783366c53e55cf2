"""A hidden number, guessed with graded feedback.

  action:       a number below `limit` in decimal, then stop
  observation:  < the hidden number is less, > it is greater, = it is the guess; ? no number below `limit`
  prompt:       low-high, two numbers between which the hidden one lies, both included
  reward:       1 for the right guess, which ends it; else 0

Bisection of n candidates needs at most floor(log2 n) + 1 guesses.

Args: max_turns None is as many as bisection of `limit` numbers needs, so nothing is left to waste on a wide range.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from rlvr_jax.core import check_number
from rlvr_jax.tasks.graph.types import draw_split
from rlvr_jax.tasks.worlds import words
from rlvr_jax.tasks.worlds.types import World, WorldStep


class GuessNumberFacts(NamedTuple):
  low: Any  # Int[""]
  high: Any  # Int[""]
  number: Any  # Int[""]  in [low, high]


class GuessNumberState(NamedTuple):
  """What the answers so far leave possible."""

  low: Any  # Int[""]
  high: Any  # Int[""]
  done: Any  # Bool[""]


def guess_number(
  limit: int = 16, max_turns: int | None = None, num_train: int = 4096, num_eval: int = 256, seed: int = 0
) -> World:
  """Raises: ValueError for a limit outside [8, 1000] (numbers have up to 3 digits) or fewer than 1 turn."""
  check_number("guess_number: limit", limit, minimum=8, maximum=1000)
  max_turns = limit.bit_length() if max_turns is None else max_turns
  check_number("guess_number: max_turns", max_turns, minimum=1)
  words.check_counts("guess_number", num_train, num_eval)
  symbols = (*words.SPECIAL, *words.DIGITS, *"<>=?", "-")
  zero_id, less_id, more_id, right_id, illegal_id, dash_id = (symbols.index(s) for s in "0<>=?-")
  num_digits = len(str(limit - 1))
  text = lambda number: words.write_number(number, num_digits, zero_id)

  def draw(key):
    end, step, number = words.draw_below(key, [limit, limit - 1, 2**30])
    other = (end + 1 + step) % limit  # any number but `end`
    low, high = jnp.minimum(end, other), jnp.maximum(end, other)
    return GuessNumberFacts(low, high, low + number % (high - low + 1))  # 2**30 numbers leave no bias to speak of

  def prompt(facts):
    return words.join(text(facts.low), dash_id, text(facts.high))

  def reset(facts):
    return GuessNumberState(facts.low, facts.high, jnp.zeros((), bool))

  def step(facts, state, tokens, mask):
    guess = words.read_number(tokens, mask, num_digits, zero_id)
    live = ~state.done
    legal = live & (guess >= 0) & (guess < limit)
    less, more, right = legal & (facts.number < guess), legal & (facts.number > guess), legal & (facts.number == guess)
    low = jnp.where(more, jnp.maximum(state.low, guess + 1), state.low)
    high = jnp.where(less, jnp.minimum(state.high, guess - 1), state.high)
    after = GuessNumberState(low, high, state.done | right)
    says = jnp.select([less, more, right], [less_id, more_id, right_id], illegal_id)
    return WorldStep(after, *words.say_if(live, words.join(says)), right.astype(jnp.float32), after.done)

  def plan(facts, state):
    del facts  # bisection needs no more than the agent was told
    return words.say_if(~state.done, words.join(text((state.low + state.high) // 2), words.STOP_ID))

  def hint(facts):
    return text(facts.number)

  words.check_split("guess_number", draw, prompt, dict(limit=limit))
  return World(
    name="guess_number", symbols=symbols, pad_id=words.PAD_ID, stop_id=words.STOP_ID,
    prompt_tokens=2 * num_digits + 1, max_turns=max_turns, action_tokens=num_digits + 1, observation_tokens=1,
    num_train=num_train, num_eval=num_eval,
    problem=lambda prompt_id: draw_split(seed, prompt_id, draw, prompt),
    prompt=prompt, reset=reset, step=step, plan=plan, hint=hint,
  )  # fmt: skip
