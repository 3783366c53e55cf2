"""Prompt priors, curricula, budgets and replay: pure state machines. Imports core only."""

from rlvr_jax.selection.epochs import epochs
from rlvr_jax.selection.mopps import mopps
from rlvr_jax.selection.replay import replay
from rlvr_jax.selection.speed_rl import speed_rl
from rlvr_jax.selection.uniform import uniform

__all__ = ["epochs", "mopps", "replay", "speed_rl", "uniform"]
