"""What a verifier reads and what it answers. Plain Python: worker processes import this file without jax."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

STATUSES = ("ok", "wrong", "unparsable", "timeout", "error")
MAX_REASON_CHARS = 300


class Sample(NamedTuple):
  """One completion to be judged."""

  completion: str  # the model's text, special tokens stripped
  reference: Any  # what the verifier compares with; its form is the verifier's
  prompt: str | None = None  # context only (a base, a percent question): never searched for the answer
  num_tokens: int | None = None  # sampled tokens
  truncated: bool = False  # ended by the length limit rather than by a stop token
  metadata: Mapping[str, Any] = {}  # the task's own fields, picklable


class Verdict(NamedTuple):
  """A reward in [0, 1] with its status and a short reason; made by `verdict`."""

  reward: float
  status: str
  reason: str
  answer: str | None = None  # what was read; equal answers to a prompt are equal texts. None: nothing, or no such thing


def verdict(reward: float, status: str, reason: str = "", answer: str | None = None) -> Verdict:
  """A checked Verdict. A long `answer` is kept as its sha256, which tells answers apart as well.

  `ok`: some reward. `wrong`: an answer was read and earns nothing. `unparsable`: no answer could be read.
  `timeout`: the verifier was stopped by the clock. `error`: the task or the verifier is at fault, so there is no
  reward: such a row leaves the group statistics instead of counting as a zero.

  Raises ValueError when the reward is not a finite number in [0, 1] or the status is unknown.
  """
  if status not in STATUSES:
    raise ValueError(f"verdict status must be one of {STATUSES}, got {status!r}")
  try:
    number = float(reward)
  except (TypeError, ValueError):
    raise ValueError(f"verdict reward must be a number in [0, 1], got {reward!r:.100}") from None
  if not 0.0 <= number <= 1.0:  # NaN too
    raise ValueError(f"verdict reward must be finite and in [0, 1], got {number}")
  return Verdict(number, status, short(reason), None if answer is None else _identity(str(answer)))


def _identity(answer: str) -> str:
  if len(answer) <= MAX_REASON_CHARS:
    return answer.encode("utf-8", "backslashreplace").decode()
  return hashlib.sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()


def short(reason: str) -> str:
  """`reason` as printable UTF-8 of bounded length; says how much was left out."""
  reason = str(reason)
  left_out = len(reason) - MAX_REASON_CHARS
  if left_out > 0:
    reason = f"{reason[:MAX_REASON_CHARS]}... ({left_out} more characters)"
  return reason.encode("utf-8", "backslashreplace").decode()
