"""Equality of two formulas without commas: exact for numbers, by evaluation at fixed points for the rest.

`latex2sympy2_extended`, math-verify's parser, reads the formula. The comparison is made here, because math-verify's
own rounds to six decimals, simplifies without bound and evaluates towers of powers.
"""

import functools
import math
import re
from fractions import Fraction

import sympy
from latex2sympy2_extended.latex2sympy2 import latex2sympy

from rlvr_jax.rewards.host.latex import compact

MAX_CHARS, MAX_NESTING, MAX_DIGITS = 2000, 40, 20_000
_INT = r"\d+(?:,\d{3})*|\d{1,3}(?: \d{3})+"
_SIGN = r"(?P<sign>[-+]?)\s*"
_DECIMAL = re.compile(rf"{_SIGN}(?P<int>{_INT})?(?:\.(?P<frac>\d*)(?:\\overline\{{(?P<cycle>\d+)\}})?)?")
_RATIO = r"(?:\\frac\s*\{\s*(?P<top>-?\d+)\s*\}\s*\{\s*(?P<bottom>-?\d+)\s*\}|(?P<top2>\d+)\s*/\s*(?P<bottom2>\d+))"
_MIXED = re.compile(rf"{_SIGN}(?:(?P<whole>\d+)(?: |\s*(?=\\)))?\s*{_RATIO}")
_POWER = re.compile(
  r"(?P<head>.*?)\s*(?:\\times|\\cdot|\*|(?=10\s*\^))\s*10\s*\^\s*(?:\{\s*(?P<e>[-+]?\d+)\s*\}|(?P<e2>\d))"
)
_POINTS = [Fraction(a, b) for a, b in ((7, 5), (13, 11), (23, 9), (5, 13), (29, 17), (3, 19))]


class TooLarge(ValueError):
  """The value has more digits than are worth evaluating."""


def literal(text: str) -> Fraction | None:
  """Exact value of a number as people write it, else None: 1,234.5; 0.\\overline{3}, 3\\frac12, 2\\times 10^{6}."""
  text = text.strip()
  if len(text) > MAX_DIGITS or not any(c.isdigit() for c in text):
    return None
  if (match := _POWER.fullmatch(text)) is not None:
    head, e = match["head"], int(match["e"] or match["e2"])
    factor = {"": Fraction(1), "+": Fraction(1), "-": Fraction(-1)}.get(head) or literal(head)
    return None if factor is None or abs(e) > 4000 else factor * Fraction(10) ** e
  if (match := _MIXED.fullmatch(text)) is not None:
    top, bottom = int(match["top"] or match["top2"]), int(match["bottom"] or match["bottom2"])
    if bottom == 0 or (match["whole"] and top < 0):
      return None
    value = Fraction(top, bottom) + int(match["whole"] or 0)
    return -value if match["sign"] == "-" else value
  return _decimal(text)


def _decimal(text: str) -> Fraction | None:
  match = _DECIMAL.fullmatch(text)
  if match is None or not (match["int"] or match["frac"]):
    return None
  whole, frac, cycle = re.sub(r"\D", "", match["int"] or ""), match["frac"] or "", match["cycle"]
  value = Fraction(_integer(whole + frac or "0"), 10 ** len(frac))
  if cycle:
    value += Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(frac))
  return -value if match["sign"] == "-" else value


def _integer(digits: str) -> int:
  """int(digits), also past Python's limit on the number of digits."""
  step, value = 4000, 0
  for i in range(0, len(digits), step):
    part = digits[i : i + step]
    value = value * 10 ** len(part) + int(part)
  return value


def readable(text: str) -> bool:
  """False for what the parser should not even try: too long, too deep, or a tower of powers."""
  depth = deepest = 0
  for c in text:
    depth += (c in "({[") - (c in ")}]")
    deepest = max(deepest, depth)
  tower = re.search(r"\^\s*\{[^{}^]*\^\s*\{[^{}^]*\^", text)
  return len(text) <= MAX_CHARS and deepest <= MAX_NESTING and not tower and not re.search(r"\d{6,}\s*[)}]?\s*!", text)


@functools.lru_cache(maxsize=512)
def formula(text: str) -> sympy.Basic | None:
  """The unevaluated sympy object of a formula; None if it cannot be read.

  `i` alone is the imaginary unit, e Euler's number; decimals are exact fractions.
  """
  if (number := literal(text)) is not None:
    return sympy.Rational(number.numerator, number.denominator)
  if not readable(text) or not text or "\\text" in text:
    return None
  imaginary = re.search(r"(?<![A-Za-z\\{_])i(?![A-Za-z])|\{i\}", text) is not None
  text = re.sub(r"(\d+)\s*\\frac\s*\{(\d+)\}\s*\{(\d+)\}", r"(\1+\\frac{\2}{\3})", text)
  text = re.sub(r"(?<!\d)\.(?=\d)", "0.", text)
  try:
    expr = latex2sympy(text, is_real=not imaginary, convert_degrees=False, normalization_config=None)
    floats = {f: sympy.Rational(str(f)) for f in expr.atoms(sympy.Float)}
    units = {s: sympy.I for s in expr.atoms(sympy.Symbol) if imaginary and s.name == "i"}
    return expr.xreplace(floats | units)
  except (Exception, RecursionError):
    return None


