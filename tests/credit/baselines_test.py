"""Credit per row by hand: the group (1, 0, 0, 0) has mean 1/4, population std sqrt(3)/4 = .433013, sample std 1/2."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import credit

GOLDEN = {  # on r = (1, 0, 0, 0) -> advantage of the winner and of a loser
  "ours, open-instruct": (credit.group_normalise(), 1.732047, -0.577349),
  "open-instruct": (credit.group_normalise(eps=1e-8), 1.73205, -0.57735),
  "trl": (credit.group_normalise(ddof=1, eps=1e-4), 1.49970, -0.49990),
  "verl, skyrl, slime": (credit.group_normalise(ddof=1, eps=1e-6), 1.499997, -0.499999),
  "openrlhf": (credit.group_normalise(ddof=1, eps=1e-9), 1.5, -0.5),
  "dr grpo": (credit.group_normalise(scale=False), 0.75, -0.25),
  "rloo": (credit.leave_one_out(), 1, -1 / 3),
  "nemo": (credit.leave_one_out_normalise(), 1, -0.57735),  # (0 - 1/3) / sqrt(1/3); the winner's others have std 0
  "batch": (credit.batch_normalise(eps=0), 1.73205, -0.57735),
  "gpg, verl": (credit.gpg(count="reward"), 3, -1),  # 4 rows, 1 reward that is not 0: alpha = 4
  "gpg, paper": (credit.gpg(), 0.75, -0.25),  # every row is of a group that teaches: alpha = 1
  "max_rl": (credit.max_rl(), 3, -1),
  "pass@k, verl": (credit.pass_at_k(), 1.999996, 0),  # (1 - 0) / (.5 + 1e-6)
  "pass@k unscaled": (credit.pass_at_k(scale=False), 1, 0),
  "pass@2": (credit.pass_at_k(form="unbiased", k=2), 2, 0),  # 2 C(3,1) / C(3,1)
}


@pytest.mark.parametrize("part, winner, loser", GOLDEN.values(), ids=GOLDEN)
def test_golden(part, winner, loser, advantages):
  np.testing.assert_allclose(advantages(part, [1, 0, 0, 0]), [winner, loser, loser, loser], atol=3e-6)


def test_leave_one_out_normalise_with_two_rows_is_the_difference(advantages):
  np.testing.assert_array_equal(advantages(credit.leave_one_out_normalise(), [1, 0]), [1, -1])


def test_leave_one_out_normalise_against_a_loop(advantages):
  reward, group_id = np.array([0.1, 0.9, 0.4, 1, 0.3, 0.2, 0.2]), np.array([0, 1, 0, 0, 1, 0, 1])
  want = []
  for i, r in enumerate(reward):
    others = np.array([x for j, x in enumerate(reward) if j != i and group_id[j] == group_id[i]])
    std = others.std(ddof=1)
    want.append((r - others.mean()) / (std + 1e-6 if std > 0 else 1))
  got = advantages(credit.leave_one_out_normalise(), reward, group_id=group_id.tolist())
  np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_winner_among_equals_is_not_scaled_by_rounding(advantages):
  """The float32 variance of six times .3 is not 0: divided by its root the winner would get thousands."""
  got = advantages(credit.leave_one_out_normalise(), [1] + [0.3] * 6)
  np.testing.assert_allclose(got[0], 0.7, atol=1e-6)


def test_batch_normalise_divides_by_the_spread_of_all_rows(advantages):
  """(1, 0), (1, 1): mean 3/4, deviations (1/4, -3/4, 1/4, 1/4), variance 3/16 or, with divisor 3, 1/4."""
  args = [1, 0, 1, 1], [0, 0, 1, 1]
  np.testing.assert_allclose(advantages(credit.batch_normalise(eps=0, ddof=1), *args), [1, -1, 0, 0], atol=1e-6)
  want = [0.5 / 0.433013, -0.5 / 0.433013, 0, 0]
  np.testing.assert_allclose(advantages(credit.batch_normalise(eps=0), *args), want, atol=1e-5)


def test_length_weighted_baseline(advantages):
  """Lengths 1, 2, 3, 4: the baseline is 1 · 1 / 10 where the first wins, 3 · 1 / 10 where the third does."""
  lengths = np.arange(5) <= np.array([1, 2, 3, 4] * 2)[:, None]
  reward, group_id = [1, 0, 0, 0, 0, 0, 1, 0], [0] * 4 + [1] * 4
  mask = lengths & (np.arange(5) > 0)
  got = advantages(credit.length_weighted_baseline(), reward, group_id=group_id, action_mask=mask)
  np.testing.assert_allclose(got, [0.9, -0.1, -0.1, -0.1, -0.3, -0.3, 0.7, -0.3], atol=1e-6)


def test_gpg_makes_up_for_groups_that_do_not_teach(advantages):
  """Four rows, two in the group that differs: alpha = 2. Of rewards that are not 0 there are three: alpha = 4/3."""
  args = [1, 0, 1, 1], [0, 0, 1, 1]
  np.testing.assert_allclose(advantages(credit.gpg(), *args), [1, -1, 0, 0])
  np.testing.assert_allclose(advantages(credit.gpg(count="reward"), *args), [2 / 3, -2 / 3, 0, 0], atol=1e-6)


def outcomes(size):
  """One group for every number of successes from 0 to `size`; and the number in each."""
  reward = [float(i < k) for k in range(size + 1) for i in range(size)]
  return reward, [k for k in range(size + 1) for _ in range(size)]


def expected_weight(credits, size, p):
  """E[(1/G) sum_i A_i s_i] per ∇p: s = 1/p for a success, -1/(1-p) for a failure."""
  reward = np.array(outcomes(size)[0]).reshape(size + 1, size)
  score = np.where(reward > 0, 1 / p, -1 / (1 - p))
  chance = [math.comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(size + 1)]
  return chance @ np.mean(credits.reshape(size + 1, size).astype(np.float64) * score, axis=1)


@pytest.mark.parametrize("truncation, want", [("g", 3.141173), ("g-1", 3.058819)])
def test_max_rl_weights_the_gradient_by_its_truncation(truncation, want, advantages):
  """(1 - .7^T) / .3 with T = 8 and T = 7, by enumeration of a group of 8."""
  got = expected_weight(advantages(credit.max_rl(truncation), *outcomes(8)), 8, 0.3)
  np.testing.assert_allclose(got, want, atol=2e-6)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_unbiased_pass_at_k_is_its_gradient(k, advantages):
  """d/dp of 1 - (1-p)^k = k (1-p)^(k-1), by enumeration of a group of 5."""
  got = expected_weight(advantages(credit.pass_at_k(form="unbiased", k=k), *outcomes(5)), 5, 0.3)
  np.testing.assert_allclose(got, k * 0.7 ** (k - 1), atol=1e-5)


def test_pass_at_k_pays_nobody_where_the_best_is_shared_or_alone(advantages):
  got = advantages(credit.pass_at_k(), [1, 1, 0, 1], group_id=[0, 0, 0, 1])
  np.testing.assert_array_equal(got, np.zeros(4))
  got = advantages(credit.pass_at_k(form="unbiased", k=3), [1, 0, 1], row_mask=[True, True, False])
  np.testing.assert_array_equal(got, np.zeros(3))  # two rows are no set of three


def test_nearly_equal_rewards_give_no_spike(advantages):
  """std = 5e-6 in exact arithmetic, so A = ±5/6 with eps 1e-6: neither NaN nor larger than a real signal."""
  got = advantages(credit.group_normalise(), [1, 1.00001])
  np.testing.assert_allclose(got, [-5 / 6, 5 / 6], atol=0.02)


PARTS = [
  credit.group_normalise(), credit.group_normalise(ddof=1), credit.group_normalise(scale=False),
  credit.leave_one_out(), credit.leave_one_out_normalise(), credit.batch_normalise(eps=0),
  credit.length_weighted_baseline(), credit.gpg(), credit.max_rl(), credit.max_rl("g"), credit.pass_at_k(),
  credit.optimal_advantage(),
]  # fmt: skip


@pytest.mark.parametrize("part", PARTS, ids=range(len(PARTS)))
def test_equal_rewards_and_a_lone_row_give_exactly_zero(part, advantages):
  """Each value seven times, whose float32 mean may be off by 3e-8 or more; divided by eps that would be a signal."""
  values = [0.3, 1 / 3, 0.7]
  assert all(jnp.sum(jnp.full(7, value)) / 7 != jnp.float32(value) for value in values)
  got = advantages(part, [*np.repeat(values, 7), 0.5], group_id=[*np.repeat([0, 1, 2], 7), 3])
  np.testing.assert_array_equal(got, np.zeros(22))


def test_a_lone_row_keeps_its_reward_where_asked(advantages):
  part = credit.group_normalise(ddof=1, lone="raw")
  got = advantages(part, [0.5, 1, 0, 7], group_id=[0, 1, 1, 2], row_mask=[True, True, True, False])
  np.testing.assert_allclose(got, [0.5, 0.7071058, -0.7071058, 0], atol=1e-6)
  assert part.min_group_size == 1 and credit.group_normalise().min_group_size == 2


def test_without_a_success_max_rl_is_zero_or_all_baseline(advantages):
  np.testing.assert_array_equal(advantages(credit.max_rl(), [0, 0]), [0, 0])
  np.testing.assert_array_equal(advantages(credit.max_rl("g"), [0, 0]), [-1, -1])


def test_rows_without_verdict_are_outside_the_statistics(advantages):
  got = advantages(credit.leave_one_out(), [1, 0, float("nan"), 0], row_mask=[True, True, False, True])
  np.testing.assert_allclose(got, [1, -0.5, 0, -0.5], atol=1e-6)
