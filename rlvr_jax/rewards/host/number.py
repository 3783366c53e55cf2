"""Numbers within a tolerance."""

from fractions import Fraction
from math import isfinite

from rlvr_jax.rewards.host.answers import extract
from rlvr_jax.rewards.host.math import check_format, reference_text
from rlvr_jax.rewards.verdict import Sample, verdict


def number(rel_tol: float = 0.0, abs_tol: float = 0.0, answer_format: str = "any"):
  """1 if |answer - reference| <= max(rel_tol * |reference|, abs_tol), in exact arithmetic.

  A fraction, power, root or percentage is read as its value, a unit is dropped; infinity and NaN are no numbers.

  Args:
    answer_format: as in `math`; by default a box, else a stated answer, else the last number.
  """
  check_format("number", answer_format)
  for name, tol in (("rel_tol", rel_tol), ("abs_tol", abs_tol)):
    if isinstance(tol, bool) or not isinstance(tol, int | float) or not isfinite(tol) or tol < 0:
      raise ValueError(f"number: {name} must be a finite number >= 0, got {tol!r}")
  from rlvr_jax.rewards.host.numeric import number_of  # sympy: seconds to import

  def verify(sample: Sample):
    text = reference_text(sample.reference, answer_format)
    reference = number_of(text)
    if reference is None:
      raise ValueError(f"the reference is no number: {text[:80]!r}")
    try:
      answer = extract(sample.completion, answer_format)
      value = None if answer is None else number_of(answer, percent=_percent_asked(text, sample.prompt))
    except Exception as e:  # the completion's doing: were it an error, a policy could have its bad rows left out
      return verdict(0.0, "unparsable", f"{type(e).__name__}: {e}")
    if value is None:
      return verdict(0.0, "unparsable", "no answer" if answer is None else f"no number in {answer[:80]!r}")
    allowed = max(Fraction(str(rel_tol)) * abs(reference), Fraction(str(abs_tol)))
    right = abs(value - reference) <= allowed
    reason = f"{answer[:80]!r} against {text[:80]!r}, rel_tol={rel_tol:g} abs_tol={abs_tol:g}"
    return verdict(float(right), "ok" if right else "wrong", reason, str(value))

  return verify


def _percent_asked(reference: str, prompt: str | None) -> bool:
  """Whether `28%` stands for 28: the question asks for a percentage and the reference has no sign of its own."""
  return "%" not in reference and prompt is not None and ("percent" in prompt.lower() or "%" in prompt)
