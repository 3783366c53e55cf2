"""One question in two forms: with four answers to choose from, or with an open answer.

  form="choice"   prompt 37+5+88:A30B42C81D9=   completion A
  form="open"     prompt 37+5+88=               completion 30

The question is the sum of the terms modulo `modulus` (here 100). One of the four answers is right, one is a common
error, two are any other numbers. Problem `prompt_id` asks the same question in both forms, in the same vocabulary, and
is on the same side of the split. Wrong answers collide where there are four and spread out where there are many.

Ref: PROSE, arXiv:2609.16660: majority votes under a small and a large answer space.
"""

import itertools
import re
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from rlvr_jax.core import nearest
from rlvr_jax.tasks.graph import tokens as tk
from rlvr_jax.tasks.graph.types import GraphTask, GraphVerdict, draw_split

FORMS = ("choice", "open")
ERRORS = ("forgot_last", "off_by_one")
SYMBOLS, PAD, STOP = tk.vocabulary(tk.DIGITS + "+:=;ABCD")
PLUS, COLON, EQUALS, SEPARATOR, LETTER = (SYMBOLS.index(symbol) for symbol in "+:=;A")


class Question(NamedTuple):
  terms: Any  # Int["m"]
  answer: Any  # Int[""]
  options: Any  # Int["4"]  different numbers, `answer` and the common error among them
  right: Any  # Int[""]   which option is the answer
  error: Any  # Int[""]   which option is the common error


