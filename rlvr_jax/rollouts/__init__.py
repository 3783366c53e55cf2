"""Sampling: groups of completions from a model, with the log-probabilities of what was really drawn from."""

from rlvr_jax.rollouts.groups import PromptArrays, groups

__all__ = ["PromptArrays", "groups"]
