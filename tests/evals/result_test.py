"""An evaluation: every sample accounted for, missing verdicts never zeros, two evaluations paired by prompt."""

import json

import numpy as np
import pytest

from rlvr_jax.evals import EvalResult, compare, summarise_eval


def evaluate(scores, ids=None, **kwargs) -> EvalResult:
  scores = np.asarray(scores, float)
  p = len(scores)
  statuses = {"exact": {"ok": 1}}
  ids = np.arange(p) if ids is None else ids
  return summarise_eval(ids, scores, np.full(scores.shape, 7), np.zeros(scores.shape, bool), statuses, **kwargs)


def test_measures():
  result = evaluate([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
  assert result.accuracy == pytest.approx(0.25)
  assert list(result.pass_at_k) == [1, 2, 4]
  assert result.pass_at_k[1].value == pytest.approx(0.25)
  assert result.pass_at_k[2].value == pytest.approx((1 / 2 + 5 / 6 + 0) / 3)
  assert result.pass_at_k[4].value == pytest.approx(2 / 3)
  assert result.mean_length == 7 and result.truncated_share == 0
  assert result.scalars()["eval/pass@2"] == result.pass_at_k[2].value


def test_graded_scores_are_averaged_but_correct_only_when_full():
  result = evaluate([[0.5, 1.0], [0.5, 0.5]])
  assert result.avg_at_k.value == pytest.approx(0.625)
  assert result.accuracy == pytest.approx(0.25)
  assert evaluate([[0.5, 1.0], [0.5, 0.5]], correct_at=0.5).accuracy == 1.0


def test_a_missing_verdict_is_left_out_and_counted():
  nan = np.nan
  result = evaluate([[1, nan], [1, 0], [nan, nan]])
  assert result.accuracy == pytest.approx((1.0 + 0.5) / 2)
  assert result.num_without_verdict == 3 and result.num_excluded_prompts == 1
  assert result.pass_at_k[2].value == 1.0  # only the prompt with two verdicts has an unbiased pass@2


def test_json_round_trip():
  result = evaluate([[1, np.nan], [0.5, 0]], settings=dict(temperature=0.7))
  back = EvalResult.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False)))
  np.testing.assert_array_equal(back.scores, result.scores)
  np.testing.assert_array_equal(back.prompt_ids, result.prompt_ids)
  rest = dict(scores=None, prompt_ids=None)
  assert back._replace(**rest) == result._replace(**rest)


@pytest.mark.parametrize(
  "scores, kwargs, message",
  [
    ([[1, 0]], dict(expected=(2, 2)), "expected prompts x samples"),
    ([[1, 0]], dict(ids=[0, 1]), "for 2 prompts"),
    ([[1], [0]], dict(ids=[3, 3]), "distinct"),
    ([[1.5]], {}, r"scores must lie in \[0, 1\]"),
    ([[np.nan]], {}, "no sample has a verdict"),
    (np.zeros((0, 2)), {}, "got \\(0, 2\\)"),
    ([1, 0], {}, "scores"),
  ],
)
def test_errors(scores, kwargs, message):
  with pytest.raises((ValueError, TypeError), match=message):  # TypeError: under the shape checker
    evaluate(scores, **kwargs)


def test_lengths_of_another_shape():
  with pytest.raises((ValueError, TypeError), match="lengths"):
    summarise_eval([0], np.ones((1, 2)), np.ones((1, 1), int), np.zeros((1, 2), bool), {})


def test_comparison_pairs_by_id_whatever_the_order():
  before = evaluate([[0], [0], [1], [0]], ids=[10, 11, 12, 13])
  after = evaluate([[1], [1], [1], [0]], ids=[11, 12, 10, 13])
  found = compare(before, after)
  assert found.before == 0.25 and found.after == 0.75 and found.difference == 0.5
  assert found.num_prompts == 4 and not found.excludes_zero()
  shuffled = evaluate([[1], [1], [0], [1]], ids=[10, 11, 13, 12])
  assert compare(before, shuffled) == found


def test_comparison_of_a_clear_gain():
  found = compare(evaluate(np.zeros((100, 1))), evaluate(np.arange(100)[:, None] % 2))
  assert found.excludes_zero() and found.low > 0.3 and found.p_value < 0.001


def test_comparison_leaves_out_prompts_without_a_verdict_in_either():
  found = compare(evaluate([[0], [np.nan], [0]]), evaluate([[1], [1], [np.nan]]))
  assert (found.num_prompts, found.num_excluded, found.difference) == (1, 2, 1.0)


def test_comparison_errors():
  with pytest.raises(ValueError, match="in only one of the two"):
    compare(evaluate([[0]], ids=[1]), evaluate([[0]], ids=[2]))
  with pytest.raises(ValueError, match="correct_at must be the same"):
    compare(evaluate([[0]]), evaluate([[0]], correct_at=0.5))
  with pytest.raises(ValueError, match="no prompt has a verdict in both"):
    compare(evaluate([[0], [np.nan]]), evaluate([[np.nan], [1]]))


def test_answers_add_votes_diversity_and_calibration():
  """Prompt 1: answers 5 5 6 6, of which 5 is right: two votes each, so half. Prompt 2: all the right answer."""
  answers = np.array([[5, 5, 6, 6], [9, 9, 9, 9]])
  result = evaluate([[1, 1, 0, 0], [1, 1, 1, 1]], answers=answers)
  assert result.of_answers["maj@4"].value == pytest.approx(0.75)
  assert result.of_answers["distinct_answers"].value == pytest.approx(1.5)
  assert result.of_answers["brier"].value == pytest.approx((0.25 + 0) / 2)  # half sure and half right; sure and right
  assert result.scalars()["eval/maj@4"] == pytest.approx(0.75)
  back = EvalResult.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False)))
  assert back.of_answers == result.of_answers


def test_one_sample_or_no_answers_add_nothing():
  assert evaluate([[1], [0]], answers=np.array([[1], [2]])).of_answers == {}
  assert evaluate([[1, 0]], answers=np.array([[-1, -1]])).of_answers == {}
