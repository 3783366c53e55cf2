"""Sampling: groups and turns from a model, with the log-probabilities of what was really drawn from."""

from rlvr_jax.rollouts.groups import PromptArrays, groups
from rlvr_jax.rollouts.refill import Refilled, informative_groups, join_groups, merge_groups, refill, settle
from rlvr_jax.rollouts.turns import turns

__all__ = [
  "PromptArrays", "Refilled",
  "groups", "informative_groups", "join_groups", "merge_groups", "refill", "settle", "turns",
]  # fmt: skip
