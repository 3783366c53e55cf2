"""From rewards to token-level advantages: a chain of transforms, one file per idea. Pure."""

from rlvr_jax.credit.batch_normalise import batch_normalise
from rlvr_jax.credit.chain import chain, stateless
from rlvr_jax.credit.discounted_return import discounted_return
from rlvr_jax.credit.gae import gae
from rlvr_jax.credit.gpg import gpg
from rlvr_jax.credit.group_normalise import group_normalise
from rlvr_jax.credit.keep_mixed_groups import keep_mixed_groups
from rlvr_jax.credit.leave_one_out import leave_one_out
from rlvr_jax.credit.leave_one_out_normalise import leave_one_out_normalise
from rlvr_jax.credit.length_weighted_baseline import length_weighted_baseline
from rlvr_jax.credit.max_rl import max_rl
from rlvr_jax.credit.overlong_filter import overlong_filter
from rlvr_jax.credit.overlong_penalty import overlong_penalty
from rlvr_jax.credit.spread_over_tokens import spread_over_tokens
from rlvr_jax.credit.token_rewards import token_rewards
from rlvr_jax.credit.whiten import whiten

__all__ = [
  "batch_normalise", "chain", "discounted_return", "gae", "gpg", "group_normalise", "keep_mixed_groups",
  "leave_one_out", "leave_one_out_normalise", "length_weighted_baseline", "max_rl", "overlong_filter",
  "overlong_penalty", "spread_over_tokens", "stateless", "token_rewards", "whiten",
]  # fmt: skip
