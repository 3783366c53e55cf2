"""Rewards out of several components, out of agreement, and out of confidence."""

import numpy as np
import pytest

from rlvr_jax import credit

EXACT, FORM, GROUP_ID = np.array([1, 0, 0, 0.0]), np.array([5, 5, 0, 0.0]), [0, 0, 1, 1]


def gdpo_by_loop(weight, ddof, eps):
  """Of the two components above, group by group, then over the batch; `weight` says how often a row counts there."""
  total = np.zeros(4)
  for scale, reward in [(1.0, EXACT), (0.5, FORM)]:
    for rows in ([0, 1], [2, 3]):
      std = reward[rows].std(ddof=ddof)
      total[rows] += scale * (reward[rows] - reward[rows].mean()) / (std + eps)
  mean = np.sum(weight * total) / np.sum(weight)
  variance = np.sum(weight * (total - mean) ** 2) / (np.sum(weight) - ddof)
  return (total - mean) / (np.sqrt(variance) + eps)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("whiten, weight", [("sequence", [1, 1, 1, 1]), ("token", [1, 2, 3, 3])])
def test_gdpo_against_a_loop(whiten, weight, ddof, advantages):
  got = advantages(
    credit.gdpo(dict(exact=1.0, form=0.5), whiten, eps=1e-4, ddof=ddof), [9.0] * 4, group_id=GROUP_ID,
    action_mask=np.arange(3) < np.array([1, 2, 3, 3])[:, None],
    rewards=dict(exact=EXACT.astype(np.float32), form=FORM.astype(np.float32), unused=np.full(4, np.nan, np.float32)),
  )  # fmt: skip
  np.testing.assert_allclose(got, gdpo_by_loop(np.array(weight), ddof, 1e-4), rtol=1e-5, atol=1e-6)


def test_gdpo_gives_exactly_zero_where_nothing_varies(advantages):
  """The mean over rows of the normalised components is 0 but for rounding, which is not subtracted."""
  exact = np.array([0.1, 0.7, 0.3, 0.9, 0.2, 0.3, 0.3], np.float32)
  part, group_id = credit.gdpo(dict(exact=1.0)), [0] * 5 + [1] * 2
  got = advantages(part, [0.0] * 7, group_id=group_id, rewards=dict(exact=exact))
  np.testing.assert_array_equal(got[5:], 0)
  assert np.all(got[:5] != 0)


def test_gdpo_keeps_apart_what_a_sum_would_merge(advantages):
  """(0, 1, 2) and (2, 1, 0) with unequal scales: the sum is equal for all rows, the components are not."""
  rewards = dict(a=np.array([0, 1, 2, 0], np.float32), b=np.array([20, 10, 0, 20], np.float32))
  got = advantages(credit.gdpo(dict(a=1.0, b=0.5)), [0.0] * 4, rewards=rewards)
  assert got[0] < got[1] < got[2]


def test_the_majority_wins(advantages):
  """3 wins with two votes; a tie between 2 and 7 goes to 2; unread answers, the most frequent, never win."""
  answer, group_id = [3, 3, 1, -1, -1, -1, 7, 2, 7, 2, -1], [0] * 6 + [1] * 4 + [2]
  got = advantages(credit.majority_vote(), [0.5] * 11, group_id=group_id, answer_id=answer)
  np.testing.assert_array_equal(got, [1, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0])


def test_rows_without_a_verdict_do_not_vote(advantages):
  rows = [True, False, False, True, True]
  got = advantages(credit.majority_vote(), [0.0] * 5, answer_id=[1, 1, 1, 2, 2], row_mask=rows)
  np.testing.assert_array_equal(got, [0, 0, 0, 1, 1])


def test_large_answer_ids_stay_apart(advantages):
  """2**24 + 1 is not a float32."""
  got = advantages(credit.majority_vote(), [0.0] * 3, answer_id=[2**24, 2**24 + 1, 2**24 + 1])
  np.testing.assert_array_equal(got, [0, 1, 1])


@pytest.mark.parametrize(
  "kind, statistic, sign",
  [("self_certainty", "self_certainty", 1), ("negative_entropy", "entropy", -1), ("log_probs", "log_probs", 1)],
)  # fmt: skip
def test_confidence_is_a_mean_over_the_row(kind, statistic, sign, advantages):
  part = credit.confidence(kind, "reference")
  assert part.needs == (f"reference.{statistic}",)
  mask = [[False, True, True], [True, False, False], [False] * 3]
  got = advantages(part, [7.0] * 3, action_mask=mask, stats={part.needs[0]: [[9, 1, 2], [5, 9, 9], [9, 9, 9]]})
  np.testing.assert_allclose(got, [sign * 1.5, sign * 5, 0])
