"""A rollout written out by hand, and the credit a transform makes of it."""

import jax
import numpy as np
import pytest

from rlvr_jax.core import Rollout


def make_rollout(reward, group_id=None, action_mask=None, **changes):
  """One group and three tokens, the first of them prompt, unless said otherwise; lists become arrays."""
  n = len(reward)
  group_id = np.zeros(n, np.int32) if group_id is None else np.array(group_id, np.int32)
  mask = np.array([[False, True, True]] * n if action_mask is None else action_mask, bool)
  changes = {k: v if isinstance(v, dict) else np.asarray(v) for k, v in changes.items()}
  changes["stats"] = {k: np.asarray(v, np.float32) for k, v in changes.get("stats", {}).items()}
  rollout = Rollout(
    tokens=np.zeros(mask.shape, np.int32), valid_mask=np.ones_like(mask), action_mask=mask, prompt_id=group_id,
    group_id=group_id, row_mask=np.ones(n, bool), reward=np.array(reward, np.float32), rewards={},
    behaviour_log_probs=np.zeros(mask.shape, np.float32), truncated=np.zeros(n, bool),
    policy_version=np.zeros(n, np.int32), num_groups=int(group_id.max()) + 1,
  )  # fmt: skip
  return rollout.replace(**changes)


def apply(part, rollout, credit=None):
  """`(credit, rollout)` after the transform; the credit given to it is the reward, unless said otherwise."""
  credit = rollout.reward if credit is None else np.asarray(credit, np.float32)
  credit, _, rollout = jax.jit(part.update)(credit, part.init(), rollout)
  return np.asarray(credit), rollout


@pytest.fixture(name="make_rollout")
def _make_rollout():
  return make_rollout


@pytest.fixture(name="apply")
def _apply():
  return apply


@pytest.fixture
def advantages():
  """Of rewards, straight away: `advantages(part, reward, **changes)`."""
  return lambda part, *args, **kwargs: apply(part, make_rollout(*args, **kwargs))[0]
