"""Diversity against hand numbers, enumeration and its limits."""

import itertools

import numpy as np
import pytest

from rlvr_jax.evals import wilson_interval
from rlvr_jax.evals.diversity import (
  distinct_answers,
  distinct_completions,
  distinct_n,
  effective_answers,
  mean_token_entropy,
  simpson_index,
)

ANSWERS = np.array([[4, 4, 7, 9], [2, 2, 2, 2], [5, -1, 6, -1]])


def test_answers_by_hand():
  assert distinct_answers(ANSWERS).value == pytest.approx((3 + 1 + 2) / 3)
  # pairs that differ: 5 of 6, 0 of 6, 1 of 1
  assert simpson_index(ANSWERS).value == pytest.approx((5 / 6 + 0 + 1) / 3)
  # 16 / (4 + 1 + 1), 1, 4 / (1 + 1)
  assert effective_answers(ANSWERS).value == pytest.approx((16 / 6 + 1 + 2) / 3)


def test_simpson_is_the_share_of_pairs_that_differ_and_needs_no_more_samples():
  row = np.array([0, 0, 1, 2, 2, 2])
  pairs = np.mean([a != b for a, b in itertools.combinations(row, 2)])
  assert simpson_index(row[None]).value == pytest.approx(pairs)
  # unbiased: the mean over all triples of the samples is the value of all six
  triples = np.array(list(itertools.combinations(row, 3)))
  assert simpson_index(triples).value == pytest.approx(pairs)


def test_prompts_with_too_few_answers_are_left_out():
  answers = np.array([[0, 1, 1], [-1, -1, -1], [3, -1, -1]])
  assert simpson_index(answers).value == pytest.approx(2 / 3)
  assert effective_answers(answers).value == pytest.approx((9 / 5 + 1) / 2)
  assert distinct_answers(answers).value == pytest.approx((2 + 0 + 1) / 3)
  with pytest.raises(ValueError, match="no prompt has enough"):
    simpson_index(answers[1:])


TOKENS = np.array([[[1, 2, 1, 2], [1, 2, 1, 9], [1, 2, 1, 2]], [[5, 5, 5, 0], [6, 0, 0, 0], [8, 8, 8, 8]]])
MASK = np.array([[[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]], [[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]], bool)


def test_sequences_by_hand():
  # 1212, 121, 1212: two of three; 555, 6 and one that is not there: two of two
  assert distinct_completions(TOKENS, MASK).value == pytest.approx((2 / 3 + 1) / 2)
  # words: {1, 2} of 11; {5, 6} of 4
  assert distinct_n(TOKENS, MASK, 1).value == pytest.approx((2 / 11 + 2 / 4) / 2)
  # pairs: {12, 21} of 3 + 2 + 3; {55} of 2
  assert distinct_n(TOKENS, MASK, 2).value == pytest.approx((2 / 8 + 1 / 2) / 2)
  # fours: 1212 twice; the second prompt has none
  assert distinct_n(TOKENS, MASK, 4).value == pytest.approx(1 / 2)


def test_a_sample_that_is_not_there_is_no_completion():
  tokens, mask = np.array([[[5, 5], [5, 5], [0, 0]]]), np.array([[[True, True], [True, True], [False, False]]])
  assert distinct_completions(tokens, mask).value == 1 / 2


def test_ngrams_do_not_span_a_gap():
  """Two turns of the policy with a tool's answer between them."""
  tokens, mask = np.array([[[1, 2, 9, 1, 2]]]), np.array([[[True, True, False, True, True]]])
  assert distinct_n(tokens, mask, 2).value == pytest.approx(1 / 2)  # 12 twice, and no 21
  split = np.array([[[1, 2, 9, 3, 4], [1, 2, 3, 4, 9]]])
  masks = np.array([[[True, True, False, True, True], [True, True, True, True, False]]])
  assert distinct_completions(split, masks).value == 1


def test_token_entropy_is_over_tokens_and_ignores_the_rest():
  entropy = np.array([[[0.2, 0.4, np.nan]], [[1.0, np.nan, np.inf]]])
  mask = np.array([[[True, True, False]], [[True, False, False]]])
  found = mean_token_entropy(entropy, mask, vocab_size=4)
  assert found.value == pytest.approx(1.6 / 3)
  assert 0 <= found.low <= found.value <= found.high <= np.log(4)


def test_intervals():
  rng = np.random.default_rng(0)
  answers = rng.integers(0, 3, (50, 8))
  for score in (distinct_answers, simpson_index, effective_answers):
    found = score(answers, seed=1)
    assert found.low < found.value < found.high
    assert found == score(answers, seed=1)
  same = np.zeros((30, 4), int)
  assert simpson_index(same) == pytest.approx(wilson_interval(0, 30))  # one answer everywhere, yet no zero width


@pytest.mark.parametrize(
  "call, message",
  [
    (lambda: distinct_answers(np.array([[0, -2]])), "ids >= 0"),
    (lambda: distinct_n(TOKENS, MASK, 0), "n must be >= 1"),
    (lambda: distinct_n(TOKENS, np.zeros_like(MASK), 1), "no prompt has enough"),
    (lambda: mean_token_entropy(np.full((1, 1, 2), 2.0), np.ones((1, 1, 2), bool), 4), r"\[0, log 4 = 1.386\]"),
    (lambda: mean_token_entropy(np.ones((1, 1, 2)), np.zeros((1, 1, 2), bool), 4), "no token"),
  ],
)
def test_errors(call, message):
  with pytest.raises(ValueError, match=message):
    call()


def test_shapes_must_agree():
  with pytest.raises((ValueError, TypeError)):
    distinct_completions(TOKENS, MASK[:, :2])
  with pytest.raises((ValueError, TypeError)):
    mean_token_entropy(np.ones((1, 2, 2)), np.ones((1, 1, 2), bool), 4)
