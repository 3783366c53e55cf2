"""A table that is searched key by key for the value at the end of a chain.

  action:       a key, to look it up; or = and a key, to answer; then stop
  observation:  the value of the key, itself a key; ? for no legal action, a key not in the table included
  prompt:       the table's keys in alphabetical order, a colon, then the key to start from; never a value
  reward:       1 for answering table[...table[start]] after `num_hops` look-ups, else 0; any answer ends it

The keys are letters drawn for each problem. The table leads through all of them in one cycle, so that no chain of
fewer hops than there are keys returns to where it was.

Args: max_turns None is the `num_hops` + 1 that are needed, and two spare.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlvr_jax.core import check_number
from rlvr_jax.tasks.graph.types import draw_split
from rlvr_jax.tasks.worlds import words
from rlvr_jax.tasks.worlds.types import World, WorldStep

LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")


class KeyValueFacts(NamedTuple):
  """Keys are letters, 0 for a."""

  chain: Any  # Int["num_keys"]  the cycle from the start on: table[chain[i]] = chain[i + 1]


class KeyValueState(NamedTuple):
  looked_up: Any  # Bool["num_keys"]  in the order of the chain
  done: Any  # Bool[""]


def key_value(
  num_keys: int = 8,
  num_hops: int = 2,
  max_turns: int | None = None,
  num_train: int = 4096,
  num_eval: int = 256,
  seed: int = 0,
) -> World:
  """Raises: ValueError for num_keys outside [3, 26], num_hops outside [1, num_keys - 1], too few turns to search."""
  check_number("key_value: num_keys", num_keys, minimum=3, maximum=len(LETTERS))
  check_number("key_value: num_hops", num_hops, minimum=1, maximum=num_keys - 1)
  max_turns = num_hops + 3 if max_turns is None else max_turns
  check_number("key_value: max_turns", max_turns, minimum=num_hops + 1)
  words.check_counts("key_value", num_train, num_eval)
  symbols = (*words.SPECIAL, *LETTERS, *"=?:")
  first_id, answer_id, illegal_id, colon_id = (symbols.index(s) for s in "a=?:")

  def draw(key):
    return KeyValueFacts(jax.lax.top_k(jax.random.uniform(key, (len(LETTERS),)), num_keys)[1])

  def prompt(facts):
    letters = jnp.arange(len(LETTERS))
    keys, mask = words.compact(letters + first_id, jnp.any(facts.chain[:, None] == letters[None], axis=0))
    return words.join((keys[:num_keys], mask[:num_keys]), colon_id, facts.chain[0] + first_id)

  def reset(facts):
    del facts
    return KeyValueState(jnp.zeros((num_keys,), bool), jnp.zeros((), bool))

  def step(facts, state, tokens, mask):
    content, length, whole = words.read_action(tokens, mask, 2)
    answers = whole & (length == 2) & (content[0] == answer_id)
    said = jnp.where(answers, content[1], content[0]) - first_id
    place = facts.chain == said  # at most one: where in the chain it stands
    known = jnp.any(place)
    live = ~state.done
    looks_up, answers = live & known & whole & (length == 1), live & known & answers
    value = jnp.sum(jnp.where(place, jnp.roll(facts.chain, -1), 0))
    right = answers & (said == facts.chain[num_hops])
    after = KeyValueState(state.looked_up | (place & looks_up), state.done | answers)
    says = words.join(jnp.where(looks_up, value + first_id, illegal_id))
    return WorldStep(after, *words.say_if(live & ~answers, says), right.astype(jnp.float32), after.done)

  def plan(facts, state):
    missing = ~state.looked_up[:num_hops]
    next_key = facts.chain[jnp.argmax(missing)] + first_id
    answer = words.join(answer_id, facts.chain[num_hops] + first_id, words.STOP_ID)
    return words.say_if(~state.done, words.where(jnp.any(missing), words.join(next_key, words.STOP_ID), answer))

  def hint(facts):
    return facts.chain[: num_hops + 1] + first_id, jnp.ones((num_hops + 1,), bool)

  words.check_split("key_value", draw, prompt, dict(num_keys=num_keys))
  return World(
    name="key_value", symbols=symbols, pad_id=words.PAD_ID, stop_id=words.STOP_ID,
    prompt_tokens=num_keys + 2, max_turns=max_turns, action_tokens=3, observation_tokens=1,
    num_train=num_train, num_eval=num_eval,
    problem=lambda prompt_id: draw_split(seed, prompt_id, draw, prompt),
    prompt=prompt, reset=reset, step=step, plan=plan, hint=hint,
  )  # fmt: skip
