"""Returns over tokens, advantages with a value, and whitening."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import credit
from rlvr_jax.credit.gae import generalised_advantage

TURNS = [[True, False, True]]  # an action, an observation, an action


def test_the_reward_is_received_on_the_last_action(advantages):
  mask = [[False, True, True, False], [True, False, True, False], [False] * 4, [True] * 4]
  got = advantages(credit.token_rewards(), [1, 2, 3, 4], action_mask=mask, row_mask=[True, True, True, False])
  np.testing.assert_array_equal(got, [[0, 0, 1, 0], [0, 0, 2, 0], [0] * 4, [0] * 4])


def test_a_filter_does_not_move_the_reward(make_rollout, apply):
  rollout = make_rollout([1], keep_mask=[[True, True, False]])
  np.testing.assert_array_equal(apply(credit.token_rewards(), rollout)[0], [[0, 0, 1]])


@pytest.mark.parametrize("carry, first", [(True, 0.5), (False, 0.0)])
def test_discounted_return_over_an_observation(carry, first, make_rollout, apply):
  """r = (0, 0, 1), γ = .5: one step from action to action; with the reset, nothing crosses the observation."""
  got, _ = apply(credit.discounted_return(0.5, carry), make_rollout([1], action_mask=TURNS), [[0, 9, 1]])
  np.testing.assert_array_equal(got, [[first, 0, 1]])


def test_discounted_return_by_hand(make_rollout, apply):
  rollout = make_rollout([0], action_mask=[[False, True, True, True]])
  got, _ = apply(credit.discounted_return(0.5), rollout, [[9, 1, 2, 4]])
  np.testing.assert_array_equal(got, [[0, 3, 4, 4]])  # 4; 2 + 4/2; 1 + 4/2


@pytest.mark.parametrize("carry, first", [(True, 0.5), (False, 0.6)])
def test_gae_over_an_observation(carry, first, make_rollout, apply):
  """r = (0, 0, 1), V = (.2, .9, .4), γ = 1, λ = .5. Carry: .4 - .2 + .5 · .6. Plain: A_2 = .4 - .9 + .5 · .6 = -.2,
  A_1 = .9 - .2 + .5 · -.2."""
  rollout = make_rollout([1], action_mask=TURNS, stats={"old.value": [[0.2, 0.9, 0.4]]})
  got, after = apply(credit.gae(lam=0.5, carry=carry), rollout, [[0, 0, 1]])
  np.testing.assert_allclose(got, [[first, 0, 0.6]], atol=1e-6)
  np.testing.assert_allclose(after.stats["credit.returns"], [[first + 0.2, 0, 1]], atol=1e-6)


def test_gae_with_a_discount_and_decay_per_step():
  """γ_t = .9^ρ, λ_t = .95^ρ with ρ = (1, 0, .5, 0, 1) (L01 of the golden values)."""
  rho, value = jnp.array([1, 0, 0.5, 0, 1]), jnp.array([0.2, 0.2, 0.5, 0.5, 0.7])
  got = generalised_advantage(jnp.array([0.0, 0, 0, 0, 1]), value, jnp.ones(5, bool), 0.9**rho, 0.95**rho)
  np.testing.assert_allclose(got, [0.609855, 0.736673, 0.436673, 0.5, 0.3], atol=1e-6)


def random_rows(seed=0, n=3, t=6):
  rng = np.random.default_rng(seed)
  return rng.normal(size=(n, t)).astype(np.float32), rng.normal(size=(n, t)).astype(np.float32)


def test_gae_with_lambda_one_is_the_monte_carlo_return_minus_the_value(make_rollout, apply):
  reward, value = random_rows()
  rollout = make_rollout([0] * 3, action_mask=np.ones((3, 6)), stats={"old.value": value})
  got, after = apply(credit.gae(), rollout, reward)
  returns = np.cumsum(reward[:, ::-1], axis=1)[:, ::-1]
  np.testing.assert_allclose(got, returns - value, atol=1e-5)
  np.testing.assert_allclose(after.stats["credit.returns"], returns, atol=1e-5)


@pytest.mark.parametrize("part", [credit.gae(0.9, 0.8), credit.discounted_return(0.9)], ids=["gae", "return"])
def test_inserted_observations_change_nothing_on_action_tokens(part, make_rollout, apply):
  reward, value = random_rows()
  columns = [0, 1, 3, 4, 7, 8]  # where the six actions stand among nine tokens
  wide = [np.full((3, 9), 5, np.float32) for _ in range(2)]
  for into, x in zip(wide, (reward, value)):
    into[:, columns] = x
  mask = np.zeros((3, 9), bool)
  mask[:, columns] = True
  short = make_rollout([0] * 3, action_mask=np.ones((3, 6)), stats={"old.value": value})
  long = make_rollout([0] * 3, action_mask=mask, stats={"old.value": wide[1]})
  np.testing.assert_allclose(apply(part, long, wide[0])[0][:, columns], apply(part, short, reward)[0], atol=1e-6)


def test_decoupled_and_length_adaptive_lambda(make_rollout, apply):
  """α = .5: rows of 4 and 2 actions have λ = 1 - 1/2 and, clipped from 1 - 1/1, 0. The returns keep λ = 1."""
  reward, value = random_rows(n=2, t=4)
  mask = [[True] * 4, [True, True, False, False]]
  rollout = make_rollout([0] * 2, action_mask=mask, stats={"old.value": value})
  got, after = apply(credit.gae(length_adaptive_alpha=0.5), rollout, reward)
  for row, lam in enumerate([0.5, 0.0]):
    want, _ = apply(credit.gae(lam=lam), rollout, reward)
    np.testing.assert_allclose(got[row], want[row], atol=1e-6)
  _, plain = apply(credit.gae(), rollout, reward)
  np.testing.assert_array_equal(after.stats["credit.returns"], plain.stats["credit.returns"])
  _, decoupled = apply(credit.gae(lam=0.3, value_lam=1.0), rollout, reward)
  np.testing.assert_array_equal(decoupled.stats["credit.returns"], plain.stats["credit.returns"])


WHITENED = {  # r = (1, 0, 0, 0) on two tokens each: mean 1/4, variance 3/16, or 3/14 with divisor 7
  "verl, trl": (credit.whiten(), 1.62019, -0.54006),
  "openrlhf": (credit.whiten(ddof=0, floor="clamp"), 1.73205, -0.57735),
  "added": (credit.whiten(eps=1 / 16, ddof=0), 1.5, -0.5),  # 3/4 / sqrt(3/16 + 1/16)
  "clamped": (credit.whiten(eps=1 / 4, ddof=0, floor="clamp"), 1.5, -0.5),  # 3/4 / sqrt(max(3/16, 1/4))
  "mean kept": (credit.whiten(ddof=0, shift=False), 1.98205, -0.32735),
}


@pytest.mark.parametrize("part, winner, loser", WHITENED.values(), ids=WHITENED)
@pytest.mark.parametrize("before", [True, False])
def test_whiten(part, winner, loser, before, make_rollout, apply):
  """On either side of spread_over_tokens."""
  rollout, spread = make_rollout([1, 0, 0, 0]), credit.spread_over_tokens()
  parts = [("whiten", part), ("spread", spread)]
  got, _ = apply(credit.chain(*(parts if before else parts[::-1])), rollout)
  np.testing.assert_allclose(got[:, 1:], [[winner] * 2] + [[loser] * 2] * 3, atol=1e-5)


@pytest.mark.parametrize("over", ["tokens", "rows"])
def test_whiten_on_ragged_rows_counts_tokens_or_rows(over, make_rollout, apply):
  """Rows of 1 and 3 tokens, credit 4 and 0: mean 1 and standard deviation √3 over tokens, 2 and 2 over rows."""
  rollout = make_rollout([4, 0], action_mask=[[True, False, False], [True] * 3])
  mean, std = {"tokens": (1, 3**0.5), "rows": (2, 2)}[over]
  part = credit.whiten(over=over, ddof=0)
  want = np.array([4 - mean, -mean]) / std
  np.testing.assert_allclose(apply(part, rollout)[0], want, rtol=1e-6)
  tokens, _ = apply(part, rollout, [[4, 9, 9], [0, 0, 0]])
  np.testing.assert_allclose(tokens, [[want[0], 0, 0], [want[1]] * 3], rtol=1e-6)


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_whitening_equal_credit_gives_exactly_zero_or_itself(eps, make_rollout, apply):
  rollout = make_rollout([0.3] * 7)
  np.testing.assert_array_equal(apply(credit.whiten(eps), rollout)[0], np.zeros(7))
  np.testing.assert_allclose(apply(credit.whiten(eps, shift=False), rollout)[0], np.full(7, 0.3), rtol=1e-6)
  np.testing.assert_array_equal(apply(credit.whiten(eps, over="rows"), make_rollout([2.0]))[0], [0])


def test_gradients_are_finite_with_nan_off_the_actions(make_rollout):
  """Credit is constant for the objective; a sweep may still ask how it depends on its numbers."""
  nan = jnp.nan
  rollout = make_rollout([1, 0], action_mask=[[False, True, True], [False, True, False]])
  stats = {"old.value": jnp.array([[nan, 0.1, 0.2], [nan, 0.3, nan]])}
  part = credit.chain(("token_rewards", credit.token_rewards()), ("gae", credit.gae(0.9, 0.9)), ("w", credit.whiten()))

  def total(value, reward):
    out, *_ = part.update(reward, part.init(), rollout.replace(stats={"old.value": value}))
    return jnp.sum(out**3)

  grads = jax.jit(jax.grad(total, argnums=(0, 1)))(stats["old.value"], rollout.reward)
  assert all(np.isfinite(g).all() for g in grads)
