"""Per-token estimators of KL(π ‖ ref) from tokens sampled from π.   d = log π - log ref

| | value | ∂/∂ log π | as a loss on tokens from π, its expected gradient is that of |
|---|---|---|---|
| k1 | d | 1 | nothing: it is zero |
| k2 | d²/2 | d | KL(π ‖ ref) |
| k3 | exp(-d) - 1 + d | 1 - exp(-d) | KL(ref ‖ π) |
| k3_plus | exp(-d) - 1 + d | d | KL(π ‖ ref) |

No clamp: exp(-d) is as large as it is. Mask before the call, not after.
Ref: Schulman, "Approximating KL divergence" (2020).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def k1(log_probs: Float[Array, "*s"], reference_log_probs: Float[Array, "*s"]) -> Float[Array, "*s"]:
  """d: unbiased, of either sign. For rewards, not for losses."""
  return log_probs - reference_log_probs


def k2(log_probs: Float[Array, "*s"], reference_log_probs: Float[Array, "*s"]) -> Float[Array, "*s"]:
  """d²/2: biased value, gradient of the reverse KL."""
  return (log_probs - reference_log_probs) ** 2 / 2


def k3(log_probs: Float[Array, "*s"], reference_log_probs: Float[Array, "*s"]) -> Float[Array, "*s"]:
  """exp(-d) - 1 + d: unbiased and never negative."""
  d = log_probs - reference_log_probs
  return jnp.expm1(-d) + d


def k3_plus(log_probs: Float[Array, "*s"], reference_log_probs: Float[Array, "*s"]) -> Float[Array, "*s"]:
  """The value of k3 with the gradient of k2, straight through (verl's "k3+")."""
  slope = k2(log_probs, reference_log_probs)
  return jax.lax.stop_gradient(k3(log_probs, reference_log_probs)) + (slope - jax.lax.stop_gradient(slope))
