"""A few random tokens of high covariance get no credit, which slows the collapse of entropy.

  A_t ← 0        for floor(ratio · N) tokens drawn from those with low < cov_t < high
  cov_t = (A_t - mean A)(log π_t - mean log π)        means over the N loss tokens of the batch

The tokens stay in the loss mask and in its divisor: their gradient is detached, they are not removed. Where fewer
qualify than are to be drawn, all of them are. The draw depends on `seed`, on how often the transform has been applied
(the carried state) and on the row's prompt and tokens, not on where in the batch the row stands; two rows with the same
prompt and tokens share their draw, and the number drawn may then exceed the rule by as many.

Peers:    verl `clip_cov`: ratio 2e-4, low 1, high 5, and never fewer than one token.
Differs:  log π is that of the policy before the update rather than of the one being differentiated: the same at the
          first update on a rollout. The credit must not have been divided by lengths, since low and high are absolute.
Ref:      Cui et al., The Entropy Mechanism of RL for Reasoning Language Models, arXiv:2505.22617, sec. 4.2.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from rlvr_jax.core import Rollout, Transform, check_number, positions
from rlvr_jax.credit.chain import check_shape
from rlvr_jax.credit.covariance import num_chosen, token_covariance


def _mixed(x: UInt32[Array, "*s"]) -> UInt32[Array, "*s"]:
  """The last step of murmur3: every bit of the input changes half of the output."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
  x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
  return x ^ (x >> 16)


def row_draws(key: Array, rollout: Rollout) -> Float[Array, "n t"]:
  """A number in [0, 1) per token from the key, the row's prompt, its real tokens, and the token's place in the row."""
  salt = jax.random.bits(key, (3,), jnp.uint32)
  place = _mixed(positions(rollout.valid_mask).astype(jnp.uint32) + salt[0])
  each = jnp.where(rollout.valid_mask, _mixed(rollout.tokens.astype(jnp.uint32) ^ place), 0)
  content = _mixed(jnp.sum(each, axis=1, dtype=jnp.uint32) ^ _mixed(rollout.prompt_id.astype(jnp.uint32) + salt[1]))
  bits = _mixed(_mixed(place ^ content[:, None]) + salt[2])
  return (bits >> 8).astype(jnp.float32) * 2.0**-24


def clip_cov(ratio: float, low: float = 1.0, high: float = 5.0, seed: int = 0) -> Transform:
  check_number("clip_cov: ratio", ratio, minimum=0, maximum=1)
  check_number("clip_cov: high - low", high - low, above=0)

  def update(credit: Float[Array, "n t"], state, rollout: Rollout):
    check_shape("clip_cov", credit, "n t")
    cov = token_covariance(credit, rollout)
    qualify = rollout.loss_mask & (cov > low) & (cov < high)
    draws = row_draws(jax.random.fold_in(jax.random.key(seed), state["count"]), rollout)
    ordered = jnp.sort(jnp.where(qualify, draws, jnp.inf).ravel())
    number = num_chosen(ratio, rollout)
    drawn = qualify & (number > 0) & (draws <= ordered[jnp.maximum(number - 1, 0)])
    return jnp.where(rollout.loss_mask & ~drawn, credit, 0.0), {"count": state["count"] + 1}, rollout

  return Transform(lambda: {"count": jnp.zeros((), jnp.int32)}, update, needs=("old.log_probs",))
