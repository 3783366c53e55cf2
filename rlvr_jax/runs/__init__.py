"""Config to objects, the host loop, metrics and the live display. The only room that moves arrays off the device."""

from rlvr_jax.runs.build import Experiment, Stage, build_experiment
from rlvr_jax.runs.compare import compare
from rlvr_jax.runs.describe import describe, describe_lab
from rlvr_jax.runs.lab_run import LabResult, LabRun
from rlvr_jax.runs.lab_train import run_lab, train_lab
from rlvr_jax.runs.laboratory import is_graph_task
from rlvr_jax.runs.loop import Stopped, train

__all__ = [
  "Experiment", "LabResult", "LabRun", "Stage", "Stopped",
  "build_experiment", "compare", "describe", "describe_lab", "is_graph_task", "run_lab", "train", "train_lab",
]  # fmt: skip
