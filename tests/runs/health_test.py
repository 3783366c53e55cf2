"""The reward-health alarm fires when a verifier fails too often, and only then."""

import pytest

from rlvr_jax.rewards.verdict import verdict
from rlvr_jax.runs.health import RewardHealth, RewardHealthError


def batch(ok=0, wrong=0, error=0, timeout=0, label="math"):
  kinds = [("ok", 1.0)] * ok + [("wrong", 0.0)] * wrong + [("error", 0.0)] * error + [("timeout", 0.0)] * timeout
  return [{label: verdict(r, s, f"{s} number {i}"), "other": verdict(1.0, "ok")} for i, (s, r) in enumerate(kinds)]


def test_wrong_answers_are_no_alarm():
  assert RewardHealth().observe(batch(ok=1, wrong=199)) is None


@pytest.mark.parametrize(
  "status, share, fires", [("error", 6, True), ("error", 5, False), ("timeout", 21, True), ("timeout", 20, False)]
)
def test_limit(status, share, fires):
  health = RewardHealth(max_error_share=0.05, max_timeout_share=0.2)
  verdicts = batch(ok=100 - share, **{status: share})
  if not fires:
    assert health.observe(verdicts) is None
    return
  with pytest.raises(RewardHealthError) as raised:
    health.observe(verdicts)
  message = str(raised.value)
  assert "'math'" in message and "other" not in message
  assert f"{status} share {share}.0% of the last 100 verdicts is above its limit" in message
  assert message.count(f"'{status} number") == 2


def test_few_verdicts():
  assert RewardHealth().observe(batch(ok=7, error=1)) is None
  with pytest.raises(RewardHealthError, match="100.0% of the last 8"):
    RewardHealth().observe(batch(error=8))
  assert RewardHealth().observe([]) is None


def test_window_moves():
  health = RewardHealth(window=100, min_verdicts=50)
  health.observe(batch(ok=996, error=4))
  assert health.shares()["health/math/error"] == pytest.approx(0.04)
  health.observe(batch(ok=100))
  assert health.shares()["health/math/error"] == 0.0
  with pytest.raises(RewardHealthError):  # 6 of the last 100, though of 1102 in all
    health.observe(batch(error=6))


def test_warns_once_per_onset():
  health = RewardHealth(window=64, mode="warn")
  assert "error share" in health.observe(batch(ok=32, error=32))
  assert health.observe(batch(ok=32, error=32)) is None
  assert health.observe(batch(ok=64)) is None
  assert "error share" in health.observe(batch(ok=32, error=32))


@pytest.mark.parametrize(
  "kwargs, message",
  [
    (dict(mode="ignore"), "mode must be"),
    (dict(max_error_share=5), "max_error_share must lie"),
    (dict(window=10), "min_verdicts <= window"),
  ],
)
def test_errors(kwargs, message):
  with pytest.raises(ValueError, match=message):
    RewardHealth(**kwargs)
