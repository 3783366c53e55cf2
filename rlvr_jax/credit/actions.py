"""Which tokens a row acted with, and how many: what lengths, sums over tokens and returns are taken over.

Not the loss mask: a filter that narrows the loss (`rollout.keeping`) shortens no completion and cuts no return.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlvr_jax.core import Rollout


def action_tokens(rollout: Rollout) -> Bool[Array, "n t"]:
  """Tokens the policy sampled, in rows with a verdict."""
  return rollout.action_mask & rollout.row_mask[:, None]


def num_actions(rollout: Rollout) -> Float[Array, "n"]:
  """How many of them a row has: its length in tokens."""
  return jnp.sum(action_tokens(rollout), axis=1, dtype=jnp.float32)


def log_ratio(
  log_probs: Float[Array, "n t"], other_log_probs: Float[Array, "n t"], rollout: Rollout
) -> Float[Array, "n t"]:
  """log p - log q on action tokens, 0 elsewhere, whatever stands there."""
  return jnp.where(action_tokens(rollout), log_probs - other_log_probs, 0.0)
