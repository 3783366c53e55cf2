"""From named verdicts to the one reward that trains, keeping every component as it was."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlvr_jax.rewards.verdict import STATUSES, Verdict


class Mixed(NamedTuple):
  """Rewards of `n` rows, on the host."""

  reward: np.ndarray  # Float32["n"] sum of weight * component; 0 where row_mask is False
  rewards: dict[str, np.ndarray]  # Float32["n"] raw components; 0 where has_verdict is False
  row_mask: np.ndarray  # Bool["n"] False: a component that counts is an error
  has_verdict: dict[str, np.ndarray]  # Bool["n"] False: that component is an error; average components over this
  statuses: dict[str, dict[str, int]]  # rows by label and status
  reasons: list[dict[str, str]]  # one mapping from label to reason per row


def mix(verdicts: Sequence[Mapping[str, Verdict]], weights: Mapping[str, float]) -> Mixed:
  """reward = sum over components of weight * raw.

  An `error` in a component with nonzero weight masks the row; in one with weight 0 (logged only) it does not.
  Raises ValueError when a weight is not finite, or a row's components are not those of `weights`.
  """
  labels = list(weights)
  for label, weight in weights.items():
    if not math.isfinite(weight):
      raise ValueError(f"the weight of reward component {label!r} must be finite, got {weight}")
  for i, row in enumerate(verdicts):
    if set(row) != set(labels):
      raise ValueError(f"row {i} has verdicts {sorted(row)}, the weights name {sorted(labels)}")

  def column(label, field):
    return [getattr(row[label], field) for row in verdicts]

  known = {k: np.array([s != "error" for s in column(k, "status")], bool) for k in labels}
  raw = {k: np.where(known[k], np.array(column(k, "reward"), np.float32), np.float32(0)) for k in labels}
  row_mask = np.ones(len(verdicts), bool)
  total = np.zeros(len(verdicts), np.float32)
  for label, weight in weights.items():
    if weight != 0:
      row_mask &= known[label]
      total = total + np.float32(weight) * raw[label]
  return Mixed(
    reward=np.where(row_mask, total, np.float32(0)),
    rewards=raw,
    row_mask=row_mask,
    has_verdict=known,
    statuses={k: {s: column(k, "status").count(s) for s in STATUSES} for k in labels},
    reasons=[{k: row[k].reason for k in labels} for row in verdicts],
  )
