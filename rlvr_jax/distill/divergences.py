"""Divergences between two whole next-token distributions, from log-probabilities over the last axis, in nats.

| | value |
|---|---|
| forward_kl | KL(T ‖ π) = Σ_v T (log T - log π) |
| reverse_kl | KL(π ‖ T) = Σ_v π (log π - log T) |
| generalised_jsd | β KL(T ‖ M) + (1 - β) KL(π ‖ M), M = β T + (1 - β) π; at β = 0 and 1 the two above |
| top_k_kl | one of the two over k tokens and, as one more outcome, all others |

A token to which the first distribution of a KL gives no mass adds 0, with gradient 0, whatever the other gives it: -inf
is a legal log-probability. Mass where the second gives none makes the divergence infinite, as it is.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlvr_jax.core import check_keys, check_number


def _kl(log_a: Float[Array, "*s v"], log_b: Float[Array, "*s v"]) -> Float[Array, "*s"]:
  """KL(a ‖ b)."""
  a = jnp.exp(log_a)
  held = a > 0
  return jnp.sum(jnp.where(held, a, 0.0) * jnp.where(held, log_a - log_b, 0.0), axis=-1)


def forward_kl(log_p: Float[Array, "*s v"], teacher_log_p: Float[Array, "*s v"]) -> Float[Array, "*s"]:
  """KL(T ‖ π): covers what the teacher does. Its gradient by the logits of π is π - T."""
  return _kl(teacher_log_p, log_p)


def reverse_kl(log_p: Float[Array, "*s v"], teacher_log_p: Float[Array, "*s v"]) -> Float[Array, "*s"]:
  """KL(π ‖ T): avoids what the teacher does not."""
  return _kl(log_p, teacher_log_p)


def generalised_jsd(beta: Any = 0.5) -> Callable:
  """The function of `(log_p, teacher_log_p)`, as in GKD. A traced `beta` is taken as strictly between 0 and 1."""
  check_number("generalised_jsd: beta", beta, minimum=0, maximum=1)
  if not isinstance(beta, jax.core.Tracer) and beta in (0, 1):
    return reverse_kl if beta else forward_kl

  def jsd(log_p: Float[Array, "*s v"], teacher_log_p: Float[Array, "*s v"]) -> Float[Array, "*s"]:
    held = (log_p > -jnp.inf) | (teacher_log_p > -jnp.inf)  # where both are -inf, their mixture has no gradient
    p, t = jnp.where(held, log_p, 0.0), jnp.where(held, teacher_log_p, 0.0)
    mixture = jnp.logaddexp(jnp.log(beta) + t, jnp.log1p(-beta) + p)
    return beta * _kl(teacher_log_p, mixture) + (1 - beta) * _kl(log_p, mixture)

  return jsd


def _log_mass(log_p: Float[Array, "*s v"], keep: Bool[Array, "*s v"]) -> Float[Array, "*s 1"]:
  """Log of the mass on `keep`; -inf, without gradient, where there is none."""
  kept = jnp.where(keep, log_p, -jnp.inf)
  some = jnp.max(kept, axis=-1, keepdims=True) > -jnp.inf
  return jnp.where(some, jax.nn.logsumexp(jnp.where(some, kept, 0.0), axis=-1, keepdims=True), -jnp.inf)


def top_k_kl(k: int, direction: str = "forward", tail: str = "bucket") -> Callable:
  """The function of `(log_p, teacher_log_p)` over the k likeliest tokens of the KL's first distribution.

  Args:
    direction: "forward", KL(T ‖ π) over the teacher's tokens; "reverse", KL(π ‖ T) over the policy's.
    tail:      of the other tokens: "bucket", one more outcome; "renormalise", each side by its own mass on the k;
               "drop", left out, so that the sum may be negative.
  """
  check_number("top_k_kl: k", k, minimum=1)
  check_keys("top_k_kl: direction", [direction], ("forward", "reverse"))
  check_keys("top_k_kl: tail", [tail], ("bucket", "renormalise", "drop"))

  def kl(log_p: Float[Array, "*s v"], teacher_log_p: Float[Array, "*s v"]) -> Float[Array, "*s"]:
    if k > log_p.shape[-1]:
      raise ValueError(f"top_k_kl: k must be <= the size of the vocabulary, {log_p.shape[-1]}, got {k}")
    a, b = (teacher_log_p, log_p) if direction == "forward" else (log_p, teacher_log_p)
    index = jax.lax.top_k(jax.lax.stop_gradient(a), k)[1]
    kept = jnp.put_along_axis(jnp.zeros(a.shape, bool), index, True, axis=-1, inplace=False)

    def coarse(x):
      top = jnp.take_along_axis(x, index, axis=-1)
      if tail == "bucket":
        return jnp.concatenate([top, _log_mass(x, ~kept)], axis=-1)
      if tail == "drop":
        return top
      mass = _log_mass(x, kept)
      return top - jnp.where(mass > -jnp.inf, mass, 0.0)

    return _kl(coarse(a), coarse(b))

  return kl
