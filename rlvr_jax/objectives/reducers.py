"""How per-token losses become one number: a weight per token and one divisor, from the masks of the whole batch.

With l the loss of a token, T_i the tokens of row i that count, B the rows with any, P the groups with any:

| reducer | value | known as |
|---|---|---|
| token_mean | Σ l / Σ T_i | DAPO; verl token-mean |
| sequence_mean | (1/B) Σ_i (Σ_t l) / T_i | GRPO; verl seq-mean-token-mean |
| sequence_sum | (1/B) Σ_i Σ_t l | verl seq-mean-token-sum |
| constant_length | Σ l / (B · length) | Dr. GRPO; verl seq-mean-token-sum-norm |
| prompt_mean | (1/P) Σ_p (Σ_{i in p} Σ_t l) / T_p | SkyRL prompt_mean |

Rows that count for nothing are as if they were not there (verl); TRL keeps rows with no token in B. Rows with an
advantage of 0 count: dropping them is a choice of the sampler or of the selection.
"""

import jax
import jax.numpy as jnp

from rlvr_jax.core import Reducer, Rollout, Weights

__all__ = ["constant_length", "prompt_mean", "sequence_mean", "sequence_sum", "token_mean"]


def _tokens_per_row(rollout: Rollout):
  return jnp.sum(rollout.loss_mask, axis=1, dtype=jnp.float32)


def _num_rows(rollout: Rollout):
  return jnp.sum(_tokens_per_row(rollout) > 0, dtype=jnp.float32)


def token_mean() -> Reducer:
  """Every token counts the same."""

  def reduce(rollout: Rollout) -> Weights:
    mask = rollout.loss_mask.astype(jnp.float32)
    return Weights(mask, jnp.sum(mask))

  return reduce


def sequence_mean() -> Reducer:
  """Every row counts the same: the mean over rows of the mean over tokens."""

  def reduce(rollout: Rollout) -> Weights:
    per_row = 1.0 / jnp.maximum(_tokens_per_row(rollout), 1.0)
    return Weights(jnp.where(rollout.loss_mask, per_row[:, None], 0.0), _num_rows(rollout))

  return reduce


def sequence_sum() -> Reducer:
  """The mean over rows of the sum over tokens."""
  return constant_length(1)


def constant_length(length: float) -> Reducer:
  """The sum over tokens by a constant, so that no row's length sets its weight. `length`: usually the token budget."""
  if not length > 0:
    raise ValueError(f"constant_length: length must be > 0, got {length}")

  def reduce(rollout: Rollout) -> Weights:
    return Weights(rollout.loss_mask.astype(jnp.float32), _num_rows(rollout) * length)

  return reduce


def prompt_mean() -> Reducer:
  """Every group counts the same: the mean over groups of the mean over the group's tokens."""

  def reduce(rollout: Rollout) -> Weights:
    tokens = jax.ops.segment_sum(_tokens_per_row(rollout), rollout.group_id, rollout.num_groups)
    per_row = (1.0 / jnp.maximum(tokens, 1.0))[rollout.group_id]
    return Weights(jnp.where(rollout.loss_mask, per_row[:, None], 0.0), jnp.sum(tokens > 0, dtype=jnp.float32))

  return reduce
