"""Comparisons over seeds against hand numbers, enumeration and scipy; coverage with few seeds."""

import itertools

import numpy as np
import pytest
from scipy import stats

from rlvr_jax.evals.seeds import holm, mean_over_seeds, paired_over_seeds, smallest_p_value

BASELINE = np.array([0.40, 0.50, 0.45, 0.55])
OTHER = np.array([0.50, 0.56, 0.59, 0.65])


def test_by_hand():
  # differences .10 .06 .14 .10: mean .10, sd sqrt(.0032 / 3), t_3 = 3.18245
  found = paired_over_seeds(BASELINE, OTHER)
  half = 3.182446 * np.sqrt(0.0032 / 3) / 2
  np.testing.assert_allclose(found[:3], (0.10, 0.10 - half, 0.10 + half), rtol=1e-6)
  assert found.p_value == pytest.approx(2 / 16) and found.num_seeds == 4
  back = paired_over_seeds(OTHER, BASELINE)
  assert back[:3] == pytest.approx((-found.difference, -found.high, -found.low))
  assert back.p_value == found.p_value


def test_eight_of_one_sign():
  rng = np.random.default_rng(0)
  baseline = rng.uniform(0.2, 0.5, 8)
  assert paired_over_seeds(baseline, baseline + rng.uniform(0.01, 0.1, 8)).p_value == pytest.approx(2 / 256)
  assert smallest_p_value(8) == 2 / 256 and smallest_p_value(1) == 1


@pytest.mark.parametrize("s", [2, 5, 11])
def test_sign_flips_against_every_pattern(s):
  rng = np.random.default_rng(s)
  differences = rng.integers(-2, 5, s) / 16  # binary fractions: ties are exact
  sums = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=s)]
  expected = np.mean([x >= abs(differences.sum()) for x in sums])
  assert paired_over_seeds(np.full(s, 0.5), 0.5 + differences).p_value == pytest.approx(expected)


def test_t_against_scipy():
  found = paired_over_seeds(BASELINE, OTHER, test="t", level=0.9)
  oracle = stats.ttest_rel(OTHER, BASELINE)
  assert found.p_value == pytest.approx(oracle.pvalue)
  assert found[1:3] == pytest.approx(tuple(oracle.confidence_interval(0.9)))
  assert paired_over_seeds(BASELINE, BASELINE + 0.125, test="t").p_value == 2 / 16  # equal differences have no t
  assert paired_over_seeds(BASELINE, BASELINE, test="t").p_value == 1


def test_bootstrap_is_too_narrow_for_few_seeds_and_t_is_not():
  rng = np.random.default_rng(1)
  trials, hits = 150, dict(t=0, bootstrap=0)
  for values in rng.normal(0.1, 0.05, (trials, 4)):
    for method in hits:
      found = mean_over_seeds(values, method=method, bounds=(-1.0, 1.0))
      hits[method] += found.low <= 0.1 <= found.high
  assert 0.91 <= hits["t"] / trials <= 0.99
  assert hits["bootstrap"] / trials < 0.85


def test_false_claims_are_as_rare_as_said():
  rng = np.random.default_rng(2)
  p = np.array([paired_over_seeds(*pair).p_value for pair in rng.normal(0.5, 0.05, (200, 2, 6))])
  assert np.mean(p <= 0.05) <= 0.08


def test_one_seed_says_nothing_of_others():
  found = paired_over_seeds(np.array([0.2]), np.array([0.9]))
  assert found.difference == pytest.approx(0.7) and found.p_value == 1 and found.num_seeds == 1
  assert np.isnan(found.low) and np.isnan(found.high)


def test_equal_differences_still_have_a_width():
  found = paired_over_seeds(np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.3, 0.4]))  # .1 thrice, but for rounding
  assert found.low < -0.1 and found.high > 0.3
  assert mean_over_seeds(np.ones(5)).low < 0.6


def test_interval_is_cut_where_no_mean_can_lie():
  assert mean_over_seeds(np.array([1.0, 1.0, 0.7])).high == 1
  assert mean_over_seeds(np.array([1.0, 1.0, 0.7]), bounds=(-np.inf, np.inf)).high > 1


def test_holm_by_hand():
  # sorted .01 .02 .03 .04 times 4 3 2 1: .04 .06 .06 .04, made increasing
  np.testing.assert_allclose(holm([0.04, 0.01, 0.03, 0.02]), [0.06, 0.04, 0.06, 0.06])
  np.testing.assert_allclose(holm([0.5, 0.6, 0.001]), [1, 1, 0.003])
  np.testing.assert_allclose(holm([0.3]), [0.3])
  assert holm([]).shape == (0,)


def test_holm_is_the_step_down():
  """adjusted <= a exactly where the procedure at level a rejects."""
  p = np.random.default_rng(3).uniform(0, 0.1, 7)
  for a in (0.01, 0.05, 0.2):
    rejected = np.zeros(7, bool)
    for step, i in enumerate(np.argsort(p)):
      if p[i] > a / (7 - step):
        break
      rejected[i] = True
    np.testing.assert_array_equal(holm(p) <= a, rejected)


@pytest.mark.parametrize(
  "call, message",
  [
    (lambda: paired_over_seeds(BASELINE, OTHER, method="boot"), "did you mean 'bootstrap'"),
    (lambda: paired_over_seeds(BASELINE, OTHER, test="signflip"), "did you mean 'sign_flip'"),
    (lambda: mean_over_seeds(np.array([0.1, np.nan])), "finite value per seed"),
    (lambda: mean_over_seeds(np.array([0.1, 1.2])), r"must lie in \(0.0, 1.0\)"),
    (lambda: holm([0.1, float("nan")]), r"in \[0, 1\]"),
  ],
)
def test_errors(call, message):
  with pytest.raises(ValueError, match=message):
    call()


def test_seeds_must_pair():
  with pytest.raises((ValueError, TypeError)):
    paired_over_seeds(BASELINE, OTHER[:3])
