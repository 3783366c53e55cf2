"""Logical axes to mesh axes: the one table, the mesh, and what places arrays on it."""

from rlvr_jax.sharding.mesh import RULES, constrain, is_axes, make_mesh, named_sharding, place, replicate, spec

__all__ = ["RULES", "constrain", "is_axes", "make_mesh", "named_sharding", "place", "replicate", "spec"]
