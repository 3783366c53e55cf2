"""Builders of graph tasks. Each gives a `GraphTask`: prompts, demonstrations and verdicts as array code."""

from rlvr_jax.tasks.graph.choice import multiple_choice
from rlvr_jax.tasks.graph.countdown import countdown
from rlvr_jax.tasks.graph.filler import filler_chain
from rlvr_jax.tasks.graph.maze import maze
from rlvr_jax.tasks.graph.modular import modular_sum
from rlvr_jax.tasks.graph.sorting import sorting
from rlvr_jax.tasks.graph.sums import chain_sum
from rlvr_jax.tasks.graph.token_tree import token_tree

__all__ = [
  "chain_sum", "countdown", "filler_chain", "maze", "modular_sum", "multiple_choice", "sorting", "token_tree",
]  # fmt: skip
