"""Advantages by hand: the group (1, 0, 0, 0) has mean 1/4, population std sqrt(3)/4 = .433013, sample std 1/2."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import credit
from rlvr_jax.core import Rollout


def rollout(reward, group_id=None, row_mask=None, t=3):
  n = len(reward)
  group_id = [0] * n if group_id is None else group_id
  mask = jnp.ones((n, t), bool)
  return Rollout(
    tokens=jnp.zeros((n, t), jnp.int32), valid_mask=mask, action_mask=mask.at[:, 0].set(False),
    prompt_id=jnp.array(group_id), group_id=jnp.array(group_id),
    row_mask=jnp.ones(n, bool) if row_mask is None else jnp.array(row_mask),
    reward=jnp.array(reward, jnp.float32), rewards={}, behaviour_log_probs=jnp.zeros((n, t)),
    truncated=jnp.zeros(n, bool), policy_version=jnp.zeros(n, jnp.int32), num_groups=max(group_id) + 1,
  )  # fmt: skip


def advantages(part, *args, **kwargs):
  batch = rollout(*args, **kwargs)
  return np.asarray(part.update(batch.reward, part.init(), batch)[0])


PEERS = {  # ddof, eps -> advantage of the winner and of a loser
  "ours, open-instruct": (dict(), 1.732047, -0.577349),
  "open-instruct": (dict(eps=1e-8), 1.73205, -0.57735),
  "trl": (dict(ddof=1, eps=1e-4), 1.49970, -0.49990),
  "verl, skyrl, slime": (dict(ddof=1, eps=1e-6), 1.499997, -0.499999),
  "openrlhf": (dict(ddof=1, eps=1e-9), 1.5, -0.5),
  "dr grpo": (dict(scale=False), 0.75, -0.25),
}


@pytest.mark.parametrize("kwargs, winner, loser", PEERS.values(), ids=PEERS)
def test_group_normalise(kwargs, winner, loser):
  got = advantages(credit.group_normalise(**kwargs), [1, 0, 0, 0])
  np.testing.assert_allclose(got, [winner, loser, loser, loser], atol=2e-6)


def test_leave_one_out():
  np.testing.assert_allclose(advantages(credit.leave_one_out(), [1, 0, 0, 0]), [1, -1 / 3, -1 / 3, -1 / 3], atol=1e-6)


def test_nearly_equal_rewards_give_no_spike():
  """std = 5e-6 in exact arithmetic, so A = ±5/6 with eps 1e-6: neither NaN nor larger than a real signal."""
  got = advantages(credit.group_normalise(), [1, 1.00001])
  np.testing.assert_allclose(got, [-5 / 6, 5 / 6], atol=0.02)


@pytest.mark.parametrize("value", [0.3, 1 / 3, 0.7])
@pytest.mark.parametrize(
  "part",
  [
    credit.group_normalise(),
    credit.group_normalise(ddof=1),
    credit.group_normalise(scale=False),
    credit.leave_one_out(),
  ],
)
def test_equal_rewards_give_exactly_zero(part, value):
  """The float32 mean of seven of these is off by 3e-8 or more; divided by eps that would be a signal."""
  assert jnp.sum(jnp.full(7, value)) / 7 != jnp.float32(value)
  np.testing.assert_array_equal(advantages(part, [value] * 7), np.zeros(7))


@pytest.mark.parametrize("part", [credit.group_normalise(ddof=1), credit.leave_one_out()])
def test_a_lone_row_gets_zero_not_its_reward(part):
  np.testing.assert_array_equal(advantages(part, [1, 0.5], group_id=[0, 1]), np.zeros(2))


def test_rows_without_verdict_are_outside_the_statistics():
  got = advantages(credit.leave_one_out(), [1, 0, float("nan"), 0], row_mask=[True, True, False, True])
  np.testing.assert_allclose(got, [1, -0.5, 0, -0.5], atol=1e-6)


def test_spread_over_tokens_fills_the_loss_mask_only():
  got = advantages(credit.spread_over_tokens(), [2, 3], row_mask=[True, False])
  np.testing.assert_array_equal(got, [[0, 2, 2], [0, 0, 0]])


def test_chain_applies_in_order_and_merges_declarations():
  double = credit.stateless(lambda x, r: 2 * x, needs=("old.entropy",), min_group_size=2)
  plus = credit.stateless(lambda x, r: x + 1, needs=("old.entropy", "old.log_probs"))
  both = credit.chain(("double", double), ("plus", plus))
  assert both.needs == ("old.entropy", "old.log_probs") and both.min_group_size == 2
  np.testing.assert_array_equal(advantages(both, [3]), [7])
  assert set(both.init()) == {"double", "plus"}


def test_errors():
  with pytest.raises(ValueError, match="must differ, got .'a', 'a'"):
    credit.chain(("a", credit.leave_one_out()), ("a", credit.leave_one_out()))
  with pytest.raises(ValueError, match="ddof must be 0 or 1, got 2"):
    credit.group_normalise(ddof=2)
  with pytest.raises(ValueError, match="eps must be >= 0, got -1"):
    credit.group_normalise(eps=-1)
