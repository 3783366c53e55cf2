"""Sequences to be sorted, ascending: `31415=` is answered by `11345`."""

import string
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from rlvr_jax.tasks.graph import tokens as tk
from rlvr_jax.tasks.graph.types import GraphTask, GraphVerdict, draw_split

ALPHABET = tk.DIGITS + string.ascii_lowercase


class Sorting(NamedTuple):
  items: Int[Array, "m"]
  present: Bool[Array, "m"]  # the first `length` of this problem


def sorting(
  *,
  length: int = 5,
  min_length: int | None = None,
  num_symbols: int = 10,
  num_train: int = 4096,
  num_eval: int = 256,
  seed: int = 0,
) -> GraphTask:
  """`length` symbols, drawn with repeats from the first `num_symbols` of `0..9a..z`, then `=`.

  A completion is right if it is the same symbols in ascending order and then stops; it can be read if it is one or
  more symbols. Ids repeat problems once there are more ids than problems. The difficulty of a problem is its length
  plus the number of pairs that stand in the wrong order.

  Args:
    min_length: problems have between this many and `length` symbols; None: all have `length`.
    seed:       of the train problems.

  Raises ValueError for arguments out of range or with fewer than 100 different problems.
  """
  min_length = length if min_length is None else min_length
  tk.check_size("length", length, 2)
  tk.check_size("min_length", min_length, 1, length)
  tk.check_size("num_symbols", num_symbols, 2, len(ALPHABET))
  tk.check_splits("sorting", num_symbols**length, num_train, num_eval)

  symbols, pad_id, stop_id = tk.vocabulary(ALPHABET[:num_symbols] + "=")
  equals = num_symbols

  def draw(key: Key[Array, ""]) -> Sorting:
    items, extra = tk.draw_integers(key, (length, num_symbols), (1, length - min_length + 1))
    return Sorting(items, jnp.arange(length) < min_length + extra)

  def prompt(facts: Sorting):
    return tk.join([(facts.items, facts.present), tk.literal(equals)], length + 1, pad_id)

  def answer(facts: Sorting) -> Int[Array, "m"]:
    return jnp.sort(jnp.where(facts.present, facts.items, num_symbols))

  def demonstration(facts: Sorting):
    return tk.join([(answer(facts), facts.present), tk.literal(stop_id)], length + 1, pad_id)

  def verify(facts: Sorting, completion: Int[Array, "a"], mask: Bool[Array, "a"]) -> GraphVerdict:
    inside, ended = tk.body(completion, mask, stop_id)
    size = jnp.sum(inside)
    parsable = ended & (size > 0) & jnp.all(~inside | ((completion >= 0) & (completion < num_symbols)))
    wanted = answer(facts)[jnp.clip(jnp.cumsum(inside) - 1, 0, length - 1)]
    correct = parsable & (size == jnp.sum(facts.present)) & jnp.all(~inside | (completion == wanted))
    answer_id = jnp.where(parsable, tk.sequence_id(completion, inside), -1)
    return GraphVerdict(correct.astype(jnp.float32), parsable, answer_id)

  def difficulty(facts: Sorting):
    falls = facts.items[:, None] > facts.items[None, :]
    both = facts.present[:, None] & facts.present[None, :]
    return (jnp.sum(facts.present) + jnp.sum(jnp.triu(falls & both))).astype(jnp.float32)

  return GraphTask(
    "sorting", symbols, pad_id, stop_id, length + 1, length + 1, num_train, num_eval,
    lambda prompt_id: draw_split(seed, prompt_id, draw, prompt),
    prompt, verify, demonstration, difficulty, host_verify,
  )  # fmt: skip


def host_verify(prompt: str, completion: str) -> float:
  """The same verdict from the texts of a problem and of a completion that stopped."""
  return float(completion == "".join(sorted(prompt.removesuffix("="), key=ALPHABET.index)))
