"""Equality of text."""

from rlvr_jax.rewards.host.answers import answer_part
from rlvr_jax.rewards.verdict import Sample, verdict


def exact(casefold: bool = False):
  """1 if the answer part equals the reference, blanks at both ends aside.

  The answer part is the completion without its reasoning block; a block never closed is `unparsable`.

  Args:
    casefold: also ignore upper and lower case.
  """

  def same(text):
    return text.strip().casefold() if casefold else text.strip()

  def verify(sample: Sample):
    if not isinstance(sample.reference, str):
      raise ValueError(f"exact needs a text as reference, got {sample.reference!r:.80}")
    answer = answer_part(sample.completion)
    if answer is None or not answer.strip():
      return verdict(0.0, "unparsable", "no text outside the reasoning block")
    if same(answer) == same(sample.reference):
      return verdict(1.0, "ok", "equal", same(answer))
    return verdict(0.0, "wrong", f"{answer.strip()[:80]!r} is not {sample.reference.strip()[:80]!r}", same(answer))

  return verify
