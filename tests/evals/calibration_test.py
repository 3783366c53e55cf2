"""Brier score and calibration error against hand numbers and a loop; intervals hold the truth as often as said."""

import numpy as np
import pytest

from rlvr_jax.evals import wilson_interval
from rlvr_jax.evals.calibration import agreement_share, brier_score, calibration_error, reliability

CONFIDENCE = np.array([0.05, 0.1, 0.9, 0.95, 1.0])
CORRECT = np.array([0.0, 1, 1, 0, 1])


def test_by_hand():
  # squares: .0025, .81, .01, .9025, 0
  assert brier_score(CONFIDENCE, CORRECT).value == pytest.approx(1.725 / 5)
  # (0, .1]: mean .075 of 1/2; (.8, .9]: .9 of 1; (.9, 1]: .975 of 1/2
  assert calibration_error(CONFIDENCE, CORRECT).value == pytest.approx((2 * 0.425 + 0.1 + 2 * 0.475) / 5)
  # two bins of about equal mass cut at the third value: (0, .9]: mean .35 of 2/3; (.9, 1]: .975 of 1/2
  expected = (3 * (2 / 3 - 0.35) + 2 * 0.475) / 5
  assert calibration_error(CONFIDENCE, CORRECT, 2, "equal_mass").value == pytest.approx(expected)
  assert calibration_error(CONFIDENCE, CORRECT, 1).value == pytest.approx(abs(CONFIDENCE.mean() - CORRECT.mean()))


@pytest.mark.parametrize("num_bins", [3, 10])
def test_equal_width_against_a_loop(num_bins):
  rng = np.random.default_rng(0)
  confidence, correct = rng.integers(0, 11, (20, 3)) / 10, (rng.random((20, 3)) < 0.5).astype(float)
  expected = 0.0
  for b in range(num_bins):
    inside = [
      (c, y)
      for c, y in zip(confidence.ravel(), correct.ravel())
      if b / num_bins < c <= (b + 1) / num_bins or (b == 0 and c == 0)
    ]
    expected += abs(sum(c - y for c, y in inside)) / confidence.size
  assert calibration_error(confidence, correct, num_bins).value == pytest.approx(expected)


def test_reliability_table_adds_up():
  rng = np.random.default_rng(1)
  confidence = rng.random((30, 4))
  correct = (rng.random((30, 4)) < confidence).astype(float)
  for bins in ("equal_width", "equal_mass"):
    table = reliability(confidence, correct, 5, bins)
    assert sum(row.num_rows for row in table) == 120
    assert all(row.low_edge < row.confidence <= row.high_edge for row in table)
    assert all(row.accuracy.low <= row.accuracy.value <= row.accuracy.high for row in table)
    error = sum(row.num_rows * abs(row.confidence - row.accuracy.value) for row in table) / 120
    assert calibration_error(confidence, correct, 5, bins).value == pytest.approx(error)
  assert [row.num_rows for row in table] == [24] * 5  # equal mass


def test_equal_confidences_share_a_bin():
  confidence = np.array([0.5] * 8 + [0.9] * 2)
  table = reliability(confidence, np.ones(10), 5, "equal_mass")
  assert [(row.num_rows, row.confidence) for row in table] == [(8, 0.5), (2, pytest.approx(0.9))]


def test_rows_without_verdict_or_confidence_are_left_out():
  nan = float("nan")
  confidence = np.array([[0.05, 0.1], [0.9, nan], [0.95, 1.0], [0.3, nan]])
  correct = np.array([[0.0, 1], [1, 1], [0, 1], [nan, nan]])
  assert brier_score(confidence, correct).value == pytest.approx(1.725 / 5)
  assert calibration_error(confidence, correct).value == pytest.approx(1.9 / 5)
  assert sum(row.num_rows for row in reliability(confidence, correct)) == 5


def test_agreement():
  answers = np.array([[3, 3, 3, 8], [-1, 5, 6, -1]])
  np.testing.assert_allclose(agreement_share(answers), [[0.75] * 3 + [0.25], [np.nan, 0.25, 0.25, np.nan]])


def test_prompts_not_samples_are_resampled():
  rng = np.random.default_rng(2)
  confidence, correct = rng.random(60), (rng.random(60) < 0.5).astype(float)
  ten = [np.repeat(x[:, None], 10, axis=1) for x in (confidence, correct)]
  for score in (brier_score, calibration_error):
    assert score(*ten) == pytest.approx(score(confidence, correct))


def test_no_interval_of_zero_width():
  sure = np.ones(30)
  assert brier_score(sure, sure) == pytest.approx(wilson_interval(0, 30))
  assert calibration_error(sure, sure) == pytest.approx(wilson_interval(0, 30))


@pytest.mark.parametrize("shift, truth", [(0.0, 0.0), (0.2, 0.2)])
def test_coverage(shift, truth):
  """Confidences in the middle of their bins, verdicts that come `shift` more often."""
  rng = np.random.default_rng(3)
  hits = dict(ece=0, brier=0)
  trials = 100
  for seed in range(trials):
    confidence = np.repeat(rng.integers(1, 7, 80)[:, None] / 10 - 0.05, 3, axis=1)
    right = confidence + shift
    correct = (rng.random(right.shape) < right).astype(float)
    found = calibration_error(confidence, correct, seed=seed, num_resamples=500)
    hits["ece"] += found.low <= truth <= found.high
    found = brier_score(confidence, correct, seed=seed, num_resamples=500)
    levels = np.arange(1, 7) / 10 - 0.05
    chance = levels + shift
    hits["brier"] += found.low <= np.mean(chance * (1 - chance) + shift**2) <= found.high
  assert hits["ece"] >= 93 and hits["brier"] >= 90


@pytest.mark.parametrize(
  "options, message",
  [
    (dict(bins="equal_mas"), "did you mean 'equal_mass'"),
    (dict(num_bins=0), "num_bins must be >= 1"),
    (dict(confidence=CONFIDENCE * 2), r"confidence must lie in \[0, 1\]"),
    (dict(confidence=np.full(5, np.nan)), "no row has both"),
    (dict(confidence=CONFIDENCE[:3]), None),
  ],
)
def test_errors(options, message):
  with pytest.raises((ValueError, TypeError), match=message):
    calibration_error(**(dict(confidence=CONFIDENCE, correct=CORRECT) | options))
