"""What leaves the loss, what loses its credit, and what is weighted down."""

import math

import jax
import numpy as np
import pytest

from rlvr_jax import credit


@pytest.mark.parametrize(
  "cap, want", [(True, [0, -0.5, -1, -1]), (False, [0, -0.5, -1, -1.5])], ids=["trl, openrlhf", "verl, nemo"]
)
def test_overlong_penalty(cap, want, advantages):
  """A limit of 10 and a cache of 2, in completions of 8, 9, 10 and 11 tokens; one without a verdict."""
  mask = np.arange(12) < np.array([8, 9, 10, 11, 11])[:, None]
  rows = [True] * 4 + [False]
  got = advantages(credit.overlong_penalty(10, 2, cap), [1] * 5, action_mask=mask, row_mask=rows)
  np.testing.assert_array_equal(got, [*(np.array(want) + 1), 0])


def test_truncated_rows_leave_the_loss_but_not_the_baseline(make_rollout, apply):
  part = credit.chain(("filter", credit.overlong_filter()), ("loo", credit.leave_one_out()))
  got, after = apply(part, make_rollout([1, 0, 0], truncated=[False, True, False]))
  np.testing.assert_array_equal(got, [1, -0.5, -0.5])
  np.testing.assert_array_equal(np.any(after.loss_mask, axis=1), [True, False, True])


def test_groups_without_variation_leave_the_loss(make_rollout, apply):
  """By the reward, the first group varies; by the component, the second; equal up to 1e-8 is equal."""
  exact = np.array([1, 1 + 1e-8, 0, 1], np.float32)
  rollout = make_rollout([1, 0.9, 0.7, 0.7], group_id=[0, 0, 1, 1], rewards=dict(exact=exact))
  got, after = apply(credit.keep_mixed_groups(), rollout)
  np.testing.assert_array_equal(got, rollout.reward)
  np.testing.assert_array_equal(np.any(after.loss_mask, axis=1), [True, True, False, False])
  _, after = apply(credit.keep_mixed_groups("exact"), rollout)
  np.testing.assert_array_equal(np.any(after.loss_mask, axis=1), [False, False, True, True])
  _, after = apply(credit.keep_mixed_groups(tolerance=0.5), rollout)
  assert not np.any(after.loss_mask)


def test_filters_add_up(make_rollout, apply):
  part = credit.chain(("a", credit.overlong_filter()), ("b", credit.keep_mixed_groups()))
  rollout = make_rollout([1, 0, 1, 1], group_id=[0, 0, 1, 1], truncated=[True, False, False, False])
  np.testing.assert_array_equal(np.any(apply(part, rollout)[1].loss_mask, axis=1), [False, True, False, False])


@pytest.mark.parametrize("share", [0.2, 0.35, 0.5, 1.0])
def test_entropy_mask_keeps_what_reaches_the_quantile_of_all_loss_tokens(share, make_rollout, apply):
  rng = np.random.default_rng(0)
  entropy, mask = rng.uniform(size=(6, 7)).astype(np.float32), rng.uniform(size=(6, 7)) < 0.6
  rollout = make_rollout([1.0] * 6, action_mask=mask, row_mask=np.arange(6) != 2, stats={"old.entropy": entropy})
  want = rollout.loss_mask & (entropy >= np.quantile(entropy[rollout.loss_mask], np.float32(1 - share)))
  got, after = apply(credit.entropy_mask(share), rollout)
  np.testing.assert_array_equal(after.loss_mask, want)
  got, after = apply(credit.entropy_mask(share, divisor="all"), rollout, np.ones((6, 7)))
  np.testing.assert_array_equal(got, want)
  np.testing.assert_array_equal(after.loss_mask, rollout.loss_mask)


def test_the_quantile_is_between_its_neighbours():
  """Of (1, 2, 4, 8) at .5: position 1.5, so 3; torch.quantile and np.quantile agree."""
  from rlvr_jax.credit.entropy_mask import quantile

  values, mask = np.array([8, np.nan, 1, 4, 2], np.float32), np.array([True, False, True, True, True])
  for share, want in [(0.5, 3), (0, 1), (1, 8), (0.9, 6.8)]:
    np.testing.assert_allclose(quantile(values, mask, share), want, rtol=1e-6)
  assert quantile(values, mask & False, 0.5) == np.inf


def covariance_case(make_rollout):
  """40 loss tokens of mixed covariance, and some that are none."""
  rng = np.random.default_rng(0)
  mask = np.arange(7) >= 2
  rollout = make_rollout(
    [0.0] * 8, action_mask=np.broadcast_to(mask, (8, 7)), tokens=rng.integers(0, 99, (8, 7)),
    stats={"old.log_probs": rng.normal(size=(8, 7))},
  )  # fmt: skip
  advantage = rng.normal(size=(8, 7)).astype(np.float32) * mask
  log_probs = rollout.stats["old.log_probs"]
  cov = (advantage - advantage[:, 2:].mean()) * (log_probs - log_probs[:, 2:].mean())
  return rollout, advantage, np.where(mask, cov, -np.inf)


def test_clip_cov_detaches_its_share_of_tokens_between_the_bounds(make_rollout, apply):
  rollout, advantage, cov = covariance_case(make_rollout)
  qualify = (cov > 0.1) & (cov < 2)
  assert 6 < qualify.sum() < 40
  got, after = apply(credit.clip_cov(0.15, low=0.1, high=2), rollout, advantage)
  detached = (got == 0) & (advantage != 0)
  assert detached.sum() == 6 and not np.any(detached & ~qualify)  # floor(.15 · 40)
  np.testing.assert_array_equal(got[~detached], advantage[~detached])
  np.testing.assert_array_equal(after.loss_mask, rollout.loss_mask)
  got, _ = apply(credit.clip_cov(1.0, low=0.1, high=2), rollout, advantage)
  np.testing.assert_array_equal((got == 0) & (advantage != 0), qualify)


