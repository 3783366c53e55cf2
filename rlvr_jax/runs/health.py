"""An alarm for rewards that have stopped meaning anything: a verifier that fails or times out teaches noise."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_jax.evals import wilson_interval

WATCHED = ("error", "timeout")


class RewardHealthError(RuntimeError):
  """Too many verdicts are errors or timeouts."""


class RewardHealth:
  """Watches the last `window` verdicts of each reward component.

  Args:
    max_error_share, max_timeout_share: the alarm sounds above these.
    window:       verdicts looked back on.
    min_verdicts: with fewer seen, a share counts as above its limit only when the low end of its 95 % interval is: one
      error among the first eight verdicts is no alarm, eight are.
    mode:         "raise" a RewardHealthError, or "warn": return the message, once until the share has been back in
      its limit.
  """

  def __init__(
    self,
    max_error_share: float = 0.05,
    max_timeout_share: float = 0.2,
    window: int = 1024,
    min_verdicts: int = 64,
    mode: str = "raise",
  ):
    if mode not in ("raise", "warn"):
      raise ValueError(f"RewardHealth: mode must be 'raise' or 'warn', got {mode!r}")
    self._limits = dict(error=max_error_share, timeout=max_timeout_share)
    for status, limit in self._limits.items():
      if not 0 <= limit <= 1:
        raise ValueError(f"RewardHealth: max_{status}_share must lie in [0, 1], got {limit}")
    if not 1 <= min_verdicts <= window:
      raise ValueError(f"RewardHealth: need 1 <= min_verdicts <= window, got {min_verdicts} and {window}")
    self._window, self._min_verdicts, self._mode = window, min_verdicts, mode
    self._seen: dict[str, deque] = {}
    self._sounding: set[tuple[str, str]] = set()

  def shares(self) -> dict[str, float]:
    """Share of each watched status over the window, as "health/component/status"."""
    return {
      f"health/{label}/{status}": sum(s == status for s, _ in seen) / len(seen)
      for label, seen in self._seen.items()
      for status in WATCHED
    }

  def observe(self, verdicts: Sequence[Mapping[str, Any]]) -> str | None:
    """Takes the verdicts of one batch, a mapping from component to Verdict per row. Returns a new alarm or None."""
    for row in verdicts:
      for label, verdict in row.items():
        seen = self._seen.setdefault(label, deque(maxlen=self._window))
        seen.append((verdict.status, verdict.reason))
    alarms = []
    for label, seen in self._seen.items():
      for status in WATCHED:
        above = self._above(seen, status)
        if above and (label, status) not in self._sounding:
          alarms.append(self._message(label, status, seen))
        (self._sounding.add if above else self._sounding.discard)((label, status))
    if not alarms:
      return None
    message = "\n".join(alarms)
    if self._mode == "raise":
      raise RewardHealthError(message)
    return message

  def _above(self, seen, status: str) -> bool:
    count, total, limit = sum(s == status for s, _ in seen), len(seen), self._limits[status]
    if total >= self._min_verdicts:
      return count / total > limit
    return total > 0 and wilson_interval(count, total).low > limit

  def _message(self, label: str, status: str, seen) -> str:
    counts = {s: sum(found == s for found, _ in seen) for s in WATCHED}
    shares = ", ".join(f"{s} {counts[s] / len(seen):.1%}" for s in WATCHED)
    reasons = list(dict.fromkeys(r for s, r in reversed(seen) if s == status and r))[:2]
    examples = "; ".join(repr(r) for r in reasons) or "none given"
    return (
      f"reward component {label!r}: {status} share {counts[status] / len(seen):.1%} of the last {len(seen)} verdicts "
      f"is above its limit {self._limits[status]:.1%} ({shares}). Reasons such as: {examples}"
    )
