"""Optax optimisers with schedule, clipping and weight decay. `__all__` is the registry that configs name."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from rlvr_jax.core import PyTree, check_keys, check_number

__all__ = ["adamw", "sgd"]

SCHEDULES = ("constant", "cosine", "linear")
NOT_DECAYED = ("norm", "bias", "scale")


def decay_mask(params: PyTree) -> PyTree:
  """True for matrices, which alone decay: not for norms and biases, which stacking over layers makes matrices too."""

  def decays(path, leaf):
    names = jax.tree_util.keystr(path).lower()
    return jnp.ndim(leaf) >= 2 and not any(word in names for word in NOT_DECAYED)

  return jax.tree_util.tree_map_with_path(decays, params)


def make_schedule(
  learning_rate: float, schedule: str, warmup_steps: int, total_steps: int | None, final_fraction: float
) -> optax.Schedule:
  """Linear over `warmup_steps` updates, then constant, or down to `final_fraction` of the peak at `total_steps`."""
  check_keys("the optimiser's schedule", [schedule], SCHEDULES)
  check_number("learning_rate", learning_rate, minimum=0)
  if warmup_steps < 0:
    raise ValueError(f"warmup_steps must be >= 0, got {warmup_steps}")
  if schedule == "constant":
    after = optax.constant_schedule(learning_rate)
  else:
    if total_steps is None or total_steps <= warmup_steps:
      raise ValueError(f"schedule {schedule!r} needs total_steps > warmup_steps = {warmup_steps}, got {total_steps}")
    length = total_steps - warmup_steps
    if schedule == "cosine":
      after = optax.cosine_decay_schedule(learning_rate, length, final_fraction)
    else:
      after = optax.linear_schedule(learning_rate, learning_rate * final_fraction, length)
  if not warmup_steps:
    return after
  # The first update takes 1/warmup_steps of the peak rather than nothing.
  warmup = optax.linear_schedule(learning_rate / warmup_steps, learning_rate, max(1, warmup_steps - 1))
  return optax.join_schedules([warmup, after], [warmup_steps])


def _is_swept(value: Any) -> bool:
  return isinstance(value, jax.core.Tracer)


def _clip(clip_norm: float | None) -> optax.GradientTransformation:
  if clip_norm is None:
    return optax.identity()
  if not _is_swept(clip_norm) and not clip_norm > 0:
    raise ValueError(f"clip_norm must be > 0, or None for no clipping, got {clip_norm}")
  return optax.clip_by_global_norm(clip_norm)


def adamw(
  learning_rate: float,
  schedule: str = "constant",
  warmup_steps: int = 0,
  total_steps: int | None = None,
  final_fraction: float = 0.0,
  clip_norm: float | None = 1.0,
  weight_decay: float = 0.0,
  b1: float = 0.9,
  b2: float = 0.95,
  eps: float = 1e-8,
) -> optax.GradientTransformation:
  """Clipping by global norm, Adam, decoupled decay of matrices, learning rate. Steps are counted in updates.

  Ref: Loshchilov & Hutter, arXiv:1711.05101.
  """
  check_number("weight_decay", weight_decay, minimum=0)
  decays = _is_swept(weight_decay) or weight_decay
  return optax.named_chain(
    ("clip", _clip(clip_norm)),
    ("adam", optax.scale_by_adam(b1, b2, eps)),
    ("decay", optax.add_decayed_weights(weight_decay, decay_mask) if decays else optax.identity()),
    (
      "rate",
      optax.scale_by_learning_rate(make_schedule(learning_rate, schedule, warmup_steps, total_steps, final_fraction)),
    ),
  )


def sgd(
  learning_rate: float,
  schedule: str = "constant",
  warmup_steps: int = 0,
  total_steps: int | None = None,
  final_fraction: float = 0.0,
  clip_norm: float | None = None,
  momentum: float = 0.0,
) -> optax.GradientTransformation:
  """Clipping by global norm, momentum (an exponential sum, not a mean), learning rate."""
  if not _is_swept(momentum) and not 0 <= momentum < 1:
    raise ValueError(f"momentum must be in [0, 1), got {momentum}")
  return optax.named_chain(
    ("clip", _clip(clip_norm)),
    ("momentum", optax.trace(momentum) if _is_swept(momentum) or momentum else optax.identity()),
    (
      "rate",
      optax.scale_by_learning_rate(make_schedule(learning_rate, schedule, warmup_steps, total_steps, final_fraction)),
    ),
  )