def test_clip_cov_draws_anew_at_every_step_and_for_every_seed(make_rollout):
  rollout, advantage, _ = covariance_case(make_rollout)
  update = jax.jit(credit.clip_cov(0.15, low=-9, high=9).update)
  first, state, _ = update(advantage, {"count": 0}, rollout)
  again, _, _ = update(advantage, {"count": 0}, rollout)
  second, state, _ = update(advantage, state, rollout)
  other, _, _ = jax.jit(credit.clip_cov(0.15, low=-9, high=9, seed=1).update)(advantage, {"count": 0}, rollout)
  np.testing.assert_array_equal(first, again)
  assert state["count"] == 2
  assert np.any(first != second) and np.any(first != other)


def test_draws_are_uniform_and_follow_the_content_of_the_row(make_rollout):
  from rlvr_jax.credit.clip_cov import row_draws

  rng = np.random.default_rng(0)
  rollout = make_rollout([0.0] * 64, action_mask=np.ones((64, 32)), tokens=rng.integers(0, 9, (64, 32)))
  tokens = rollout.tokens
  tokens[1], tokens[2] = tokens[0], tokens[0, ::-1]  # the same row, and its tokens in another order
  draws = np.asarray(jax.jit(row_draws)(jax.random.key(0), rollout))
  np.testing.assert_array_equal(draws[0], draws[1])
  assert np.all(draws[0] != draws[2])
  assert np.max(np.abs(np.sort(draws[2:].ravel()) - np.linspace(0, 1, 62 * 32))) < 0.04  # Kolmogorov-Smirnov: p > .01


def test_kl_cov_marks_the_highest_covariances(make_rollout, apply):
  rollout, advantage, cov = covariance_case(make_rollout)
  got, after = apply(credit.kl_cov(0.15), rollout, advantage)
  want = cov >= np.sort(cov.ravel())[-6]
  assert want.sum() == 6
  np.testing.assert_array_equal(after.stats["credit.kl_cov"], want)
  np.testing.assert_array_equal(got, advantage)


LOG_RATIO = np.log([[1, 2, 0.5, 1], [1, 3, 0.9, 1], [1, 8, 1 / 8, 4]])  # the first token is prompt
CORRECTED = {  # products: 1, 2.7, 4; geometric means: 1, 1.39, 1.59
  "token": (dict(), [[2, 0.5, 1], [2, 0.9, 1], [2, 1 / 8, 2]]),
  "token, both bounds": (dict(low=0.7, high=1.5), [[1.5, 0.7, 1], [1.5, 0.9, 1], [1.5, 0.7, 1.5]]),
  "icepop": (dict(mode="mask", low=0.5, high=5), [[2, 0.5, 1], [3, 0.9, 1], [0, 0, 4]]),
  "sequence": (dict(level="sequence"), [[1] * 3, [2] * 3, [2] * 3]),
  "trl": (dict(level="sequence", mode="mask", high=3), [[1] * 3, [2.7] * 3, [0] * 3]),
  "geometric": (dict(level="geometric", mode="mask", high=1.5), [[2, 0.5, 1], [3, 0.9, 1], [0] * 3]),
  "clipped": (dict(high=9, max_log_ratio=math.log(4)), [[2, 0.5, 1], [3, 0.9, 1], [4, 1 / 4, 4]]),
  "mean one": (dict(high=9, normalise=True), np.exp(LOG_RATIO[:, 1:]) * 9 / (3.5 + 4.9 + 12.125)),
}


@pytest.mark.parametrize("kwargs, weight", CORRECTED.values(), ids=CORRECTED)
def test_sampler_correction(kwargs, weight, make_rollout, apply):
  mask = np.array([[False, True, True, True]] * 3)
  stats = {"old.log_probs": LOG_RATIO - 1, "behaviour.log_probs": np.full((3, 4), -1.0)}
  rollout = make_rollout([0.0] * 3, action_mask=mask, stats=stats)
  got, after = apply(credit.sampler_correction(**kwargs), rollout, np.full((3, 4), -2))
  np.testing.assert_allclose(got[:, 1:], -2 * np.array(weight), rtol=1e-5)
  np.testing.assert_array_equal(after.loss_mask, mask)


def test_off_policy_rows_of_negative_credit_are_silenced(make_rollout, apply):
  """Means of log μ - log π over two actions: .3, .3 and -.3."""
  stats = {"old.log_probs": [[9, -1, -1]] * 3, "behaviour.log_probs": [[0, -0.5, -0.9]] * 2 + [[0, -1.5, -1.1]]}
  rollout = make_rollout([0.0] * 3, stats=stats)
  given = [[0, -1, 2], [0, 1, 1], [0, -1, -1]]
  got, after = apply(credit.off_policy_sequence_mask(0.2), rollout, given)
  np.testing.assert_array_equal(got, [[0, 0, 2], [0, 1, 1], [0, -1, -1]])
  np.testing.assert_array_equal(after.loss_mask, rollout.loss_mask)
  np.testing.assert_array_equal(apply(credit.off_policy_sequence_mask(0.4), rollout, given)[0], given)
