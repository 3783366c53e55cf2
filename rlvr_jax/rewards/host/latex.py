"""One spelling for LaTeX that means the same: everything that compares answers reads this form."""

import re

from rlvr_jax.rewards.host.answers import closing_braces

_SUPERSCRIPT = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n"))
_SUBSCRIPT = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789"))
_VULGAR = {
  c: f"\\frac{{{a}}}{{{b}}}"
  for c, a, b in zip("½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞", "112131234151357", "233445555668888")
}  # fmt: skip
_SIGNS = {
  "−": "-", "–": "-", "—": "-", "×": "\\times ", "÷": "/", "·": "\\cdot ", "⋅": "\\cdot ", "∗": "*", "π": "\\pi ",
  "∞": "\\infty ", "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "∈": "\\in ", "∪": "\\cup ", "∩": "\\cap ",
  "∅": "\\emptyset ", "°": "^{\\circ}", "±": "\\pm ", "∓": "\\mp ", "…": "\\ldots ", "⋯": "\\ldots ", "≈": "\\approx ",
  "≡": "\\equiv ", "∣": "\\mid ", "⟨": "\\langle ", "⟩": "\\rangle ", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}",
  "θ": "\\theta ", "α": "\\alpha ", "β": "\\beta ", "γ": "\\gamma ", "λ": "\\lambda ", "μ": "\\mu ", "φ": "\\phi ",
  "ω": "\\omega ", "’": "'", "‘": "'", "“": '"', "”": '"', "′": "'", "\u2044": "/",
}  # fmt: skip
_FULL_WIDTH = {chr(c): chr(c - 0xFEE0) for c in range(0xFF01, 0xFF5F)}
_TABLE = str.maketrans({**_FULL_WIDTH, **_SIGNS, **_VULGAR, "\u3000": " ", "\u00a0": " ", "\u202f": " ", "\u2009": " "})

_NEW_ROW = "\0"  # stands for the command of two backslashes while `\\,` and the like are removed

_LAYOUT = re.compile(
  r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits|mathstrut|phantom\{[^{}]*\}|label\{[^{}]*\})"
  r"(?![A-Za-z])|\\[()\[\]](?![\w])"
)
_SPACE = re.compile(r"\\(?:[,;:!> \n]|quad(?![a-z])|qquad(?![a-z])|hspace\*?\{[^{}]*\}|thinspace(?![a-z]))|~|\s")
_FONTS = re.compile(
  r"\\(?:mathbf|mathit|mathsf|bm|boldsymbol|bf|it|rm|emph|underline|uline|boxed|fbox|ensuremath)(?![A-Za-z])"
)
_TEXT = re.compile(r"\\(?:text|textbf|textit|textnormal|textrm|textup|textsc|texttt|textsf|mbox|hbox)\s*\{([^{}]*)\}")
_ROMAN = re.compile(r"\\(?:mathrm|operatorname\*?)\s*\{\s*([^{}]*)\}")
_COLOUR = re.compile(r"\\(?:textcolor|colorbox)\s*\{[^{}]*\}|\\color\s*\{[^{}]*\}")
_RENAMED = (
  (r"\\[dtc]frac(?![a-z])", r"\\frac"),
  (r"\\[dt]binom(?![a-z])", r"\\binom"),
  (r"\\(?:leq|leqslant|leqq)(?![a-z])", r"\\le "),
  (r"\\(?:geq|geqslant|geqq)(?![a-z])", r"\\ge "),
  (r"\\neq(?![a-z])", r"\\ne "),
  (r"\\lt(?![a-z])", "<"),
  (r"\\gt(?![a-z])", ">"),
  (r"\\(?:varnothing|O)(?![a-zA-Z])", r"\\emptyset "),
  (r"\\(?:cdots|dots|dotsc|dotsb)(?![a-z])|\.\.\.", r"\\ldots "),
  (r"\\(?:lbrace)(?![a-z])", r"\\{"),
  (r"\\(?:rbrace)(?![a-z])", r"\\}"),
  (r"\\(?:vert|lvert|rvert)(?![a-z])", "|"),
  (r"\\(?:colon)(?![a-z])", ":"),
  (r"\\(?:div)(?![a-z])", "/"),
  (r"\\(?:setminus|backslash)(?![a-z])", r"\\setminus "),
  (r"\\(?:land|wedge)(?![a-z])", r"\\text{ and }"),
  (r"\\(?:lor|vee)(?![a-z])", r"\\text{ or }"),
  (r"\\(?:R|reals)(?![A-Za-z])", r"\\mathbb{R}"),
  (r"\\(?:degree)(?![a-z])", r"^{\\circ}"),
  (r"\^\s*\\circ(?![a-z])", r"^{\\circ}"),
  (r"\\(?:bmod|mod|pmod)\s*\{?\s*(\w+)\s*\}?\)?", r"\\pmod{\1}"),
  (r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}"),
  (r"√\s*(\d+|[A-Za-z])", r"\\sqrt{\1}"),
  (r"√\s*\(([^()]*)\)", r"\\sqrt{\1}"),
  (r"\\frac\s*([0-9])\s*([0-9])", r"\\frac{\1}{\2}"),
  (r"\\frac\s*([0-9A-Za-z])\s*\{", r"\\frac{\1}{"),
  (r"\\frac\s*(\{[^{}]*\})\s*([0-9A-Za-z])", r"\\frac\1{\2}"),
  (r"(?<=\d)\{,\}(?=\d)", ","),
  (r"(?<=[\d.])[eE]([-+]?\d+)(?![\d.A-Za-z])", r"\\times 10^{\1}"),
)
_RENAMED = tuple((re.compile(a), b) for a, b in _RENAMED)


