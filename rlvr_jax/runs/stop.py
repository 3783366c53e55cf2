"""The stop rule of a stage: it ends early once its held-out accuracy has stalled."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlvr_jax.core import check_keys, check_number


def check_stop(stop: Mapping[str, Any] | None, every: int) -> dict[str, Any] | None:
  """config.stages[i].stop = dict(patience=..., min_delta=0.0), counted in evaluations, one every `every` steps."""
  if not stop:
    return None
  check_keys("config.stages: stop", stop, ("patience", "min_delta"))
  check_number("config.stages: stop.patience", stop.get("patience", 0), minimum=1)
  if not every:
    raise ValueError("config.stages: stop needs config.eval.every >= 1, or there is nothing to judge by")
  return dict(patience=int(stop["patience"]), min_delta=float(stop.get("min_delta", 0.0)))


def stalled(accuracy: Sequence[np.ndarray], patience: int, min_delta: float) -> np.ndarray:
  """Bool["s"]: lanes whose last `patience` evaluations are no better than the best before them by `min_delta`."""
  curve = np.stack(accuracy)
  if len(curve) <= patience:
    return np.zeros(curve.shape[1], bool)
  return curve[-patience:].max(axis=0) <= curve[:-patience].max(axis=0) + min_delta
