"""Answers in words, units after a number, percent signs and bases. All of it works on normalised text."""

import re

_SHORT_UNITS = (
  "mm cm dm m km in ft yd mi g kg mg lb lbs oz l L ml mL s sec min h hr hrs ms Hz J N W V A K C F Pa m/s km/h mph "
  "cents USD EUR deg rad units sq"
).split()
_ALIASES = {
  "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "kilometer": "km", "kilometre": "km",
  "millimeter": "mm", "millimetre": "mm", "inch": "in", "inche": "in", "foot": "ft", "feet": "ft", "yard": "yd",
  "mile": "mi", "gram": "g", "kilogram": "kg", "pound": "lb", "ounce": "oz", "liter": "l",
  "litre": "l", "second": "s", "sec": "s", "minute": "min",
  "hour": "h", "hr": "h", "hrs": "h", "lbs": "lb", "degree": "deg", "circ": "deg", "dollar": "USD",
}  # fmt: skip
_FUNCTION = "sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|frac|pi|max|min|gcd|lcm|arc"
_TRAILING_TEXT = re.compile(
  r"(?P<core>.*?)\s*(?P<unit>(?:\\text\{[^{}]*\}(?:\s*\^\s*(?:\{\d\}|\d))?\s*[/\s]*)+)", re.DOTALL
)
_TRAILING_DEGREE = re.compile(r"(?P<core>.*?)\s*\^\s*\{\s*\\circ\s*\}\s*(?P<scale>[CF]?)", re.DOTALL)
_TRAILING_WORDS = re.compile(
  rf"(?P<core>.*[\d}})])(?P<blank>\s*)(?P<unit>(?!(?:{_FUNCTION})\b)[A-Za-z/]+(?:[\s-][A-Za-z]+)*\.?)"
  r"(?:\s*\^\s*(?P<power>\{\d\}|\d))?",
  re.DOTALL,
)
_TRAILING_CJK = re.compile(r"(?P<core>.*[\d}])\s*(?P<unit>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+)", re.DOTALL)
_PERCENT = re.compile(r"(?P<core>.+?)\s*(?:\\?%|\\text\{\s*(?:%|\\%|percent)\s*\}|percent\b)", re.DOTALL)
_BASE = re.compile(
  r"(?P<digits>[0-9][0-9A-Za-z]*)\s*_\s*\{?\s*(?:\\text\{)?\s*(?P<base>\d+|two|eight|ten|sixteen)\s*\}?\}?"
)


def plain_words(text: str) -> str | None:
  """The words of an answer that is only words, folded in case and blanks; None for a formula."""
  text = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", text).replace('"', " ")
  if "\\" in text or re.search(r"[\d=<>^_+*/|]", text):
    return None
  words = re.findall(r"[^\W\d_]+(?:['-][^\W\d_]+)*", text)
  wordy = any(len(w) >= 4 or (len(w) >= 2 and (w[0].isupper() or w.lower() in ("no", "yes", "odd"))) for w in words)
  if not wordy or re.search(r"[()\[\]{}]", re.sub(r"\([A-Z]\)", "", text)):
    return None
  return re.sub(r"\s+", " ", text).strip(" .!").casefold()


def base_of(text: str) -> tuple[str, str] | None:
  """(digits, base) of a number like 204_{5}."""
  match = _BASE.fullmatch(text.strip())
  names = dict(two="2", eight="8", ten="10", sixteen="16")
  return (match["digits"], names.get(match["base"], match["base"])) if match else None


def percent_of(text: str) -> tuple[str, bool]:
  """The text without a percent sign at its end, and whether there was one."""
  match = _PERCENT.fullmatch(text)
  return (match["core"], True) if match else (text, False)


def unit_of(text: str) -> tuple[str, str]:
  """(number, unit): a unit is `\\text{...}` or a bare word after something with a value; "" if there is none."""
  if (match := _TRAILING_DEGREE.fullmatch(text)) and match["core"]:
    return match["core"], "deg" + match["scale"]
  match = _TRAILING_TEXT.fullmatch(text)
  if match and match["core"] and "\\text" not in match["core"]:
    return match["core"], _canonical(match["unit"])
  match = _TRAILING_CJK.fullmatch(text)
  if match:
    return match["core"], match["unit"]
  match = _TRAILING_WORDS.fullmatch(text)
  if match and (match["unit"] in _SHORT_UNITS or (len(match["unit"]) >= 4 and match["blank"])):
    return match["core"], _canonical(match["unit"] + ("^" + match["power"] if match["power"] else ""))
  return text, ""


def same_unit(a: str, b: str) -> bool:
  """One unit may be left out; two must agree."""
  return not a or not b or a == b


def _canonical(unit: str) -> str:
  unit = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", unit)
  unit = re.sub(r"\^\s*\{?(\d)\}?", r"^\1", unit).strip(" .")
  words = []
  for word in unit.split():
    head, caret, power = word.partition("^")
    single = head[:-1] if len(head) > 3 and head.endswith("s") else head
    words.append(_ALIASES.get(single.lower(), _ALIASES.get(head.lower(), single)) + caret + power)
  return re.sub(r"^(?:square|sq) (\w+)$", r"\1^2", " ".join(words).replace(" ^", "^"))
