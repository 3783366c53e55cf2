"""pass@k against every subset, avg@k against the definition."""

import itertools

import numpy as np
import pytest

from rlvr_jax.evals import avg_at_k, pass_at_k


def test_golden_value():
  assert pass_at_k(16, 3, 4) == pytest.approx(0.607143, abs=1e-6)


@pytest.mark.parametrize("n", range(1, 7))
def test_is_the_share_of_subsets_with_a_correct_sample(n):
  for c, k in itertools.product(range(n + 1), range(1, n + 1)):
    subsets = list(itertools.combinations([i < c for i in range(n)], k))
    assert pass_at_k(n, c, k) == pytest.approx(np.mean([any(s) for s in subsets]), abs=1e-12)


def test_prompts_with_different_numbers_of_samples():
  np.testing.assert_allclose(pass_at_k([4, 2, 8], [1, 2, 0], 2), [0.5, 1.0, 0.0])


def test_does_not_overflow():
  assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5)


@pytest.mark.parametrize(
  "n, c, k, message", [(4, 1, 5, "k = 5 is more than the 4"), (4, 5, 2, "num_correct"), (4, 1, 0, "k must be >= 1")]
)
def test_errors(n, c, k, message):
  with pytest.raises(ValueError, match=message):
    pass_at_k(n, c, k)


def test_avg_at_k_leaves_out_missing_scores():
  scores = np.array([[1.0, 0.0, np.nan], [np.nan] * 3, [0.5, 0.5, 0.5]])
  np.testing.assert_allclose(avg_at_k(scores), [0.5, np.nan, 0.5])
