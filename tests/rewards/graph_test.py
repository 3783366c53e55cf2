"""Reward components of graph tasks, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlvr_jax.rewards.graph as room
from rlvr_jax.core import Rollout, build
from rlvr_jax.tasks.graph.types import GraphVerdict

# Four completions after one prompt token: right; wrong; cut off in the middle of an answer; empty but for its stop.
ACTIONS = np.array([[0, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 1], [0, 1, 0, 0, 0]], bool)
VERDICT = GraphVerdict(
  jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([True, True, False, False]), jnp.array([7, 2, -1, -1])
)  # fmt: skip
ROLLOUT = Rollout(
  tokens=jnp.zeros((4, 5), jnp.int32), valid_mask=jnp.asarray(ACTIONS | (np.arange(5) == 0)[None, :]),
  action_mask=jnp.asarray(ACTIONS), prompt_id=jnp.arange(4), group_id=jnp.zeros(4, jnp.int32),
  row_mask=jnp.ones(4, bool), reward=jnp.zeros(4), rewards={}, behaviour_log_probs=None,
  truncated=jnp.array([False, False, True, False]), policy_version=jnp.zeros(4, jnp.int32),
)  # fmt: skip

BY_HAND = [
  (dict(name="correct"), [1, 0, 0, 0]),
  (dict(name="parsable"), [1, 1, 0, 0]),
  (dict(name="finished"), [1, 1, 0, 1]),
  (dict(name="brevity", max_tokens=4), [1 / 2, 1 / 4, 0, 3 / 4]),
  (dict(name="brevity", max_tokens=2), [0, 0, 0, 1 / 2]),  # longer than the longest is no worse than it
]


@pytest.mark.parametrize("spec, expected", BY_HAND, ids=lambda x: x["name"] if isinstance(x, dict) else "")
def test_by_hand(spec, expected):
  found = build(room, spec)(VERDICT, ROLLOUT)
  assert found.shape == (4,) and found.dtype == jnp.float32
  np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_every_component_has_a_row():
  assert {spec["name"] for spec, _ in BY_HAND} == set(room.__all__)


def test_a_verdict_between_right_and_wrong_is_passed_on():
  part = VERDICT._replace(correct=jnp.array([0.25, 0.5, 0.75, 1.0], jnp.bfloat16))
  found = room.correct()(part, ROLLOUT)
  assert found.dtype == jnp.float32 and found.tolist() == [0.25, 0.5, 0.75, 1.0]


def test_what_is_read_and_not_said_costs_nothing():
  """Prompts and observations are valid and no actions: brevity counts actions alone."""
  longer = ROLLOUT.replace(valid_mask=jnp.ones((4, 5), bool))
  np.testing.assert_array_equal(room.brevity(4)(VERDICT, longer), room.brevity(4)(VERDICT, ROLLOUT))


def test_numbers_are_checked_and_may_be_swept():
  with pytest.raises(ValueError, match="brevity: max_tokens must be >= 1, got 0"):
    room.brevity(0)
  swept = jax.vmap(lambda most: room.brevity(most)(VERDICT, ROLLOUT))(jnp.array([4.0, 2.0]))
  np.testing.assert_allclose(swept, [BY_HAND[3][1], BY_HAND[4][1]], rtol=1e-6)


def test_an_unknown_component_is_named():
  with pytest.raises(ValueError, match=r"rewards\.graph has no 'corect'; did you mean 'correct'\?"):
    build(room, dict(name="corect"))
