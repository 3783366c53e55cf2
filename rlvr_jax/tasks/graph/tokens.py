"""Numbers, lists and answers as tokens: what the builders of graph tasks share.

A piece is `(tokens, mask)`: some tokens in order, of which those with `mask` are there. Token ids 0..9 are the digits.
Functions are of one problem or completion; widths are static, and what is masked out never matters.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from rlvr_jax.tasks.graph.types import hash_tokens
from rlvr_jax.tasks.types import EVAL_ID

DIGITS = "0123456789"
MAX_DIGITS = 9  # of a number that is read: any such number fits int32
MIN_PROBLEMS = 100  # one in eight is held out: with so many, neither side of the split is empty

Piece = tuple[Int[Array, "_"], Bool[Array, "_"]]  # of one width; pieces that meet differ in theirs


def vocabulary(characters: str) -> tuple[tuple[str, ...], int, int]:
  """Symbols, pad id and stop id: the characters in order, then the two special tokens."""
  return (*characters, "<pad>", "<stop>"), len(characters), len(characters) + 1


def draw_integers(key: Key[Array, ""], *parts: tuple[int, int]) -> list[Int[Array, "_"]]:
  """For each `(size, bound)`, that many numbers in [0, bound). One draw for all: random bits are slow to compile."""
  sizes, bounds = zip(*parts)
  bound = jnp.array([b for size, b in parts for _ in range(size)], jnp.int32)
  values = jax.random.randint(key, bound.shape, 0, bound)
  return jnp.split(values, list(itertools.accumulate(sizes))[:-1])


def literal(*ids: Any, keep: Any = True) -> Piece:
  """These tokens, there if `keep`."""
  return jnp.array(ids, jnp.int32), jnp.full(len(ids), keep, bool)


def number_tokens(value: Int[Array, ""], num_digits: int, minus_id: int | None = None) -> Piece:
  """`value` without leading zeros, aligned right. The caller knows that it fits.

  With `minus_id` the piece is one wider and may be negative.
  """
  powers = jnp.array([10**i for i in reversed(range(num_digits))], jnp.int32)
  size = jnp.abs(value)
  tokens, mask = size // powers % 10, (size >= powers) | (powers == 1)
  if minus_id is None:
    return tokens, mask
  return tuple(map(jnp.concatenate, zip(literal(minus_id, keep=value < 0), (tokens, mask))))


def number_list(
  values: Int[Array, "m"],
  separators: Int[Array, "m"],
  present: Bool[Array, "m"],
  num_digits: int,
  minus_id: int | None = None,
) -> Piece:
  """The present values, each after its separator token but for the first of all `m`."""
  tokens, mask = jax.vmap(lambda value: number_tokens(value, num_digits, minus_id))(values)
  follows = jnp.arange(len(values)) > 0
  tokens = jnp.concatenate([separators[:, None], tokens], axis=1)
  mask = jnp.concatenate([follows[:, None], mask], axis=1) & present[:, None]
  return tokens.reshape(-1), mask.reshape(-1)


def join(pieces: Sequence[Piece], width: int, pad_id: int) -> Piece:
  """What is there of the pieces, one after another from the left, then padding. The caller knows that it fits."""
  tokens, mask = map(jnp.concatenate, zip(*pieces))
  slot = jnp.cumsum(mask) - 1
  from_to = mask[None, :] & (slot[None, :] == jnp.arange(width)[:, None])
  filled = jnp.any(from_to, axis=1)
  return jnp.where(filled, jnp.sum(from_to * tokens[None, :], axis=1), pad_id), filled


def body(tokens: Int[Array, "a"], mask: Bool[Array, "a"], stop_id: int) -> tuple[Any, Any]:
  """Bool["a"], Bool[""]: where a completion's tokens before its stop token are; whether it ends as it should.

  It should end with a stop token and have no other. One that reached the length limit has not ended.
  """
  stop = mask & (tokens == stop_id)
  after = jnp.sum(mask) - jnp.cumsum(mask)
  return mask & ~stop, jnp.any(stop & (after == 0)) & (jnp.sum(stop) == 1)


def after_last(tokens: Int[Array, "a"], mask: Bool[Array, "a"], token_id: int) -> Any:
  """Bool["a"]: the part of `mask` after the last `token_id` in it; all of it where there is none."""
  found = mask & (tokens == token_id)
  return mask & (jnp.cumsum(found) == jnp.sum(found)) & ~found


def parse_number(tokens: Int[Array, "a"], mask: Bool[Array, "a"], minus_id: int | None = None) -> tuple[Any, Any]:
  """Int32[""], Bool[""]: the number that the masked tokens are, and whether they are one.

  A number is 1 to `MAX_DIGITS` digits, leading zeros counted, after a minus sign if there is a `minus_id`.
  """
  place = jnp.sum(mask) - jnp.cumsum(mask)  # masked tokens to the right
  digit = mask & (tokens >= 0) & (tokens <= 9)
  minus = mask & (jnp.cumsum(mask) == 1) & (tokens == (-1 if minus_id is None else minus_id))
  num_digits = jnp.sum(digit)
  parsable = (num_digits >= 1) & (num_digits <= MAX_DIGITS) & jnp.all(~mask | digit | minus)
  powers = jnp.array([10**i for i in range(MAX_DIGITS)], jnp.int32)
  value = jnp.sum(jnp.where(digit & (place < MAX_DIGITS), tokens * powers[jnp.minimum(place, MAX_DIGITS - 1)], 0))
  return jnp.where(parsable, jnp.where(jnp.any(minus), -value, value), 0), parsable


def number_id(value: Int[Array, ""]) -> Any:
  """Int32[""]: an answer id for a number that was read, other numbers having other ids."""
  return 2 * jnp.abs(value) + (value < 0)


def sequence_id(tokens: Int[Array, "a"], mask: Bool[Array, "a"]) -> Any:
  """Int32[""]: an answer id for an answer that is its masked tokens; two others share one by a chance of 2^-31."""
  return (hash_tokens(tokens, mask) >> 1).astype(jnp.int32)


def check_size(name: str, value: Any, minimum: int, maximum: int = 2**31 - 1) -> None:
  """Raises ValueError unless `value` is a whole number in [minimum, maximum]; it is to be a shape or a bound."""
  if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
    raise ValueError(f"{name} must be a whole number in [{minimum}, {maximum}], got {value!r}")


def check_splits(task: str, num_problems: int, num_train: int, num_eval: int) -> None:
  """Raises ValueError for sizes of the splits that ids cannot hold, or too few problems to have two splits."""
  check_size("num_train", num_train, 1, EVAL_ID)
  check_size("num_eval", num_eval, 1, EVAL_ID)
  if num_problems < MIN_PROBLEMS:
    raise ValueError(f"{task} needs {MIN_PROBLEMS} different problems for two splits, has {num_problems}: widen it")


def check_terms(num_terms: int, min_terms: int | None, num_digits: int) -> int:
  """`min_terms`, which is `num_terms` if None. Raises ValueError for a sum that is too short or beyond `MAX_DIGITS`."""
  min_terms = num_terms if min_terms is None else min_terms
  check_size("num_terms", num_terms, 2)
  check_size("min_terms", min_terms, 2, num_terms)
  check_size("num_digits", num_digits, 1, MAX_DIGITS - 1)
  if num_terms * 10**num_digits > 10**MAX_DIGITS:
    raise ValueError(f"num_terms * 10**num_digits must be at most 10**9, got {num_terms} and {num_digits}")
  return min_terms
