"""Reward components of graph tasks: each builder gives `(verdict, rollout) -> Float32["n"]` in [0, 1]."""

from collections.abc import Callable

import jax.numpy as jnp

from rlvr_jax.core import check_number


def correct() -> Callable:
  """The task's own verdict."""
  return lambda verdict, rollout: verdict.correct.astype(jnp.float32)


def parsable() -> Callable:
  """1 where an answer could be read, right or wrong: a format reward."""
  return lambda verdict, rollout: verdict.parsable.astype(jnp.float32)


def finished() -> Callable:
  """1 where the completion ended by itself."""
  return lambda verdict, rollout: (~rollout.truncated).astype(jnp.float32)


def brevity(max_tokens: int) -> Callable:
  """1 - tokens / max_tokens, not below 0: the fewer tokens the better."""
  check_number("brevity: max_tokens", max_tokens, minimum=1)
  return lambda verdict, rollout: jnp.maximum(1.0 - jnp.sum(rollout.action_mask, axis=1) / max_tokens, 0.0)
