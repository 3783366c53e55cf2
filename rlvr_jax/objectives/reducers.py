"""How per-token losses become one number: a weight per token and one divisor, from the masks of the whole batch.

With l the loss of a token, T_i the tokens of row i that count, B the rows with any, P the groups with any:

| reducer | value | known as |
|---|---|---|
| token_mean | Σ l / Σ T_i | DAPO; verl token-mean |
| token_sum | Σ l | verl token-sum |
| sequence_mean | (1/B) Σ_i (Σ_t l) / T_i | GRPO; verl seq-mean-token-mean |
| sequence_sum | (1/B) Σ_i Σ_t l | verl seq-mean-token-sum |
| length_weighted | (1/B) Σ_i T_i (Σ_t l) / T_i | LUSPO; the same number as sequence_sum |
| constant_length | Σ l / (B · length) | Dr. GRPO; verl seq-mean-token-sum-norm |
| prompt_mean | (1/P) Σ_p (Σ_{i in p} Σ_t l) / T_p | SkyRL prompt_mean |
| local_token_mean | (1/m) Σ_{j<m} (Σ_{i in j} Σ_t l) / T_j | TRL bnpo; verl without a batch count |

Rows that count for nothing are as if they were not there (verl). With `count_empty`, as in TRL, B counts every row with
a verdict and P every group with one, though masks have left them no token. Rows with an advantage of 0 count: dropping
them is a choice of the sampler or of the selection.
"""

import jax
import jax.numpy as jnp

from rlvr_jax.core import Reducer, Rollout, Weights, check_number

__all__ = [
  "constant_length", "length_weighted", "local_token_mean", "prompt_mean", "sequence_mean", "sequence_sum",
  "token_mean", "token_sum",
]  # fmt: skip


def _tokens_per_row(rollout: Rollout):
  return jnp.sum(rollout.loss_mask, axis=1, dtype=jnp.float32)


def _counted_rows(rollout: Rollout, count_empty: bool):
  return rollout.row_mask if count_empty else _tokens_per_row(rollout) > 0


def _num_rows(rollout: Rollout, count_empty: bool):
  return jnp.sum(_counted_rows(rollout, count_empty), dtype=jnp.float32)


def token_mean() -> Reducer:
  """Every token counts the same."""

  def reduce(rollout: Rollout) -> Weights:
    mask = rollout.loss_mask.astype(jnp.float32)
    return Weights(mask, jnp.sum(mask))

  return reduce


def token_sum() -> Reducer:
  """The plain sum: it grows with the batch, and with it the step."""

  def reduce(rollout: Rollout) -> Weights:
    return Weights(rollout.loss_mask.astype(jnp.float32), jnp.any(rollout.loss_mask).astype(jnp.float32))

  return reduce


def sequence_mean(count_empty: bool = False) -> Reducer:
  """Every row counts the same: the mean over rows of the mean over tokens."""

  def reduce(rollout: Rollout) -> Weights:
    per_row = 1.0 / jnp.maximum(_tokens_per_row(rollout), 1.0)
    return Weights(jnp.where(rollout.loss_mask, per_row[:, None], 0.0), _num_rows(rollout, count_empty))

  return reduce


def sequence_sum(count_empty: bool = False) -> Reducer:
  """The mean over rows of the sum over tokens."""
  return constant_length(1, count_empty)


def length_weighted(count_empty: bool = False) -> Reducer:
  """The mean over rows of the row's loss times its length: for a row's loss that stands on each of its tokens."""
  return sequence_sum(count_empty)


def constant_length(length: float, count_empty: bool = False) -> Reducer:
  """The sum over tokens by a constant, so that no row's length sets its weight. `length`: usually the token budget."""
  check_number("constant_length: length", length, above=0)

  def reduce(rollout: Rollout) -> Weights:
    return Weights(rollout.loss_mask.astype(jnp.float32), _num_rows(rollout, count_empty) * length)

  return reduce


def prompt_mean(count_empty: bool = False) -> Reducer:
  """Every group counts the same: the mean over groups of the mean over the group's tokens."""

  def reduce(rollout: Rollout) -> Weights:
    def over_groups(rows):
      return jax.ops.segment_sum(rows.astype(jnp.float32), rollout.group_id, rollout.num_groups)

    tokens = over_groups(_tokens_per_row(rollout))
    per_row = (1.0 / jnp.maximum(tokens, 1.0))[rollout.group_id]
    groups = jnp.sum(over_groups(_counted_rows(rollout, count_empty)) > 0, dtype=jnp.float32)
    return Weights(jnp.where(rollout.loss_mask, per_row[:, None], 0.0), groups)

  return reduce


def local_token_mean(num_parts: int) -> Reducer:
  """The mean over `num_parts` parts of each part's own token mean; part j is rows[j::num_parts], as a microbatch is.

  It depends on how the batch is split and on the order of its rows, as it does in the peers: for comparing with them.
  A part without a token counts as 0.
  """
  check_number("local_token_mean: num_parts", num_parts, minimum=1)

  def reduce(rollout: Rollout) -> Weights:
    tokens = _tokens_per_row(rollout)
    if tokens.shape[0] % num_parts:
      raise ValueError(f"local_token_mean: num_parts must divide the rows, {tokens.shape[0]}, got {num_parts}")
    per_part = 1.0 / jnp.maximum(jnp.sum(tokens.reshape(-1, num_parts), axis=0), 1.0)
    per_row = jnp.tile(per_part, tokens.shape[0] // num_parts)
    any_token = jnp.any(rollout.loss_mask).astype(jnp.float32)
    return Weights(jnp.where(rollout.loss_mask, per_row[:, None], 0.0), any_token * num_parts)

  return reduce
