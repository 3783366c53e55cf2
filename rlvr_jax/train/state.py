"""Everything a resume needs besides the data position, as arrays."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from rlvr_jax.core import PyTree
from rlvr_jax.sharding import constrain, is_axes
from rlvr_jax.train.needs import Plan


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


def make_anchors(plan: Plan, params: PyTree, given: Mapping[str, PyTree]) -> dict[str, PyTree]:
  """The parameters of every view that has its own. Raises ValueError where `given` has too few or too many."""
  anchors = plan.anchors()
  wanted = {name for name, view in anchors.items() if view.params == "given"}
  if wanted != set(given):
    raise ValueError(f"parameters must be given for the views {sorted(wanted)}, got {sorted(given)}")
  copy = lambda tree: jax.tree.map(jnp.copy, tree)  # the step donates `params`
  return {name: given[name] if name in given else copy(params) for name in anchors}


def follow(plan: Plan, anchors: Mapping[str, PyTree], params: PyTree) -> dict[str, PyTree]:
  """The anchors after an update: moving averages move, the rest stays."""

  def one(name, view):
    if view.params != "ema":
      return anchors[name]
    mix = lambda a, p: (view.decay * a.astype(jnp.float32) + (1 - view.decay) * p.astype(jnp.float32)).astype(a.dtype)
    return jax.tree.map(mix, anchors[name], params)

  return {name: one(name, view) for name, view in plan.anchors().items()}


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
