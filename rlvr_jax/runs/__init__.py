"""Config to objects, the host loop, metrics and the live display. The only room that moves arrays off the device."""

from rlvr_jax.runs.build import Experiment, Stage, build_experiment
from rlvr_jax.runs.describe import describe
from rlvr_jax.runs.loop import Stopped, train

__all__ = ["Experiment", "Stage", "Stopped", "build_experiment", "describe", "train"]
