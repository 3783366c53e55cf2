"""Everything a resume needs besides the data position, as arrays."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from rlvr_jax.core import PyTree
from rlvr_jax.sharding import constrain, is_axes


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
  """Arrays only. `step` counts calls of the train step, which are iterations; the optimiser counts its own updates."""

  params: PyTree
  opt_state: PyTree
  credit: PyTree  # carried by the credit chain, keyed by the names of its parts
  selection: PyTree  # carried by the choice of prompts; the train step hands it through
  step: Any  # Int32[""]
  seed: Any  # UInt32[""]  of the run: every key is derived from it and `step`
  anchors: Mapping[str, PyTree] = dataclasses.field(
    default_factory=dict
  )  # view -> frozen params, where a need names one

  def replace(self, **changes) -> "TrainState":
    return dataclasses.replace(self, **changes)


def constrain_state(state: TrainState, param_axes: PyTree) -> TrainState:
  """The state laid out on the mesh set by `jax.set_mesh`, inside jit or not; unchanged where none is set.

  A copy of the parameters, wherever it is (optimiser moments, anchors), is laid out as they are: its leaves are known
  by the end of their path and by their shape. The rest is replicated. So a step gets back what it gave, and compiles
  once. `param_axes` is the tree of the parameters with their logical axes for leaves.
  """
  paths, params = zip(*jax.tree_util.tree_leaves_with_path(state.params))
  axes_of = dict(zip(paths, jax.tree.leaves(param_axes, is_leaf=is_axes), strict=True))
  shape_of = dict(zip(paths, (p.shape for p in params)))
  lengths = sorted({len(path) for path in paths}, reverse=True)

  def one(path, leaf):
    tails = (path[-length:] for length in lengths if length <= len(path))
    of_param = [axes_of[tail] for tail in tails if shape_of.get(tail) == leaf.shape]
    return constrain(leaf, of_param[0] if of_param else (None,) * leaf.ndim)

  return jax.tree_util.tree_map_with_path(one, state)
