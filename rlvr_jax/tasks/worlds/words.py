"""What the worlds share: reading an action, writing text as tokens, and a check that both splits have problems."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from rlvr_jax.core import PyTree, check_number
from rlvr_jax.tasks.graph.types import is_held_out
from rlvr_jax.tasks.types import EVAL_ID

PAD_ID, STOP_ID = 0, 1
SPECIAL = ("<pad>", "<stop>")  # the first symbols of every world
DIGITS = tuple("0123456789")


def compact(tokens: Int[Array, "a"], mask: Bool[Array, "a"]) -> tuple[Int[Array, "a"], Bool[Array, "a"]]:
  """The tokens where `mask`, in order and in front; padding after them."""
  column = jnp.arange(tokens.shape[0])
  goes_to = mask[:, None] & ((jnp.cumsum(mask) - 1)[:, None] == column[None])  # no sort: a few dozen columns at most
  tokens = jnp.sum(jnp.where(goes_to, tokens[:, None], 0), axis=0, dtype=jnp.int32)
  kept = column < jnp.sum(mask)
  return jnp.where(kept, tokens, PAD_ID), kept


def read_action(
  tokens: Int[Array, "a"], mask: Bool[Array, "a"], width: int
) -> tuple[Int[Array, "w"], Int[Array, ""], Bool[Array, ""]]:
  """The first `width` tokens of an action, how many stand before its stop token, and whether it is whole.

  Whole: its only stop token is its last token. More than `width` tokens may stand before it: compare the length.
  """
  tokens, mask = compact(tokens, mask)
  stops = mask & (tokens == STOP_ID)
  length = jnp.sum(mask, dtype=jnp.int32) - 1
  ends = jnp.any(stops & (jnp.arange(tokens.shape[0]) == length))
  content = jnp.pad(tokens, (0, max(0, width - tokens.shape[0])), constant_values=PAD_ID)[:width]
  return content, length, ends & (jnp.sum(stops) == 1)


def read_number(tokens: Int[Array, "a"], mask: Bool[Array, "a"], num_digits: int, zero_id: int) -> Int[Array, ""]:
  """The number an action says in 1 to `num_digits` digits, leading zeros allowed; -1 where it says anything else."""
  content, length, whole = read_action(tokens, mask, num_digits)
  used = jnp.arange(num_digits) < length
  digit = content - zero_id
  legal = whole & (1 <= length) & (length <= num_digits) & jnp.all(~used | ((digit >= 0) & (digit < 10)))
  place = 10 ** jnp.clip(length - 1 - jnp.arange(num_digits), 0, num_digits - 1)
  return jnp.where(legal, jnp.sum(jnp.where(used, digit * place, 0)), -1)


def write_number(
  number: Int[Array, ""], num_digits: int, zero_id: int
) -> tuple[Int[Array, "num_digits"], Bool[Array, "num_digits"]]:
  """The number in decimal without leading zeros, in front of `num_digits` columns."""
  place = 10 ** jnp.arange(num_digits - 1, -1, -1)
  return compact(number // place % 10 + zero_id, (number >= place) | (place == 1))


def join(*pieces: tuple | int | Int[Array, ""]) -> tuple[Int[Array, "a"], Bool[Array, "a"]]:
  """Pieces of text after one another, padding last. A piece is one token, or tokens and their mask."""
  pieces = [p if isinstance(p, tuple) else (jnp.asarray(p)[None], jnp.ones((1,), bool)) for p in pieces]
  return compact(*(jnp.concatenate([jnp.asarray(x) for x in part]) for part in zip(*pieces)))


def where(condition: Bool[Array, ""], yes: tuple, no: tuple) -> tuple[Int[Array, "a"], Bool[Array, "a"]]:
  """One text or the other, in as many columns as the wider needs."""
  width = max(yes[0].shape[0], no[0].shape[0])
  pad = lambda x: jnp.pad(x, (0, width - x.shape[0]))
  return tuple(jnp.where(condition, pad(y), pad(n)) for y, n in zip(yes, no))


def say_if(condition: Bool[Array, ""], text: tuple) -> tuple[Int[Array, "a"], Bool[Array, "a"]]:
  """The text, or all padding."""
  tokens, mask = text
  return jnp.where(condition, tokens, PAD_ID), mask & condition


def draw_below(key: Key[Array, ""], limits: Any) -> Int[Array, "..."]:
  """An integer in [0, limit) for each of the limits; a third of the compile time of `jax.random.randint`."""
  limits = jnp.asarray(limits, jnp.uint32)
  return (jax.random.bits(key, limits.shape) % limits).astype(jnp.int32)


def check_counts(world: str, num_train: int, num_eval: int) -> None:
  for name, value in (("num_train", num_train), ("num_eval", num_eval)):
    check_number(f"{world}: {name}", value, minimum=1, maximum=EVAL_ID)


def check_split(world: str, draw: Callable[[Key[Array, ""]], PyTree], prompt: Callable, settings: Mapping) -> None:
  """Raises ValueError where 1,024 draws give one side of the train and held-out split no problem."""
  with jax.ensure_compile_time_eval():
    keys = jax.random.split(jax.random.key(0), 1024)
    num_held_out = int(jnp.sum(jax.jit(jax.vmap(lambda key: is_held_out(*prompt(draw(key)))))(keys)))
  if num_held_out in (0, 1024):
    raise ValueError(
      f"{world}: {num_held_out} of 1024 drawn prompts are held out with {settings}: there are too few prompts to split"
    )