def normalise(text: str) -> str:
  """`text` without layout and fonts, unicode signs as commands, one space for any blank, `\\text{...}` for all words.

  A superscript sign is a power (5² is 5^{2}), never a digit beside (NFKC would make it 52).
  """
  text = text.replace("\\\\", _NEW_ROW)
  text = _runs(text, _SUPERSCRIPT, "^{%s}")
  text = _runs(text, _SUBSCRIPT, "_{%s}").translate(_TABLE)
  text = re.sub(r"\\[$£€¥]|[$£€¥]", "", text)
  text = _COLOUR.sub("", _LAYOUT.sub("", text))
  text = _FONTS.sub("", text)
  text = _ROMAN.sub(_roman, text)
  for pattern, replacement in _RENAMED:
    text = pattern.sub(replacement, text)
  text = _TEXT.sub(lambda m: m[1] if re.fullmatch(r"[-+\d.,\s/]+|\(?[A-Z]\)?", m[1]) else f"\\text{{{m[1]}}}", text)
  text = re.sub(r" +", " ", _SPACE.sub(" ", text)).replace(_NEW_ROW, "\\\\").strip()
  text = re.sub(r"^(?:\\approx|\\simeq|\\sim)\s*", "", text)
  text = _unwrap(re.sub(r"(?<!\.)\.$", "", text).strip().strip("*`").strip())
  return re.sub(r"^\(([A-Z])\)$", r"\1", text)


def compact(text: str) -> str:
  """Without blanks and redundant braces: equal here is equal in every respect that matters."""
  text = re.sub(r"(\\[A-Za-z]+) (?=[A-Za-z])", r"\1\0", text)
  text = text.replace(" ", "").replace("\0", " ")
  return re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)


def _runs(text: str, signs: dict[str, str], template: str) -> str:
  pattern = "[" + "".join(signs) + "]+"
  return re.sub(pattern, lambda m: template % "".join(signs[c] for c in m[0]), text)


def _roman(match: re.Match) -> str:
  word = match[1].strip()
  if len(word) <= 1:
    return f" {word} "
  functions = ("sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "exp", "arcsin", "arccos", "arctan", "gcd", "det")
  return f"\\{word} " if word in functions else f"\\text{{{match[1]}}}"


def _unwrap(text: str) -> str:
  """Without pairs of braces around the whole."""
  pairs, start, end = closing_braces(text), 0, len(text) - 1
  while start < end and pairs.get(start) == end:
    start, end = start + 1, end - 1
  return text[start : end + 1].strip()


def split_top(text: str, separators: str) -> list[str]:
  """Splits at matches of the regex `separators` that stand outside all brackets and `\\begin...\\end`."""
  token = re.compile(
    rf"(?P<sep>{separators})|\\begin\{{\w+\}}|\\end\{{\w+\}}|\\langle|\\rangle|\\[{{}}|]|\\[A-Za-z]+|[(){{}}\[\]]"
  )
  opening = ("(", "[", "{", "\\{", "\\langle")
  closing = (")", "]", "}", "\\}", "\\rangle")
  parts, depth, start = [], 0, 0
  for match in token.finditer(text):
    if match["sep"] is not None:
      if depth == 0:
        parts.append(text[start : match.start()].strip())
        start = match.end()
    elif match[0] in opening or match[0].startswith("\\begin"):
      depth += 1
    elif match[0] in closing or match[0].startswith("\\end"):
      depth -= 1
  return [*parts, text[start:].strip()]