def num_digits(expr: sympy.Basic) -> float:
  """An upper bound on the digits of the value, so that nothing is evaluated that does not fit. Raises TooLarge."""
  if isinstance(expr, sympy.Rational):
    size = (abs(expr.p).bit_length() + expr.q.bit_length()) * math.log10(2)
  elif isinstance(expr, sympy.Pow):
    size = (num_digits(expr.base) + 0.5) * _bound(expr.exp)
  elif isinstance(expr, sympy.exp):
    size = _bound(expr.args[0])
  elif isinstance(expr, sympy.factorial | sympy.gamma | sympy.binomial):
    size = _bound(expr.args[0]) * max(1.0, num_digits(expr.args[0]))
  elif isinstance(expr, sympy.Sum | sympy.Product):
    size = max(_bound(end) for _, *ends in expr.limits for end in ends)
  else:
    size = 0.5 + sum(num_digits(a) for a in expr.args)
  if size > MAX_DIGITS:
    raise TooLarge(f"a value of about {size:.1g} digits")
  return size


def _bound(expr: sympy.Basic) -> float:
  return abs(float(expr)) if isinstance(expr, sympy.Rational) else 10.0 ** min(num_digits(expr), 300)


def value(expr: sympy.Basic, point: dict | None = None) -> sympy.Expr | None:
  """The number that `expr` is at `point`, exact if rational, else to 40 digits beyond its size; None if it is none."""
  expr = expr.xreplace({s: (point or {}).get(s.name, s) for s in expr.free_symbols})
  digits = num_digits(expr)
  rational = not expr.atoms(sympy.NumberSymbol, sympy.Function, sympy.Symbol, sympy.Integral, sympy.Limit, sympy.Sum)
  if rational or isinstance(expr, sympy.Rational):
    exact = expr.doit()
    if isinstance(exact, sympy.Rational) or exact in (sympy.oo, -sympy.oo):
      return exact
  elif expr.atoms(
    sympy.factorial, sympy.floor, sympy.ceiling, sympy.Sum, sympy.Limit, sympy.Mod, sympy.UnevaluatedExpr
  ):
    expr = expr.doit()
    if isinstance(expr, sympy.Rational):
      return expr
  number = expr.evalf(int(digits) + 40, maxn=int(digits) + 200)
  if not getattr(number, "is_number", False) or number.has(sympy.nan, sympy.zoo) or not number.is_finite:
    return number if number in (sympy.oo, -sympy.oo) else None
  return number if all(p.is_Number for p in number.as_real_imag()) else None


def close(x: sympy.Expr, y: sympy.Expr) -> bool:
  """Equal for fractions; else equal to 25 significant digits."""
  if all(v in (sympy.oo, -sympy.oo) or isinstance(v, sympy.Rational) for v in (x, y)):
    return x == y
  if sympy.oo in (abs(x), abs(y)):
    return False
  scale = max(abs(x), abs(y))
  return bool(_vanishes(x - y) or abs(x - y) <= scale * sympy.Rational(1, 10**25))


def _vanishes(x: sympy.Expr) -> bool:
  """Zero, or a float of which no digit is sure."""
  return x == 0 or all(p == 0 or (isinstance(p, sympy.Float) and p._prec <= 1) for p in x.as_real_imag())


def points(*exprs: sympy.Basic) -> list[dict]:
  """Fixed points for the free symbols of `exprs`: positive ones, then one with every other sign."""
  names = sorted({s.name for e in exprs for s in e.free_symbols})
  if not names:
    return [{}]

  def at(k, sign):
    numbers = [_POINTS[(j + k) % len(_POINTS)] * (1 + j // len(_POINTS)) * sign for j in range(len(names))]
    return {n: sympy.Rational(v.numerator, v.denominator) for n, v in zip(names, numbers)}

  return [at(0, 1), at(1, 1), at(3, 1), at(2, -1)]


def scalars_equal(reference: str, answer: str) -> bool:
  """Whether two formulas mean the same number or the same function of their letters."""
  if compact(reference) == compact(answer):
    return True
  x, y = literal(reference), literal(answer)
  if x is not None and y is not None:
    return x == y
  x, y = formula(reference), formula(answer)
  if x is None or y is None:
    return False
  try:
    return expressions_equal(x, y)
  except (Exception, RecursionError):
    return False


def expressions_equal(x: sympy.Basic, y: sympy.Basic) -> bool:
  if not isinstance(x, sympy.Expr) or not isinstance(y, sympy.Expr):
    from math_verify import verify

    return bool(verify(x, y, timeout_seconds=None))
  agreed = 0
  for point in points(x, y):
    a, b = value(x, point), value(y, point)
    real = [v is not None and v.is_extended_real for v in (a, b)]
    if point and not all(real):
      if any(v is None for v in (a, b)) or any(real):
        continue  # outside the domain of one of them
    if a is None or b is None or not close(a, b):
      return False
    agreed += 1
  return agreed >= min(2, len(points(x, y)))


def proportional(x: sympy.Basic, y: sympy.Basic) -> sympy.Expr | None:
  """The constant c != 0 with x = c y at every point tried; None if there is none."""
  ratio, agreed = None, 0
  for point in points(x, y):
    a, b = value(x, point), value(y, point)
    if a is None or b is None or _vanishes(a) or _vanishes(b):
      continue
    if ratio is not None and not close(ratio, a / b):
      return None
    ratio, agreed = a / b, agreed + 1
  return ratio if agreed >= 2 else None
