"""Whether two answers are the same: words, numbers with units, lists, tuples, sets, intervals, matrices, equations."""

import re
from typing import NamedTuple

from rlvr_jax.rewards.host.latex import compact, normalise, split_top
from rlvr_jax.rewards.host.regions import is_region, regions_equal
from rlvr_jax.rewards.host.scalar import formula, literal, proportional, readable, scalars_equal
from rlvr_jax.rewards.host.words import base_of, percent_of, plain_words, same_unit, unit_of

_OR = r"\\text\{\s*(?:or|and)\s*\}|(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])"
_SEPARATORS = rf",\s*(?:{_OR})|,|;|{_OR}"
_NAME = r"(?:[A-Za-z]|\\[a-z]+)(?:_(?:\w|\{\w+\}))?(?:\([A-Za-z]\))?'?|\\text\{[^{}]*\}|[A-Z]{2,3}"
_ASSIGNED = re.compile(rf"\s*(?P<name>{_NAME})\s*=(?!=)\s*(?P<rest>.+)", re.DOTALL)
_MEMBER = re.compile(rf"\s*(?:{_NAME})\s*\\in\s*(?P<rest>.+)", re.DOTALL)
_ENVIRONMENT = re.compile(
  r"\\begin\{(?P<name>[a-zA-Z]*matrix|cases|array|aligned)\}(?:\{[^{}]*\})?(?P<body>.*)\\end\{(?P=name)\}", re.DOTALL
)
_BRACKETED = re.compile(r"(\(|\[|\\langle)(.*)(\)|\]|\\rangle)", re.DOTALL)


class Parts(NamedTuple):
  """An answer one level down. kind: words, list, set, tuple, matrix or scalar."""

  kind: str
  items: tuple
  brackets: str = ""


def same_answer(reference: str, answer: str, prompt: str | None = None) -> bool:
  """Whether `answer` states what `reference` states. The prompt only settles a percent sign or a base left out."""
  reference, answer = normalise(reference), normalise(answer)
  if not reference or not answer:
    return False
  if compact(reference) == compact(answer):
    return True
  if literal(reference) is None and not readable(reference) or literal(answer) is None and not readable(answer):
    return False
  return _same(reference, answer, prompt or "")


def _same(reference: str, answer: str, prompt: str) -> bool:
  if compact(reference) == compact(answer):
    return True
  if base_of(reference) or base_of(answer):
    return _same_base(reference, answer, prompt)
  if literal(reference) is not None and literal(answer) is not None:
    return literal(reference) == literal(answer)
  if is_region(reference) or is_region(answer):
    verdict = regions_equal(_member(reference), _member(answer))
    if verdict is not None:
      return verdict
  r, a = parts(reference), parts(answer)
  if literal(reference) is not None and r.kind == "list":
    r = Parts("scalar", (reference,))
  if literal(answer) is not None and a.kind == "list" and r.kind == "scalar":
    a = Parts("scalar", (answer,))
  return _same_parts(r, a, prompt)


def _member(text: str) -> str:
  match = _MEMBER.fullmatch(text)
  return match["rest"] if match else text


def parts(text: str) -> Parts:
  """The outermost structure of a normalised answer."""
  if (words := plain_words(text)) is not None:
    names = sorted(w for w in re.split(r",|\band\b", words) if w.strip())
    return Parts("words", tuple(n.strip() for n in names))
  if (match := _ENVIRONMENT.fullmatch(text)) is not None:
    rows = [r for r in re.split(r"\\\\(?:\[[^\]]*\])?", match["body"]) if r.strip()]
    if match["name"] in ("cases", "aligned", "array") and "&" not in text:
      return Parts("list", tuple(r.strip() for r in rows))
    return Parts("matrix", tuple(tuple(c.strip() for c in r.split("&")) for r in rows), match["name"][0])
  items = split_top(text, _SEPARATORS)
  if len(items) > 1:
    first = _ASSIGNED.fullmatch(items[0])
    if first and not any("=" in i for i in items[1:]):
      items[0] = first["rest"]
    return Parts("list", tuple(x for i in items for x in _plus_minus(i)))
  if (named := _ASSIGNED.fullmatch(text)) and re.match(r"\\\{|\(|\\begin", named["rest"]):
    inner = parts(named["rest"])
    if inner.kind in ("set", "tuple", "matrix"):
      return inner
  return _enclosed(text)


def _enclosed(text: str) -> Parts:
  if text.startswith("\\{") and text.endswith("\\}"):
    inside = text[2:-2].strip()
    return Parts("set", tuple(x for i in split_top(inside, _SEPARATORS) if i for x in _plus_minus(i)))
  if (match := _BRACKETED.fullmatch(text)) is not None:
    items = split_top(match[2], r",|;")
    if len(items) > 1 and all(items):
      return Parts("tuple", tuple(items), (match[1] + match[3]).replace("\\langle", "(").replace("\\rangle", ")"))
  expanded = _plus_minus(text)
  return Parts("list", tuple(expanded)) if len(expanded) > 1 else Parts("scalar", (text,))


def _plus_minus(text: str) -> list[str]:
  if "\\pm" not in text and "\\mp" not in text:
    return [text]
  signs = ((r"+", r"-"), (r"-", r"+"))
  return [re.sub(r"\\mp\s*", m, re.sub(r"\\pm\s*", p, text)) for p, m in signs]


