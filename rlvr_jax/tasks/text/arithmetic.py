"""Sums such as `17+25=`, the embedded default: no library, no files, and learnt by a tiny character model."""

import random
from collections.abc import Callable

from rlvr_jax.core import nearest
from rlvr_jax.tasks.types import EVAL_ID, Example, TextTask, derived_seed, is_held_out, make_task

DEMONSTRATIONS = ("answer", "running", "columns")
EVAL_FRACTION = 0.125  # of all problems there are, by hash of the prompt


def arithmetic(
  num_terms: int = 2,
  num_digits: int = 2,
  operators: str = "+",
  demonstration: str = "answer",
  num_train: int = 4000,
  num_eval: int = 200,
  seed: int = 0,
) -> TextTask:
  """`num_terms` whole numbers below `10**num_digits`, joined by operators, then `=`; the reference is the result.

  No problem occurs twice. One problem in eight belongs to the eval split by the sha256 of its prompt, whatever the
  sizes and seed; the eval rows do not depend on `seed`, so runs that differ in it share their held-out set.
  Characters in use: digits and `+-=;`.

  Args:
    operators:     "+", "-" or "+-": drawn for each gap.
    demonstration: "answer": `42`. "running": running totals, `17+25+1=` → `42;43`. "columns": sums only, column by
                   column from the right with carries, `17+25=` → `7+5=12;1+2+1=4;42`. The answer always comes last.
    seed:          of the train rows.

  Raises ValueError when there are not enough different problems for a split, saying how many were found.
  """
  _check(num_terms, num_digits, operators, demonstration)
  if demonstration == "columns" and operators != "+":
    raise ValueError(f"demonstration 'columns' needs operators '+', got {operators!r}")
  show = dict(answer=_answer, running=_running, columns=_columns)[demonstration]
  shape = (num_terms, num_digits, operators)

  def rows(num: int, first_id: int, held_out: bool, *stream) -> tuple[Example, ...]:
    problems = _draw(shape, num, held_out, random.Random(derived_seed("arithmetic", *shape, *stream)))
    return tuple(_example(first_id + i, *problem, show) for i, problem in enumerate(problems))

  train = rows(num_train, 0, False, "train", seed)
  return make_task("arithmetic", train, rows(num_eval, EVAL_ID, True, "eval"))


def _check(num_terms, num_digits, operators, demonstration):
  if num_terms < 2 or num_digits < 1:
    raise ValueError(f"arithmetic needs num_terms >= 2 and num_digits >= 1, got {num_terms} and {num_digits}")
  if not operators or set(operators) - set("+-") or len(set(operators)) != len(operators):
    raise ValueError(f"operators must be '+', '-' or '+-', got {operators!r}")
  if demonstration not in DEMONSTRATIONS:
    hint = nearest(demonstration, DEMONSTRATIONS)
    raise ValueError(f"demonstration must be one of {DEMONSTRATIONS}, got {demonstration!r}{hint}")


def _draw(shape, num: int, held_out: bool, rng: random.Random) -> list[tuple[tuple[int, ...], str]]:
  """`num` different problems of one side of the split, as (terms, the operator before each term but the first)."""
  num_terms, num_digits, operators = shape
  found = {}
  for _ in range(1000 + 100 * num):  # enough to draw nearly every problem of a space of `num`
    if len(found) == num:
      return list(found.values())
    terms = tuple(rng.randrange(10**num_digits) for _ in range(num_terms))
    signs = "".join(rng.choice(operators) for _ in range(num_terms - 1))
    prompt = _prompt(terms, signs)
    if is_held_out(prompt, EVAL_FRACTION) == held_out:
      found[prompt] = (terms, signs)
  if len(found) == num:
    return list(found.values())
  split, name = ("eval", "num_eval") if held_out else ("train", "num_train")
  raise ValueError(
    f"arithmetic with num_terms={num_terms}, num_digits={num_digits}, operators={operators!r} has about {len(found)} "
    f"different {split} problems, fewer than {name}={num}"
  )


def _prompt(terms: tuple[int, ...], signs: str) -> str:
  return str(terms[0]) + "".join(f"{sign}{term}" for sign, term in zip(signs, terms[1:])) + "="


def _totals(terms: tuple[int, ...], signs: str) -> list[int]:
  totals = [terms[0]]
  for sign, term in zip(signs, terms[1:]):
    totals.append(totals[-1] + (term if sign == "+" else -term))
  return totals[1:]


def _example(prompt_id: int, terms: tuple[int, ...], signs: str, show: Callable[..., str]) -> Example:
  answer = str(_totals(terms, signs)[-1])
  return Example(prompt_id, _prompt(terms, signs), answer, show(terms, signs), dict(terms=list(terms), signs=signs))


def _answer(terms: tuple[int, ...], signs: str) -> str:
  return str(_totals(terms, signs)[-1])


def _running(terms: tuple[int, ...], signs: str) -> str:
  return ";".join(map(str, _totals(terms, signs)))


def _columns(terms: tuple[int, ...], signs: str) -> str:
  steps, carry = [], 0
  for place in range(len(str(max(terms)))):
    parts = [term // 10**place % 10 for term in terms if term >= 10**place or place == 0] + [carry] * (carry > 0)
    total = sum(parts)
    steps.append(f"{'+'.join(map(str, parts))}={total}")
    carry = total // 10
  return ";".join([*steps, str(sum(terms))])
