"""Reward components of graph tasks: from a verdict and the rollout to a number per row, as array code."""

from rlvr_jax.rewards.graph.components import brevity, correct, finished, parsable

__all__ = ["brevity", "correct", "finished", "parsable"]
