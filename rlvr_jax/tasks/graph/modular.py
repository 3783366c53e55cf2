"""Sums modulo a number, `(7+5+9)%11=`, answered by the remainder, after running remainders if wanted: `1;10`."""

import re
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from rlvr_jax.tasks.graph import tokens as tk
from rlvr_jax.tasks.graph.types import GraphTask, GraphVerdict, draw_split

SYMBOLS = tk.DIGITS + "+%();="
PLUS, PERCENT, OPEN, CLOSE, SEPARATOR, EQUALS = (SYMBOLS.index(c) for c in "+%();=")


class ModularSum(NamedTuple):
  terms: Int[Array, "m"]
  present: Bool[Array, "m"]  # the first `num_terms` of this problem


def modular_sum(
  *,
  num_terms: int = 3,
  min_terms: int | None = None,
  modulus: int = 11,
  num_digits: int = 1,
  scratchpad: bool = True,
  num_train: int = 4096,
  num_eval: int = 256,
  seed: int = 0,
) -> GraphTask:
  """The sum of `num_terms` numbers below `10**num_digits`, modulo `modulus`: `(7+5+9)%11=`.

  A completion is right if what follows its last `;` (all of it, without one) is the remainder, in [0, modulus), and
  it then stops; what stands before is not read, and a congruent number is wrong. Ids repeat problems once there are
  more ids than problems. The difficulty of a problem is the length of its prompt and running remainders in tokens.

  Args:
    min_terms:  problems have between this many and `num_terms` terms; None: all have `num_terms`.
    scratchpad: demonstrations write the running remainder after each term but the first; else only the answer.
    seed:       of the train problems.

  Raises ValueError for arguments out of range or with fewer than 100 different problems.
  """
  min_terms = tk.check_terms(num_terms, min_terms, num_digits)
  tk.check_size("modulus", modulus, 2, 10**tk.MAX_DIGITS)
  tk.check_splits("modular_sum", 10 ** (num_digits * num_terms), num_train, num_eval)

  symbols, pad_id, stop_id = tk.vocabulary(SYMBOLS)
  ending = (CLOSE, PERCENT, *map(int, str(modulus)), EQUALS)
  prompt_tokens = num_terms * (num_digits + 1) + len(ending)
  answer_digits = len(str(modulus - 1))
  num_totals = num_terms - 1 if scratchpad else 1
  max_new_tokens = num_totals * (answer_digits + 1)

  def draw(key: Key[Array, ""]) -> ModularSum:
    terms, extra = tk.draw_integers(key, (num_terms, 10**num_digits), (1, num_terms - min_terms + 1))
    present = jnp.arange(num_terms) < min_terms + extra
    return ModularSum(jnp.where(present, terms, 0), present)

  def prompt(facts: ModularSum):
    terms = tk.number_list(facts.terms, jnp.full(num_terms, PLUS), facts.present, num_digits)
    return tk.join([tk.literal(OPEN), terms, tk.literal(*ending)], prompt_tokens, pad_id)

  def remainders(facts: ModularSum) -> Int[Array, "m"]:
    return jnp.cumsum(facts.terms) % modulus

  def shown(facts: ModularSum) -> tk.Piece:
    values, present = remainders(facts)[1:], facts.present[1:]
    return tk.number_list(values, jnp.full(num_terms - 1, SEPARATOR), present, answer_digits)

  def demonstration(facts: ModularSum):
    answer = tk.number_tokens(remainders(facts)[-1], answer_digits)
    return tk.join([shown(facts) if scratchpad else answer, tk.literal(stop_id)], max_new_tokens, pad_id)

  def verify(facts: ModularSum, completion: Int[Array, "a"], mask: Bool[Array, "a"]) -> GraphVerdict:
    inside, ended = tk.body(completion, mask, stop_id)
    value, is_number = tk.parse_number(completion, tk.after_last(completion, inside, SEPARATOR))
    parsable = ended & is_number
    correct = parsable & (value == remainders(facts)[-1])
    return GraphVerdict(correct.astype(jnp.float32), parsable, jnp.where(parsable, tk.number_id(value), -1))

  def difficulty(facts: ModularSum):
    return (jnp.sum(prompt(facts)[1]) + jnp.sum(shown(facts)[1])).astype(jnp.float32)

  return GraphTask(
    "modular_sum", symbols, pad_id, stop_id, prompt_tokens, max_new_tokens, num_train, num_eval,
    lambda prompt_id: draw_split(seed, prompt_id, draw, prompt),
    prompt, verify, demonstration, difficulty, host_verify,
  )  # fmt: skip


def host_verify(prompt: str, completion: str) -> float:
  """The same verdict from the texts of a problem and of a completion that stopped."""
  answer = re.fullmatch(r"[0-9]{1,9}", completion.rpartition(";")[2])
  *terms, modulus = map(int, re.findall(r"[0-9]+", prompt))
  return float(answer is not None and int(answer.group()) == sum(terms) % modulus)