def multiple_choice(
  *,
  form: str = "choice",
  num_terms: int = 3,
  modulus: int = 100,
  error: str = "forgot_last",
  working: bool = False,
  num_train: int = 4096,
  num_eval: int = 256,
  seed: int = 0,
) -> GraphTask:
  """Sums of `num_terms` numbers below `modulus`, the last of them never 0. Difficulty: how often the sum wraps round.

  The answer is what follows the last `;` of the completion, or all of it: one letter, or a number in [0, modulus). What
  stands before is not read. Its `answer_id` is the letter's index, or twice the number.

  Args:
    form:    "choice" or "open".
    error:   the common error: "forgot_last" is the sum without the last term, "off_by_one" one more than the answer.
    working: demonstrations show the running totals, `42;30` (open) or `42;30;A` (choice), and there is room for them.

  Raises: ValueError for unknown names, numbers out of range, or when there are too few different problems.
  """
  for name, value, known in (("form", form, FORMS), ("error", error, ERRORS)):
    if value not in known:
      raise ValueError(f"multiple_choice: {name} must be one of {known}, got {value!r}{nearest(value, known)}")
  tk.check_size("num_terms", num_terms, 2, 10**4)
  tk.check_size("modulus", modulus, 4, 10**4)
  tk.check_splits("multiple_choice", modulus ** (num_terms - 1) * (modulus - 1), num_train, num_eval)
  num_digits, is_choice = len(str(modulus - 1)), form == "choice"
  num_totals = (num_terms - 1 if is_choice else num_terms - 2) if working else 0

  def question(facts):
    return _question(facts, num_digits)

  def problem(prompt_id: Int[Array, ""]) -> Question:
    # Both forms split by the question alone, which is why they agree.
    return draw_split(seed, prompt_id, lambda key: _draw(key, num_terms, modulus, error), question)

  def demonstration(facts):
    totals = (jnp.cumsum(facts.terms) % modulus)[1 : 1 + num_totals]
    return _demonstration(facts, totals, num_digits, is_choice)

  question_tokens = num_terms * (num_digits + 1)
  return GraphTask(
    name=f"multiple_choice.{form}",
    symbols=SYMBOLS,
    pad_id=PAD,
    stop_id=STOP,
    prompt_tokens=question_tokens + (4 * (1 + num_digits) + 1 if is_choice else 0),
    max_new_tokens=num_totals * (num_digits + 1) + (1 if is_choice else num_digits) + 1,
    num_train=num_train,
    num_eval=num_eval,
    problem=problem,
    prompt=(lambda facts: _options(facts, num_digits)) if is_choice else question,
    verify=_verify_choice if is_choice else _verify_open,
    demonstration=demonstration,
    difficulty=lambda facts: (jnp.sum(facts.terms) // modulus).astype(jnp.float32),
    host_verify=lambda prompt, completion: _host_verify(prompt, completion, modulus),
  )


def _draw(key, num_terms: int, modulus: int, error: str) -> Question:
  bounds = (num_terms - 1, modulus), (1, modulus - 1), (1, modulus - 2), (1, modulus - 3), (1, 24)
  terms, last, first, second, order = tk.draw_integers(key, *bounds)
  terms = jnp.append(terms, 1 + last)
  answer = jnp.sum(terms) % modulus
  wrong = (answer - terms[-1] if error == "forgot_last" else answer + 1) % modulus
  # Two different numbers of the modulus - 2 that are neither: draw ranks, then step over the taken ones from below.
  others = jnp.concatenate([first, second + (second >= first)])
  others += others >= jnp.minimum(answer, wrong)
  others += others >= jnp.maximum(answer, wrong)
  order = jnp.array(list(itertools.permutations(range(4))))[order[0]]
  options = jnp.concatenate([jnp.stack([answer, wrong]), others])[order]
  return Question(terms, answer, options, jnp.argmax(order == 0), jnp.argmax(order == 1))


def _terms(facts: Question, num_digits: int) -> tk.Piece:
  size = len(facts.terms)
  return tk.number_list(facts.terms, jnp.full(size, PLUS), jnp.ones(size, bool), num_digits)


def _question(facts: Question, num_digits: int) -> tk.Piece:
  return tk.join([_terms(facts, num_digits), tk.literal(EQUALS)], len(facts.terms) * (num_digits + 1), PAD)


def _options(facts: Question, num_digits: int) -> tk.Piece:
  pieces = [_terms(facts, num_digits), tk.literal(COLON)]
  for index in range(4):
    pieces += [tk.literal(LETTER + index), tk.number_tokens(facts.options[index], num_digits)]
  width = len(facts.terms) * (num_digits + 1) + 4 * (1 + num_digits) + 1
  return tk.join([*pieces, tk.literal(EQUALS)], width, PAD)


def _demonstration(facts: Question, totals, num_digits: int, is_choice: bool) -> tk.Piece:
  answer = tk.literal(LETTER + facts.right) if is_choice else tk.number_tokens(facts.answer, num_digits)
  pieces = []
  for total in totals:
    pieces += [tk.number_tokens(total, num_digits), tk.literal(SEPARATOR)]
  width = len(totals) * (num_digits + 1) + len(answer[0]) + 1
  return tk.join([*pieces, answer, tk.literal(STOP)], width, PAD)


def _verify_choice(facts: Question, tokens: Int[Array, "a"], mask: Bool[Array, "a"]) -> GraphVerdict:
  inside, ended = tk.body(tokens, mask, STOP)
  given = tk.after_last(tokens, inside, SEPARATOR)
  option = jnp.sum(jnp.where(given, tokens - LETTER, 0))
  parsable = ended & (jnp.sum(given) == 1) & (option >= 0) & (option < 4)
  correct = parsable & (option == facts.right)
  return GraphVerdict(correct.astype(jnp.float32), parsable, jnp.where(parsable, option, -1))


def _verify_open(facts: Question, tokens: Int[Array, "a"], mask: Bool[Array, "a"]) -> GraphVerdict:
  inside, ended = tk.body(tokens, mask, STOP)
  value, is_number = tk.parse_number(tokens, tk.after_last(tokens, inside, SEPARATOR))
  parsable = ended & is_number
  correct = parsable & (value == facts.answer)
  return GraphVerdict(correct.astype(jnp.float32), parsable, jnp.where(parsable, tk.number_id(value), -1))


def _host_verify(prompt: str, completion: str, modulus: int) -> float:
  """Finds the right option by what it says, where the graph verifier knows its index."""
  asked, _, choices = prompt.rstrip("=").partition(":")
  value = sum(map(int, asked.split("+"))) % modulus
  given = completion.rsplit(";", 1)[-1]
  if not choices:
    return float(re.fullmatch("[0-9]{1,9}", given) is not None and int(given) == value)
  return float((given, str(value)) in re.findall("([A-D])([0-9]+)", choices))
