import numpy as np
import pytest

from rlvr_jax.rewards import mix, verdict

OK, WRONG, ERROR = verdict(1.0, "ok", "yes"), verdict(0.0, "wrong", "no"), verdict(0.0, "error", "broken")


def test_mix_sums_weighted_components_and_keeps_them_raw():
  half = verdict(0.5, "ok")
  mixed = mix([dict(a=OK, b=half), dict(a=WRONG, b=OK)], dict(a=1.0, b=0.2))
  np.testing.assert_allclose(mixed.reward, [1.1, 0.2], rtol=1e-6)
  np.testing.assert_array_equal(mixed.rewards["b"], np.float32([0.5, 1.0]))
  assert mixed.reward.dtype == mixed.rewards["a"].dtype == np.float32
  assert mixed.row_mask.tolist() == [True, True]
  assert mixed.reasons[0]["a"] == "yes"


def test_an_error_masks_its_row_instead_of_scoring_it():
  mixed = mix([dict(a=OK, b=ERROR), dict(a=OK, b=OK)], dict(a=1.0, b=0.5))
  assert mixed.row_mask.tolist() == [False, True]
  assert mixed.reward.tolist() == [0.0, 1.5]
  assert mixed.has_verdict["b"].tolist() == [False, True]
  assert mixed.statuses["b"]["error"] == 1 and mixed.statuses["b"]["ok"] == 1


def test_an_error_of_a_component_with_weight_zero_costs_no_row():
  mixed = mix([dict(a=OK, b=ERROR)], dict(a=1.0, b=0.0))
  assert mixed.row_mask.tolist() == [True] and mixed.reward.tolist() == [1.0]


def test_a_timeout_is_a_verdict():
  mixed = mix([dict(a=verdict(0.0, "timeout"))], dict(a=1.0))
  assert mixed.row_mask.tolist() == [True] and mixed.statuses["a"]["timeout"] == 1


def test_bad_weights_and_components_are_named():
  with pytest.raises(ValueError, match="'a'.*finite"):
    mix([dict(a=OK)], dict(a=float("nan")))
  with pytest.raises(ValueError, match="row 0"):
    mix([dict(a=OK)], dict(b=1.0))


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -0.1, 1.1, "high", None])
def test_a_verdict_needs_a_reward_in_range(reward):
  with pytest.raises(ValueError, match="reward"):
    verdict(reward, "ok")


def test_a_verdict_needs_a_known_status_and_keeps_its_reason_short_and_printable():
  with pytest.raises(ValueError, match="status"):
    verdict(1.0, "fine")
  reason = verdict(0.0, "wrong", "\ud800" + "x" * 10**6).reason
  assert len(reason) < 400 and "more characters" in reason
  reason.encode("utf-8")
