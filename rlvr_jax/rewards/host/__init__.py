"""Verifiers that read text: `builder(**options)` returns `verify(sample) -> Verdict`. No jax is imported here.

A name "package.module:builder" in a spec stands for a user's own builder with the same surface.
"""

from rlvr_jax.rewards.host.exact import exact
from rlvr_jax.rewards.host.format_think import format_think
from rlvr_jax.rewards.host.length import length
from rlvr_jax.rewards.host.math import math
from rlvr_jax.rewards.host.number import number
from rlvr_jax.rewards.host.reasoning_gym import reasoning_gym

__all__ = ["exact", "format_think", "length", "math", "number", "reasoning_gym"]
