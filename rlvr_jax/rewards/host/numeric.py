"""The one real number that a text stands for."""

import re
from fractions import Fraction

import sympy

from rlvr_jax.rewards.host.latex import normalise
from rlvr_jax.rewards.host.scalar import formula, literal, value
from rlvr_jax.rewards.host.words import percent_of, unit_of


def number_of(text: str, percent: bool = False) -> Fraction | None:
  """Exact if the text is a plain number, else to 40 digits; None for a list, words, a complex or an infinite value.

  Args:
    percent: read `28%` as 28 rather than 0.28.
  """
  text = re.split(r"(?<![<>])=|\\approx", normalise(text))[-1].strip()
  core, sign = percent_of(text)
  core, _ = unit_of(core)
  number = literal(core)
  if number is None:
    number = _evaluated(core)
  return number / 100 if number is not None and sign and not percent else number


def _evaluated(text: str) -> Fraction | None:
  try:
    expr = formula(text)
    if not isinstance(expr, sympy.Expr) or expr.free_symbols:
      return None
    number = value(expr)
    if number is None or not number.is_real or not number.is_finite:
      return None
    exact = sympy.Rational(number) if isinstance(number, sympy.Float) else number
    return Fraction(int(exact.p), int(exact.q))
  except (Exception, RecursionError):
    return None
