"""From rewards to token-level advantages: a chain of transforms, one file per idea. Pure."""

from rlvr_jax.credit.batch_normalise import batch_normalise
from rlvr_jax.credit.chain import chain, stateless
from rlvr_jax.credit.clip_cov import clip_cov
from rlvr_jax.credit.confidence import confidence
from rlvr_jax.credit.discounted_return import discounted_return
from rlvr_jax.credit.entropy_mask import entropy_mask
from rlvr_jax.credit.gae import gae
from rlvr_jax.credit.gdpo import gdpo
from rlvr_jax.credit.gpg import gpg
from rlvr_jax.credit.group_normalise import group_normalise
from rlvr_jax.credit.keep_mixed_groups import keep_mixed_groups
from rlvr_jax.credit.kl_cov import kl_cov
from rlvr_jax.credit.kl_in_reward import kl_in_reward
from rlvr_jax.credit.leave_one_out import leave_one_out
from rlvr_jax.credit.leave_one_out_normalise import leave_one_out_normalise
from rlvr_jax.credit.length_weighted_baseline import length_weighted_baseline
from rlvr_jax.credit.majority_vote import majority_vote
from rlvr_jax.credit.max_rl import max_rl
from rlvr_jax.credit.minillm_return import minillm_return
from rlvr_jax.credit.off_policy_sequence_mask import off_policy_sequence_mask
from rlvr_jax.credit.optimal_advantage import optimal_advantage
from rlvr_jax.credit.overlong_filter import overlong_filter
from rlvr_jax.credit.overlong_penalty import overlong_penalty
from rlvr_jax.credit.pass_at_k import pass_at_k
from rlvr_jax.credit.sampler_correction import sampler_correction
from rlvr_jax.credit.spread_over_tokens import spread_over_tokens
from rlvr_jax.credit.teacher_log_ratio import teacher_log_ratio
from rlvr_jax.credit.token_rewards import token_rewards
from rlvr_jax.credit.whiten import whiten

__all__ = [
  "batch_normalise", "chain", "clip_cov", "confidence", "discounted_return", "entropy_mask", "gae", "gdpo", "gpg",
  "group_normalise", "keep_mixed_groups", "kl_cov", "kl_in_reward", "leave_one_out", "leave_one_out_normalise",
  "length_weighted_baseline", "majority_vote", "max_rl", "minillm_return", "off_policy_sequence_mask",
  "optimal_advantage", "overlong_filter", "overlong_penalty", "pass_at_k", "sampler_correction", "spread_over_tokens",
  "stateless", "teacher_log_ratio", "token_rewards", "whiten",
]  # fmt: skip
