"""Code names logical axes; the table here names mesh axes. Nothing else in the project knows a mesh axis."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlvr_jax.core import check_keys

MESH_AXES = ("data", "fsdp", "tensor")

# Logical axis -> mesh axes. `None` is replicated.
RULES: Mapping[str, tuple[str, ...] | None] = {
  "batch": ("data", "fsdp"),  # rows of rollouts, prompts and caches
  "time": None,
  "layers": None,
  "act_embed": None,
  "embed": ("fsdp",),  # width of a weight
  "heads": ("tensor",),
  "kv_heads": ("tensor",),
  "head_dim": None,
  "mlp": ("tensor",),
  "experts": None,
  "vocab": ("tensor",),
  "bins": None,
}


def make_mesh(data: int = -1, fsdp: int = 1, tensor: int = 1, devices: Sequence[Any] | None = None) -> Mesh:
  """A mesh over (data, fsdp, tensor); one of the three may be -1 and takes the devices left.

  Raises ValueError when the sizes do not multiply to the number of devices.
  """
  devices = list(jax.devices() if devices is None else devices)
  sizes = [data, fsdp, tensor]
  if any(s == 0 or s < -1 for s in sizes) or sizes.count(-1) > 1:
    raise ValueError(f"mesh sizes must be positive with at most one -1, got data={data} fsdp={fsdp} tensor={tensor}")
  if -1 in sizes:
    known = math.prod(s for s in sizes if s != -1)
    if len(devices) % known:
      raise ValueError(f"mesh {dict(zip(MESH_AXES, sizes))}: {len(devices)} devices are not a multiple of {known}")
    sizes[sizes.index(-1)] = len(devices) // known
  if math.prod(sizes) != len(devices):
    raise ValueError(f"mesh {dict(zip(MESH_AXES, sizes))} needs {math.prod(sizes)} devices, there are {len(devices)}")
  return Mesh(np.asarray(devices).reshape(sizes), MESH_AXES)


def _mesh_axes(axes: Sequence[str | None], rules: Mapping[str, Any]) -> list[tuple[str, ...] | None]:
  entries, used = [], {}
  for axis in axes:
    if axis is not None:
      check_keys("the table of logical axes", [axis], rules)
    mesh_axes = rules[axis] if axis is not None else None
    for mesh_axis in mesh_axes or ():
      if mesh_axis in used:
        raise ValueError(f"axes {tuple(axes)}: {used[mesh_axis]!r} and {axis!r} are both on mesh axis {mesh_axis!r}")
      used[mesh_axis] = axis
    entries.append(mesh_axes)
  return entries


def spec(
  axes: Sequence[str | None],
  shape: Sequence[int] | None = None,
  mesh: Any = None,
  rules: Mapping[str, Any] = RULES,
) -> PartitionSpec:
  """PartitionSpec of an array whose dimensions are the logical `axes`. Two of them on one mesh axis is an error.

  Given a shape and a mesh, a dimension that its mesh axes do not divide is replicated (3 KV heads on 2 devices).
  """
  entries = _mesh_axes(axes, rules)
  if shape is not None:
    if len(entries) != len(shape):
      raise ValueError(f"axes {tuple(axes)} name {len(entries)} dimensions, the array has shape {tuple(shape)}")
    for i, (entry, size) in enumerate(zip(entries, shape)):
      if entry is not None and size % math.prod(mesh.shape[a] for a in entry):
        entries[i] = None
  return PartitionSpec(*entries)


def named_sharding(mesh: Mesh, axes: Sequence[str | None], shape: Sequence[int] | None = None) -> NamedSharding:
  """Sharding of an array on `mesh`; see `spec`."""
  return NamedSharding(mesh, spec(axes, shape, mesh))


def is_axes(x) -> bool:
  """Whether `x` is the logical axes of one array: a leaf in a tree of axes."""
  return isinstance(x, tuple) and all(a is None or isinstance(a, str) for a in x)


def place(mesh: Mesh, tree: Any, axes: Any) -> Any:
  """Puts every array of `tree` on the mesh; `axes` is a tree of logical-axis tuples, or one tuple for all leaves
  (cut to each leaf's rank)."""
  if is_axes(axes):
    one = axes
    axes = jax.tree.map(lambda x: one[: np.ndim(x)], tree)
  put = lambda x, a: jax.device_put(x, named_sharding(mesh, a, np.shape(x)))
  return jax.tree.map(put, tree, axes)  # what stands in `axes` where `tree` has a leaf is that leaf's tuple


def replicate(mesh: Mesh, tree: Any) -> Any:
  return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def constrain(x: jax.Array, axes: Sequence[str | None]) -> jax.Array:
  """Inside jit: asks for the layout of `axes` on the mesh set by `jax.set_mesh`; does nothing where none is set."""
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or not set(MESH_AXES) <= set(mesh.axis_names):
    return x
  return jax.lax.with_sharding_constraint(x, spec(axes, x.shape, mesh))
