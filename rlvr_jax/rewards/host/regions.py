"""Sets of real numbers however they are written: intervals, unions, inequalities, set-builder notation."""

import re

import sympy

from rlvr_jax.rewards.host.latex import split_top
from rlvr_jax.rewards.host.scalar import formula, num_digits, proportional

_RELATION = re.compile(r"\\le(?![a-z])|\\ge(?![a-z])|\\ne(?![a-z])|<=|>=|<|>")
_FLIP = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "<=": ">=", ">=": "<=", "\\ne": "\\ne"}
_BUILDER = re.compile(
  r"\\\{\s*(?P<name>[a-z])(?:\s*\\in\s*\\mathbb\{R\})?\s*(?:\\mid|\\vert|\||:)\s*(?P<condition>.*)\\\}", re.DOTALL
)
_INTERVAL = re.compile(r"(\(|\[)(.*)(\)|\])", re.DOTALL)
_NAME = re.compile(r"[A-Za-z]|\\[a-z]+|[a-z]\([a-z]\)")
_OR = r"\\text\{\s*or\s*\}|(?<![A-Za-z\\])or(?![A-Za-z])"
_AND = r"\\text\{\s*and\s*\}|(?<![A-Za-z\\])and(?![A-Za-z])|,"


def is_region(text: str) -> bool:
  """Whether the text can only be a set of numbers (an interval of two round brackets could be a point)."""
  if _RELATION.search(text) or re.search(r"\\cup|\\cap|\\setminus|\\mathbb|\\emptyset|\\infty\s*[)\]]", text):
    return True
  interval = _INTERVAL.fullmatch(text)
  return interval is not None and interval[1] + interval[3] in ("[)", "(]", "[]")


def regions_equal(reference: str, answer: str) -> bool | None:
  """Whether two texts are the same set; None if one of them cannot be read as a set."""
  try:
    names = {n for t in (reference, answer) for n in _names(t)}
    r, a = region(reference), region(answer)
    if r is None or a is None:
      return _same_inequality(reference, answer)
    if len(names) > 1:
      return False
    return r == a or r.symmetric_difference(a) == sympy.EmptySet
  except (Exception, RecursionError):
    return None


def _names(text: str) -> set[str]:
  if _BUILDER.fullmatch(text):
    return set()  # a bound letter
  return {s.strip() for s in re.split(rf"{_RELATION.pattern}|{_OR}|{_AND}", text) if _NAME.fullmatch(s.strip())} - {
    "\\infty"
  }


def region(text: str) -> sympy.Set | None:
  """The set of real numbers that `text` stands for, or None."""
  text = text.strip()
  if text in ("\\emptyset", "\\{\\}", "\\{ \\}"):
    return sympy.EmptySet
  if text == "\\mathbb{R}":
    return sympy.Interval(-sympy.oo, sympy.oo)
  if (builder := _BUILDER.fullmatch(text)) is not None:
    return region(builder["condition"])
  combine = (
    (r"\\cup", sympy.Union),
    (r"\\cap", sympy.Intersection),
    (r"\\setminus", sympy.Complement),
    (_OR, sympy.Union),
  )
  for separator, operation in combine:
    items = split_top(text, separator + r"(?![a-z])")
    if len(items) > 1:
      sets = [region(i) for i in items]
      return None if None in sets else operation(*sets)
  if _RELATION.search(text):
    sets = [_inequality(i) for i in split_top(text, _AND)]
    return None if None in sets else sympy.Intersection(*sets)
  return _interval(text)


def _interval(text: str) -> sympy.Set | None:
  if text.startswith("\\{") and text.endswith("\\}"):
    items = [_number(i) for i in split_top(text[2:-2], ",")]
    return None if None in items else sympy.FiniteSet(*items)
  match = _INTERVAL.fullmatch(text)
  ends = split_top(match[2], ",|;") if match else []
  if len(ends) != 2:
    return None
  low, high = (_number(e) for e in ends)
  if low is None or high is None or not low < high:
    return None
  return sympy.Interval(low, high, match[1] == "(", match[3] == ")")


def _number(text: str) -> sympy.Expr | None:
  text = text.strip().removeprefix("+")
  if text in ("\\infty", "-\\infty"):
    return -sympy.oo if text.startswith("-") else sympy.oo
  expr = formula(text)
  if expr is None or not isinstance(expr, sympy.Expr) or expr.free_symbols:
    return None
  num_digits(expr)
  value = expr.doit()
  return value if value.is_extended_real else None


def _inequality(text: str) -> sympy.Set | None:
  """The set of one letter: x < 3, 1 < x \\le 2, 3 \\ge x, x \\ne 0."""
  sides, signs = [s.strip() for s in _RELATION.split(text)], _RELATION.findall(text)
  where = [i for i, s in enumerate(sides) if _NAME.fullmatch(s) and s != "\\infty"]
  if len(where) != 1 or len(sides) > 3:
    return None
  whole, k = sympy.Interval(-sympy.oo, sympy.oo), where[0]
  for i, sign in enumerate(signs):
    if k not in (i, i + 1):
      return None
    bound = _number(sides[i + 1] if k == i else sides[i])
    if bound is None:
      return None
    whole = sympy.Intersection(whole, _half_line(sign if k == i else _FLIP[sign], bound))
  return whole


def _half_line(sign: str, bound: sympy.Expr) -> sympy.Set:
  if sign == "\\ne":
    return sympy.Complement(sympy.Interval(-sympy.oo, sympy.oo), sympy.FiniteSet(bound))
  is_open = sign in ("<", ">")
  if sign in ("<", "\\le", "<="):
    return sympy.Interval(-sympy.oo, bound, True, is_open)
  return sympy.Interval(bound, sympy.oo, is_open, True)


def _same_inequality(reference: str, answer: str) -> bool | None:
  """Two inequalities in several letters: one is a positive multiple of the other."""
  sides = [_RELATION.split(t) for t in (reference, answer)]
  signs = [_RELATION.findall(t) for t in (reference, answer)]
  if any(len(s) != 1 for s in signs):
    return None
  x, y = (formula(f"{a}-({b})") for a, b in sides)
  if x is None or y is None:
    return None
  ratio = proportional(x, y)
  if ratio is None:
    return False
  same = {"<=": "\\le", ">=": "\\ge"}
  left, right = (same.get(s[0], s[0]) for s in signs)
  return left == right if ratio > 0 else left == _FLIP[right]
