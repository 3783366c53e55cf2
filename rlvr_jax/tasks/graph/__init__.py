"""Builders of graph tasks. Each gives a `GraphTask`: prompts, demonstrations and verdicts as array code."""

from rlvr_jax.tasks.graph.countdown import countdown
from rlvr_jax.tasks.graph.modular import modular_sum
from rlvr_jax.tasks.graph.sorting import sorting
from rlvr_jax.tasks.graph.sums import chain_sum

__all__ = ["chain_sum", "countdown", "modular_sum", "sorting"]
