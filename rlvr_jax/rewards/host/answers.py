"""Where the answer stands in a completion. Only text outside `<think>` blocks is ever looked at."""

import re

FORMATS = ("boxed", "gsm8k", "any")

_THINK = re.compile(r"</?think>")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_STATED = re.compile(
  r"(?:\bfinal\s+answer|\banswer)\b(?:\s+\w+){0,4}?[*_\s]*(?:\bis\b|:|=)[*_:\s]*(?P<rest>[^\n]*)", re.IGNORECASE
)
_MATH = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
NUMBER = (
  r"(?<![\w.])[-+−]?[$£€¥]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))(?:[eE][-+]?\d+)?(?:\s*/\s*\d+)?(?:\s*\\?%)?"
)
_NUMBER = re.compile(NUMBER)


def answer_part(text: str) -> str | None:
  """The text outside `<think>...</think>`; None if a block is opened and never closed.

  A `</think>` without an opening tag ends reasoning that began in the prompt: everything before it is dropped.
  """
  kept, depth, start = [], 0, 0
  for tag in _THINK.finditer(text):
    if depth == 0:
      kept.append(text[start : tag.start()])
    if tag[0] == "<think>":
      depth += 1
    elif depth == 0:
      kept = []
    else:
      depth -= 1
    start = tag.end()
  return None if depth else "".join([*kept, text[start:]])


def closing_braces(text: str) -> dict[int, int]:
  """{index of an opening brace: index of its closing one}, in one pass. `\\{` and `\\}` do not count."""
  pairs, still_open = {}, []
  for match in _BRACE.finditer(text):
    if match[0] == "{":
      still_open.append(match.start())
    elif match[0] == "}" and still_open:
      pairs[still_open.pop()] = match.start()
  return pairs


def last_box(text: str) -> str | None:
  """Content of the last outermost `\\boxed{}` or `\\fbox{}`: "" if empty or never closed, None if there is none."""
  pairs, content, position = closing_braces(text), None, 0
  for box in _BOX.finditer(text):
    if box.start() < position:
      continue  # inside another box
    end = pairs.get(box.end() - 1)
    content = text[box.end() : end] if end is not None else ""
    position = box.end() if end is None else end + 1
  return content


def extract(completion: str, answer_format: str) -> str | None:
  """The answer's text by one of FORMATS; None when none is given.

  boxed: the last box. gsm8k: the text after the last `####`, to the end of its line. any: the last box, else the last
  stated answer ("the answer is ..."), else the last number.
  """
  text = answer_part(completion)
  if text is None:
    return None
  if answer_format == "gsm8k":
    _, marker, rest = text.rpartition("####")
    return (rest.strip().splitlines() or [""])[0].strip() or None if marker else None
  box = last_box(text)
  if answer_format == "boxed" or box is not None:
    return (box or "").strip() or None
  return _stated(text) or last_number(text)


def _stated(text: str) -> str | None:
  """The rest of the last line that states an answer: its formulas if there are any, else its first clause."""
  stated = None
  for match in _STATED.finditer(text):
    stated = match
  if stated is None:
    return None
  rest = stated["rest"].strip() or text[stated.end() :].strip().split("\n")[0]
  formulas = [next(g for g in m.groups() if g) for m in _MATH.finditer(rest)]
  if formulas:
    return ", ".join(formulas)
  clause = re.split(r"[.;!?](?:\s|$)|,\s+(?:because|since|so|as|which|where)\b", rest)[0]
  return clause.strip(" *_`\"'") or None


def last_number(text: str) -> str | None:
  """The last number written in `text`, with its sign, separators, exponent, fraction and percent sign."""
  found = [m[0] for m in _NUMBER.finditer(text) if any(c.isdigit() for c in m[0])]
  return found[-1] if found else None
