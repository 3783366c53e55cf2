"""Mathematical answers, read with math-verify's LaTeX parser and compared without rounding."""

import re

from rlvr_jax.rewards.host.answers import FORMATS, extract
from rlvr_jax.rewards.verdict import Sample, verdict


def math(answer_format: str = "boxed"):
  """1 if the completion's answer equals the reference as mathematics.

  Lists, sets and plus-minus need all values and no others; tuples keep their order; a unit may be left out but not be
  another; a percent sign or base may be left out where the prompt asks for it; decimals are exact (0.3 is not 1/3).
  Nothing larger than 20,000 digits is evaluated: such answers are right only if they are spelt like the reference.
  No clock or signal in here: run it in a `VerifierPool`.

  Args:
    answer_format: `boxed`, the last box; `gsm8k`, the text after the last `####`, also in the reference; `any`, a box,
                   else a stated answer, else the last number. No answer is `unparsable`.
  """
  check_format("math", answer_format)
  from rlvr_jax.rewards.host.equality import same_answer  # sympy: seconds to import, so only where it is used
  from rlvr_jax.rewards.host.latex import normalise
  from rlvr_jax.rewards.host.scalar import literal

  def verify(sample: Sample):
    reference = reference_text(sample.reference, answer_format)
    is_number = literal(normalise(reference)) is not None
    try:
      answer = extract(sample.completion, answer_format)
      if answer is None:
        return verdict(0.0, "unparsable", f"no answer in the format {answer_format!r}")
      right = same_answer(reference, answer, sample.prompt)
      echo = right and is_number and _echoes(normalise(answer), normalise(sample.prompt or ""))
    except Exception as e:  # the completion's doing: were it an error, a policy could have its bad rows left out
      return verdict(0.0, "unparsable", f"{type(e).__name__}: {e}")
    if echo:
      return verdict(0.0, "wrong", f"{answer[:80]!r} repeats the question")
    reason = f"{answer[:80]!r} {'is' if right else 'is not'} {reference[:80]!r}"
    # Every right answer is the same one; wrong ones are told apart by their spelling.
    identity = normalise(reference) if right else normalise(answer)
    return verdict(float(right), "ok" if right else "wrong", reason, identity)

  return verify


def check_format(name: str, answer_format: str) -> None:
  if answer_format not in FORMATS:
    raise ValueError(f"{name}: answer_format must be one of {FORMATS}, got {answer_format!r}")


def reference_text(reference, answer_format: str) -> str:
  """The reference as text; for gsm8k the part after its last `####`. Raises ValueError if there is nothing in it."""
  if isinstance(reference, bool) or not isinstance(reference, str | int | float):
    raise ValueError(f"the reference must be a text or a number, got {reference!r:.80}")
  text = str(reference)
  if answer_format == "gsm8k" and "####" in text:
    text = text.rpartition("####")[2]
  text = text.strip()
  if (boxed := re.fullmatch(r"\$*\s*\\boxed\s*\{(.*)\}\s*\$*", text, re.DOTALL)) is not None:
    text = boxed[1]
  if not text:
    raise ValueError(f"the reference is empty: {reference!r:.80}")
  return text


def _echoes(answer: str, prompt: str) -> bool:
  """Whether the answer is a calculation that stands in the prompt as it is."""
  squeeze = lambda s: re.sub(r"\s+", "", s)
  calculation = re.search(r"\\(?:times|cdot|frac|sqrt|binom|sum|int|log|ln|sin|cos)|(?<=[\w)}])\s*[-+*/^!]", answer)
  return calculation is not None and squeeze(answer) in squeeze(prompt)
