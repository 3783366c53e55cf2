"""The train step, its state, the optimisers and the checkpoint."""

from rlvr_jax.train import optimiser as optimisers
from rlvr_jax.train.checkpoint import Checkpointer, Restored
from rlvr_jax.train.gradient import Objective
from rlvr_jax.train.needs import ViewSpec
from rlvr_jax.train.state import TrainState, constrain_state
from rlvr_jax.train.step import TrainStep, make_train_step

__all__ = [
  "Checkpointer",
  "Objective",
  "Restored",
  "TrainState",
  "TrainStep",
  "ViewSpec",
  "make_train_step",
  "optimisers",
  "constrain_state",
]
