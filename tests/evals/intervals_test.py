"""Intervals hold the truth about as often as they say, and never claim a width of zero from few prompts."""

import numpy as np
import pytest

from rlvr_jax.evals import bootstrap_interval, paired_bootstrap, ratio_interval, sign_flip_test, wilson_interval


def test_wilson_golden():
  # Newcombe 1998, doi:10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E, table I, method 3
  for successes, total, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
    found = wilson_interval(successes, total)
    np.testing.assert_allclose(found[1:], (low, high), atol=1e-4)
  with pytest.raises(ValueError, match="successes <= total"):
    wilson_interval(5, 4)


@pytest.mark.parametrize("p, truth", [(24, 0.3), (100, 0.5), (200, 0.08)])
def test_coverage_of_the_mean(p, truth):
  rng = np.random.default_rng(0)
  trials = 200
  hits = 0
  for seed in range(trials):
    values = (rng.random((p, 2)) < truth).mean(axis=1)
    found = bootstrap_interval(values, seed=seed, num_resamples=1000)
    assert found.low <= found.value <= found.high
    hits += found.low <= truth <= found.high
  assert 0.91 <= hits / trials <= 0.99


def test_prompts_not_samples_are_resampled():
  """Ten identical samples per prompt tell no more than one."""
  one = (np.random.default_rng(1).random(40) < 0.4).astype(float)
  ten = np.repeat(one[:, None], 10, axis=1).mean(axis=1)
  assert bootstrap_interval(one) == bootstrap_interval(ten)


def test_equal_values_still_have_a_width():
  for value in (0.0, 1.0):
    assert bootstrap_interval(np.full(30, value)) == pytest.approx(wilson_interval(30 * value, 30))
  same = paired_bootstrap(np.zeros(30), np.zeros(30))
  assert same.low == -same.high and 0.05 < same.high < 0.2


def test_pairing_narrows_the_interval():
  """Prompts that differ much among themselves but each improve by about the same."""
  rng = np.random.default_rng(2)
  before = rng.uniform(0, 0.8, 60)
  after = before + rng.normal(0.1, 0.02, 60)
  found = paired_bootstrap(before, after)
  assert found.value == pytest.approx(np.mean(after - before))
  assert 0.08 < found.low < found.high < 0.12
  assert bootstrap_interval(before).high - bootstrap_interval(before).low > 5 * (found.high - found.low)


def test_ratio_of_equal_weights_is_the_mean():
  values = np.random.default_rng(5).random(40)
  found = ratio_interval(values * 3, np.full(40, 3.0))
  np.testing.assert_allclose(found, bootstrap_interval(values), atol=5e-3)


def test_ratio_weighs_prompts_by_their_rows():
  """Prompts with ten rows do well, those with one row badly: (10 * .8 + .2) / 11."""
  rng = np.random.default_rng(6)
  weight = np.where(np.arange(60) % 2, 10.0, 1.0)
  total = weight * (np.where(weight > 1, 0.8, 0.2) + rng.uniform(-0.1, 0.1, 60))
  found = ratio_interval(total, weight)
  assert found.value == pytest.approx(total.sum() / weight.sum())
  assert 0.65 < found.low < found.value < found.high < 0.8
  more = ratio_interval(np.append(total, 0.0), np.append(weight, 0.0))  # no rows
  assert more == found
  assert ratio_interval(weight * 0.0, weight) == pytest.approx(wilson_interval(0, 60))
  with pytest.raises(ValueError, match="some > 0"):
    ratio_interval(total, weight * 0)
  with pytest.raises(ValueError, match=r"means must lie in \(0.0, 1.0\)"):
    ratio_interval(total * 2, weight)


def test_same_seed_same_interval():
  values = np.random.default_rng(3).random(50)
  assert bootstrap_interval(values, seed=4) == bootstrap_interval(values, seed=4)
  assert bootstrap_interval(values, seed=4) != bootstrap_interval(values, seed=5)


def test_sign_flip_is_exact_for_few_prompts():
  # all eight go up: of 2^8 patterns only all-plus and all-minus are as extreme
  assert sign_flip_test(np.full(8, 0.5)) == pytest.approx(2 / 256)
  assert sign_flip_test(np.zeros(8)) == pytest.approx(1.0)


@pytest.mark.parametrize("values", [np.array([]), np.array([0.5, np.nan]), np.array([[0.5]]), np.array([0.5, 1.5])])
def test_bad_values(values):
  with pytest.raises((ValueError, TypeError), match="bootstrap_interval"):  # TypeError: under the shape checker
    bootstrap_interval(values)
