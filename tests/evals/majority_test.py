"""maj@k against every subset, and its limits."""

import itertools

import numpy as np
import pytest

from rlvr_jax.evals.majority import maj_at_k, majority_accuracy, vote_shares


def by_subsets(answers, correct, k):
  """The definition: every k-subset, every answer that is most frequent in it."""
  means = {a: np.mean([c for b, c in zip(answers, correct) if b == a]) for a in answers}
  found = []
  for chosen in itertools.combinations(answers, k):
    votes = [a for a in chosen if a != -1]
    most = max((votes.count(a) for a in votes), default=0)
    found.append(np.mean([means[a] for a in set(votes) if votes.count(a) == most]) if votes else 0.0)
  return np.mean(found)


@pytest.mark.parametrize("seed", range(6))
def test_is_the_mean_over_subsets(seed):
  rng = np.random.default_rng(seed)
  n = int(rng.integers(1, 9))
  answers = rng.integers(-1, 4, n)
  correct = np.where(answers == -1, 0.0, (answers + rng.integers(0, 2, n)) % 2)
  for k in range(1, n + 1):
    found = majority_accuracy(answers[None], correct[None], k)
    np.testing.assert_allclose(found, by_subsets(answers.tolist(), correct.tolist(), k), atol=1e-12)


def test_by_hand():
  # votes 2:1 for the right answer; a tie of 1:1; a tie of three of which one is right; nobody answers
  answers = np.array([[7, 7, 3], [7, 3, -1], [1, 2, 3], [-1, -1, -1]])
  correct = np.array([[1.0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]])
  np.testing.assert_allclose(majority_accuracy(answers, correct), [1, 1 / 2, 1 / 3, 0])
  # two of (7, 7, 3): 77 is right, 73 twice a tie: (1 + 1/2 + 1/2) / 3
  np.testing.assert_allclose(majority_accuracy(answers[:1], correct[:1], 2), [2 / 3])
  assert maj_at_k(answers, correct).value == pytest.approx(11 / 24)


def test_one_vote_is_the_accuracy_and_more_votes_help_only_a_leading_answer():
  correct = np.array([[1.0] * 5 + [0.0] * 3, [1.0] * 3 + [0.0] * 5])
  answers = np.where(correct > 0, 9, 4)
  np.testing.assert_allclose(majority_accuracy(answers, correct, 1), [5 / 8, 3 / 8])
  curve = np.array([majority_accuracy(answers, correct, k) for k in (1, 3, 5, 7)])
  assert (np.diff(curve[:, 0]) > 0).all() and (np.diff(curve[:, 1]) < 0).all()
  np.testing.assert_allclose(curve[-1], [1, 0])


def test_samples_without_verdict_do_not_vote():
  answers = np.array([[1, 1, 2, 2, 2], [1, 1, 2, 2, 2]])
  correct = np.array([[1.0, 1, 0, np.nan, np.nan], [np.nan] * 5])
  np.testing.assert_allclose(majority_accuracy(answers, correct), [1, np.nan])
  np.testing.assert_allclose(majority_accuracy(answers, correct, 3), [1, np.nan])
  np.testing.assert_allclose(majority_accuracy(answers, correct, 4), [np.nan, np.nan])
  assert maj_at_k(answers, correct).value == 1
  with pytest.raises(ValueError, match="no prompt has 4 samples"):
    maj_at_k(answers, correct, 4)


def test_large_prompts_are_exact_too():
  """512 samples, past any factorial: an answer held by all but one wins surely from 3 votes."""
  shares = vote_shares([511, 1], 3)
  np.testing.assert_allclose(shares, [1, 0], atol=1e-12)
  np.testing.assert_allclose(vote_shares([1] * 64, 32), np.full(64, 1 / 64))
  assert vote_shares([20, 14, 9, 3], 16, num_silent=18).sum() == pytest.approx(1, abs=1e-3)
  # two of 4 with two silent: neither votes with chance 1/6
  assert vote_shares([1, 1], 2, num_silent=2).sum() == pytest.approx(5 / 6)


def test_order_of_samples_and_names_of_answers_do_not_matter():
  rng = np.random.default_rng(0)
  answers = rng.integers(0, 3, (4, 6))
  correct = (answers == 1).astype(float)
  order = rng.permutation(6)
  np.testing.assert_allclose(
    majority_accuracy(answers, correct, 4), majority_accuracy((answers * 10 + 5)[:, order], correct[:, order], 4)
  )
  assert maj_at_k(answers, correct > 0, 4) == maj_at_k(answers, correct, 4)


@pytest.mark.parametrize(
  "answers, correct, k, message",
  [
    ([[0, 1]], [[1.0, 0.0]], 3, r"k must lie in \[1, 2\]"),
    ([[0, 1]], [[1.0, 0.0]], 0, "k must lie in"),
    ([[0, -2]], [[1.0, 0.0]], None, "ids >= 0"),
    ([[0, -1]], [[1.0, 1.0]], None, "without an answer"),
    ([[0, 1]], [[1.0, 2.0]], None, r"in \[0, 1\]"),
    ([[0, 1, 2]], [[1.0, 0.0]], None, r"\[prompts, samples\]"),
  ],
)
def test_errors(answers, correct, k, message):
  with pytest.raises((ValueError, TypeError), match=message if len(answers[0]) == len(correct[0]) else None):
    maj_at_k(np.array(answers), np.array(correct), k)
