"""Does a stated confidence say how often the answer is right? Brier score, expected calibration error, reliability.

  Brier = mean over rows (confidence - correct)^2
  ECE   = sum over bins (rows in bin / rows) |mean confidence - mean correct|

Rows are completions, `["p"]` one per prompt or `["p k"]` several; resampling is by prompt. A row whose confidence or
verdict is NaN is left out.

Ref: Brier 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2. Guo et al. 2017, arXiv:1706.04599, section 2
(equal-width bins). Nixon et al. 2019, arXiv:1904.01685 (equal-mass bins).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from rlvr_jax.core import nearest
from rlvr_jax.evals.intervals import BATCH, Interval, interval_of_equals, ratio_interval
from rlvr_jax.evals.majority import NO_ANSWER

BINS = ("equal_width", "equal_mass")


class ReliabilityBin(NamedTuple):
  """Rows whose confidence lies in (low_edge, high_edge]; the first bin has its low edge too."""

  low_edge: float
  high_edge: float
  num_rows: int
  confidence: float  # mean
  accuracy: Interval


def agreement_share(answers: Int[np.ndarray, "p k"]) -> Float[np.ndarray, "p k"]:
  """Confidence from votes: share of a prompt's samples, itself among them, with the same answer; NaN for none (-1)."""
  same = (answers[:, :, None] == answers[:, None, :]).mean(axis=-1)
  return np.where(answers == NO_ANSWER, np.nan, same)


def _rows(confidence, correct) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Both as float `["p k"]` with 0 where a row is left out, and which rows are kept."""
  confidence, correct = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
  if confidence.ndim not in (1, 2) or confidence.shape != correct.shape:
    raise ValueError(
      f"confidence and correct must both be [prompts] or [prompts, samples], got {confidence.shape}, {correct.shape}"
    )
  kept = ~(np.isnan(confidence) | np.isnan(correct))
  if not kept.any():
    raise ValueError("calibration: no row has both a confidence and a verdict")
  for name, array in (("confidence", confidence), ("correct", correct)):
    bad = array[kept & ((array < 0) | (array > 1))]
    if bad.size:
      raise ValueError(f"{name} must lie in [0, 1] or be NaN, got {bad[:5].tolist()}")
  shape = (len(kept), -1)
  return np.where(kept, confidence, 0).reshape(shape), np.where(kept, correct, 0).reshape(shape), kept.reshape(shape)


def _edges(confidence: np.ndarray, num_bins: int, bins: str) -> np.ndarray:
  if bins not in BINS:
    raise ValueError(f"bins must be one of {BINS}, got {bins!r}{nearest(bins, BINS)}")
  if num_bins < 1:
    raise ValueError(f"num_bins must be >= 1, got {num_bins}")
  cuts = np.arange(1, num_bins) / num_bins
  if bins == "equal_mass":  # rows of one confidence stay together, so there may be fewer bins
    cuts = np.unique(np.quantile(confidence, cuts, method="inverted_cdf"))
    cuts = cuts[(cuts > 0) & (cuts < 1)]
  return np.concatenate([[0.0], cuts, [1.0]])


def _binned(values: np.ndarray, bin_id: np.ndarray, num_bins: int) -> np.ndarray:
  """Sums by prompt and bin, `["p b"]`."""
  sums = np.zeros((len(values), num_bins))
  np.add.at(sums, (np.arange(len(values))[:, None], bin_id), values)
  return sums


def _bins(confidence, correct, num_bins, bins):
  confidence, correct, kept = _rows(confidence, correct)
  edges = _edges(confidence[kept], num_bins, bins)
  bin_id = np.searchsorted(edges[1:-1], confidence, side="left")
  rows, sure, right = (_binned(x, bin_id, len(edges) - 1) for x in (kept, confidence, correct))
  return edges, rows, sure, right


def brier_score(
  confidence: Float[np.ndarray, "p *k"],
  correct: Float[np.ndarray, "p *k"] | Bool[np.ndarray, "p *k"],
  level: float = 0.95,
  seed: int = 0,
  num_resamples: int = 5000,
) -> Interval:
  """Mean squared distance of confidence and verdict, with its bootstrap interval over prompts. 0 is best."""
  confidence, correct, kept = _rows(confidence, correct)
  error = np.square(confidence - correct).sum(axis=1)
  return ratio_interval(error, kept.sum(axis=1).astype(np.float64), level, seed, num_resamples)


def calibration_error(
  confidence: Float[np.ndarray, "p *k"],
  correct: Float[np.ndarray, "p *k"] | Bool[np.ndarray, "p *k"],
  num_bins: int = 10,
  bins: str = "equal_width",
  level: float = 0.95,
  seed: int = 0,
  num_resamples: int = 5000,
) -> Interval:
  """Expected calibration error with a conservative interval from resampled prompts. The bins are held fixed.

  The estimate leans up: noise in a bin is a distance from calibration whatever its sign, and resamples lean up once
  more, so a percentile or BCa interval hardly ever holds a true error near 0. Here the low end is the estimate less
  the quantile of sum |resampled gap - gap|, which by the triangle inequality bounds how far the estimate is above the
  truth; the high end is the quantile of the resampled errors.

  Args:
    bins: "equal_width", or "equal_mass" with about as many rows in each.
  """
  _, rows, sure, right = _bins(confidence, correct, num_bins, bins)
  present = rows.any(axis=1)
  gaps, weight = (sure - right)[present], rows[present].sum(axis=1)
  gap = gaps.sum(axis=0) / weight.sum()
  rng = np.random.default_rng(seed)
  away, errors = [], []
  for start in range(0, num_resamples, BATCH):
    size = min(BATCH, num_resamples - start)
    times = rng.multinomial(len(gaps), np.full(len(gaps), 1 / len(gaps)), size=size)
    resampled = (times @ gaps) / (times @ weight)[:, None]
    away.append(np.abs(resampled - gap).sum(axis=1))
    errors.append(np.abs(resampled).sum(axis=1))
  value, away, errors = float(np.abs(gap).sum()), np.concatenate(away), np.concatenate(errors)
  if away.max() < 1e-9:
    return interval_of_equals(value, len(gaps), level, (0.0, 1.0))
  quantile = 0.5 + level / 2
  return Interval(
    value, max(value - float(np.quantile(away, quantile)), 0.0), max(float(np.quantile(errors, quantile)), value)
  )


def reliability(
  confidence: Float[np.ndarray, "p *k"],
  correct: Float[np.ndarray, "p *k"] | Bool[np.ndarray, "p *k"],
  num_bins: int = 10,
  bins: str = "equal_width",
  level: float = 0.95,
  seed: int = 0,
  num_resamples: int = 5000,
) -> list[ReliabilityBin]:
  """The reliability table: each bin with rows, its accuracy with a bootstrap interval over prompts."""
  edges, rows, sure, right = _bins(confidence, correct, num_bins, bins)
  return [
    ReliabilityBin(
      low_edge=float(edges[b]),
      high_edge=float(edges[b + 1]),
      num_rows=int(rows[:, b].sum()),
      confidence=float(sure[:, b].sum() / rows[:, b].sum()),
      accuracy=ratio_interval(right[:, b], rows[:, b], level, seed, num_resamples),
    )
    for b in range(rows.shape[1])
    if rows[:, b].any()
  ]
