"""Chains of sums and differences, `3+8-2=`, answered by a number, after running totals if wanted: `11;9`."""

import re
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from rlvr_jax.tasks.graph import tokens as tk
from rlvr_jax.tasks.graph.types import GraphTask, GraphVerdict, draw_split

SYMBOLS = tk.DIGITS + "+-;="
PLUS, MINUS, SEPARATOR, EQUALS = (SYMBOLS.index(c) for c in "+-;=")


class Chain(NamedTuple):
  terms: Int[Array, "m"]
  minus: Bool[Array, "m"]  # whether the term is taken away; the first never is
  present: Bool[Array, "m"]  # the first `num_terms` of this problem


def chain_sum(
  *,
  num_terms: int = 3,
  min_terms: int | None = None,
  num_digits: int = 1,
  operators: str = "+-",
  scratchpad: bool = True,
  num_train: int = 4096,
  num_eval: int = 256,
  seed: int = 0,
) -> GraphTask:
  """`num_terms` numbers below `10**num_digits`, joined by operators, then `=`.

  A completion is right if what follows its last `;` (all of it, without one) is the result and it then stops; what
  stands before is not read. A result is an optional minus sign and 1 to 9 digits. Ids repeat problems once there
  are more ids than problems. The difficulty of a problem is the length of its prompt and running totals in tokens.

  Args:
    min_terms:  problems have between this many and `num_terms` terms; None: all have `num_terms`.
    operators:  "+", "-" or "+-": drawn for each gap.
    scratchpad: demonstrations write the running total after each term but the first; else only the result.
    seed:       of the train problems.

  Raises ValueError for arguments out of range or with fewer than 100 different problems.
  """
  min_terms = tk.check_terms(num_terms, min_terms, num_digits)
  if operators not in ("+", "-", "+-"):
    raise ValueError(f"operators must be '+', '-' or '+-', got {operators!r}")
  tk.check_splits("chain_sum", 10 ** (num_digits * num_terms) * len(operators) ** (num_terms - 1), num_train, num_eval)

  symbols, pad_id, stop_id = tk.vocabulary(SYMBOLS)
  prompt_tokens = num_terms * (num_digits + 1)
  total_digits = len(str(num_terms * (10**num_digits - 1)))
  num_totals = num_terms - 1 if scratchpad else 1
  max_new_tokens = num_totals * (total_digits + 1 + ("-" in operators))
  places = jnp.arange(num_terms)

  def draw(key: Key[Array, ""]) -> Chain:
    parts = (num_terms, 10**num_digits), (num_terms, len(operators)), (1, num_terms - min_terms + 1)
    terms, sign, extra = tk.draw_integers(key, *parts)
    present = places < min_terms + extra
    minus = jnp.array([o == "-" for o in operators])[sign]
    return Chain(jnp.where(present, terms, 0), minus & present & (places > 0), present)

  def prompt(facts: Chain):
    signs = jnp.where(facts.minus, MINUS, PLUS)
    chain = tk.number_list(facts.terms, signs, facts.present, num_digits)
    return tk.join([chain, tk.literal(EQUALS)], prompt_tokens, pad_id)

  def totals(facts: Chain) -> Int[Array, "m"]:
    return jnp.cumsum(jnp.where(facts.minus, -facts.terms, facts.terms))

  def shown(facts: Chain) -> tk.Piece:
    values, present = totals(facts)[1:], facts.present[1:]
    return tk.number_list(values, jnp.full(num_terms - 1, SEPARATOR), present, total_digits, MINUS)

  def demonstration(facts: Chain):
    answer = tk.number_tokens(totals(facts)[-1], total_digits, MINUS)
    return tk.join([shown(facts) if scratchpad else answer, tk.literal(stop_id)], max_new_tokens, pad_id)

  def verify(facts: Chain, completion: Int[Array, "a"], mask: Bool[Array, "a"]) -> GraphVerdict:
    inside, ended = tk.body(completion, mask, stop_id)
    value, is_number = tk.parse_number(completion, tk.after_last(completion, inside, SEPARATOR), MINUS)
    parsable = ended & is_number
    correct = parsable & (value == totals(facts)[-1])
    return GraphVerdict(correct.astype(jnp.float32), parsable, jnp.where(parsable, tk.number_id(value), -1))

  def difficulty(facts: Chain):
    return (jnp.sum(prompt(facts)[1]) + jnp.sum(shown(facts)[1])).astype(jnp.float32)

  return GraphTask(
    "chain_sum", symbols, pad_id, stop_id, prompt_tokens, max_new_tokens, num_train, num_eval,
    lambda prompt_id: draw_split(seed, prompt_id, draw, prompt),
    prompt, verify, demonstration, difficulty, host_verify,
  )  # fmt: skip


def host_verify(prompt: str, completion: str) -> float:
  """The same verdict from the texts of a problem and of a completion that stopped."""
  answer = re.fullmatch(r"-?[0-9]{1,9}", completion.rpartition(";")[2])
  result = sum(map(int, re.findall(r"[+-]?[0-9]+", prompt)))
  return float(answer is not None and int(answer.group()) == result)