def _same_parts(r: Parts, a: Parts, prompt: str) -> bool:
  if "words" in (r.kind, a.kind):
    return r.kind == a.kind and r.items == a.items
  if r.kind == a.kind == "scalar":
    return _same_scalar(r.items[0], a.items[0], prompt)
  if r.kind == a.kind == "matrix":
    flat = lambda m: [c for row in m.items for c in row]
    shapes = [[len(row) for row in m.items] for m in (r, a)]
    return (r.brackets == "v") == (a.brackets == "v") and shapes[0] == shapes[1] and _in_order(flat(r), flat(a), prompt)
  if r.kind == a.kind == "tuple":
    return r.brackets == a.brackets and _in_order(r.items, a.items, prompt)
  kinds = {r.kind, a.kind}
  if kinds == {"tuple", "list"}:
    pair = [_values_by_name(p.items) if p.kind == "list" else p.items for p in (r, a)]
    brackets = r.brackets or a.brackets
    return brackets == "()" and all(pair) and _in_order(pair[0], pair[1], prompt)
  if kinds <= {"list", "set"} or kinds == {"set", "scalar"}:
    return _unordered(r.items, a.items, prompt)
  if kinds == {"matrix", "tuple"}:
    matrix, other = (r, a) if r.kind == "matrix" else (a, r)
    flat = [c for row in matrix.items for c in row]
    vector = all(len(row) == 1 for row in matrix.items) or len(matrix.items) == 1
    return vector and other.brackets == "()" and _in_order(flat, other.items, prompt)
  return False


def _values_by_name(items) -> list[str] | None:
  """Values of `x=1, y=2` in the order of the names; items without names as they are; None for a mixture."""
  named = [_ASSIGNED.fullmatch(i) for i in items]
  if not any(named):
    return list(items)
  return [m["rest"] for m in sorted(named, key=lambda m: m["name"])] if all(named) else None


def _in_order(r, a, prompt: str) -> bool:
  return len(r) == len(a) and all(_same(x, y, prompt) for x, y in zip(r, a))


def _unordered(r, a, prompt: str) -> bool:
  if any("\\ldots" in x for x in (*r, *a)):
    return _in_order(r, a, prompt)
  left = list(a)
  for x in r:
    match = next((y for y in left if _same(x, y, prompt)), None)
    if match is None:
      return False
    left.remove(match)
  return len(r) == len(a)


def _same_base(reference: str, answer: str, prompt: str) -> bool:
  """Digits and base must agree; one base may be left out where the prompt names one."""
  r, a = base_of(reference), base_of(answer)
  if r and a:
    return r == a
  bare = answer if r else reference
  return re.search(r"\bbase\b", prompt, re.IGNORECASE) is not None and compact(bare) == (r or a)[0]


def _same_scalar(reference: str, answer: str, prompt: str) -> bool:
  for sign in ("\\equiv", "\\pmod"):
    if sign in reference or sign in answer:
      return compact(reference).replace("(", "").replace(")", "") == compact(answer).replace("(", "").replace(")", "")
  r_sides, a_sides = split_top(reference, r"(?<![<>!:])="), split_top(answer, r"(?<![<>!:])=")
  if len(r_sides) > 1 or len(a_sides) > 1:
    return _same_equation(r_sides, a_sides, prompt)
  if ":" in reference and ":" in answer:
    return _same_ratio(reference.split(":"), answer.split(":"), prompt)
  (r, r_pct), (a, a_pct) = percent_of(reference), percent_of(answer)
  if r_pct or a_pct:
    hundredth = lambda x, pct: f"\\frac{{{x}}}{{100}}" if pct else x
    if r_pct == a_pct:
      return _same(r, a, prompt)
    asked = re.search(r"percent|%", prompt, re.IGNORECASE) is not None
    return (asked and _same(r, a, prompt)) or _same_value(hundredth(r, r_pct), hundredth(a, a_pct))
  (r, r_unit), (a, a_unit) = unit_of(reference), unit_of(answer)
  return same_unit(r_unit, a_unit) and _same_value(r, a)


def _same_value(r: str, a: str) -> bool:
  fraction = re.compile(r"\\frac\{([^{}]*)\}\{100\}")
  exact = []
  for text in (r, a):
    match = fraction.fullmatch(text)
    number = literal(match[1]) if match else None
    exact.append(literal(text) if number is None else number / 100)
  if None not in exact:
    return exact[0] == exact[1]
  return scalars_equal(r, a)


def _same_ratio(r: list[str], a: list[str], prompt: str) -> bool:
  x, y = [literal(p) for p in r], [literal(p) for p in a]
  if len(x) != len(y) or None in x or None in y:
    return _in_order(r, a, prompt)
  return all(x[0] * q == y[0] * p for p, q in zip(x, y))


def _same_equation(r: list[str], a: list[str], prompt: str) -> bool:
  """An equation against a value is its last side; two equations are equal if one is a multiple of the other."""
  name = re.compile(_NAME)
  if len(a) == 1:
    return name.fullmatch(r[0]) is not None and _same(r[-1], a[0], prompt)
  if len(r) == 1:
    value_like = name.fullmatch(a[0]) or all(formula(s) is not None and not formula(s).free_symbols for s in a)
    return bool(value_like) and _same(r[0], a[-1], prompt)
  if compact(r[0]) == compact(a[0]) and name.fullmatch(r[0]):
    return _same(r[-1], a[-1], prompt)
  if "\\text" in r[0] + a[0]:
    return (
      "\\text" in r[0]
      and "\\text" in a[0]
      and compact(r[0]).casefold() == compact(a[0]).casefold()
      and _same(r[-1], a[-1], prompt)
    )
  try:
    x, y = (formula(f"{sides[0]}-({sides[-1]})") for sides in (r, a))
    return x is not None and y is not None and proportional(x, y) is not None
  except (Exception, RecursionError):
    return False
