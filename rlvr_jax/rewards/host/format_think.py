"""The shape of a reasoning completion, whatever it says."""

import re

from rlvr_jax.rewards.verdict import Sample, verdict

_TAGS = re.compile(r"</?think>")
_ANSWER_TAGS = re.compile(r"</?answer>")


def format_think(prefilled: bool = False, require_nonempty_think: bool = False, require_answer_tag: bool = False):
  """1 if the text is one `<think>` block at the very start, not nested, then an answer that is not blank.

  Args:
    prefilled:              the opening tag stood in the prompt, so the completion begins inside the block.
    require_nonempty_think: the block must hold more than blanks.
    require_answer_tag:     after the block there is exactly one `<answer>` block, not empty, and nothing else.
  """

  def verify(sample: Sample):
    text = "<think>" + sample.completion if prefilled else sample.completion
    fault = _fault(text, require_nonempty_think, require_answer_tag)
    return verdict(0.0, "wrong", fault) if fault else verdict(1.0, "ok", "well formed")

  return verify


def _fault(text: str, require_nonempty_think: bool, require_answer_tag: bool) -> str | None:
  if not text.startswith("<think>"):
    return "does not begin with <think>"
  tags = _TAGS.findall(text)
  if tags != ["<think>", "</think>"]:
    return f"needs one <think> block, has the tags {tags[:6]}"
  thought, answer = text.removeprefix("<think>").split("</think>")
  if require_nonempty_think and not thought.strip():
    return "the reasoning block is empty"
  if not answer.strip():
    return "no answer after the block"
  if require_answer_tag:
    inside = re.fullmatch(r"<answer>(.*)</answer>", answer.strip(), re.DOTALL)
    if inside is None or not inside[1].strip() or len(_ANSWER_TAGS.findall(answer)) != 2:
      return "after the block there must be one <answer> block, not empty, and nothing else"
  return None
