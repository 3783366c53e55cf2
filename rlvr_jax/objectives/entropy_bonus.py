"""Entropy of the next-token distribution, to be raised: L_t = -H_t over the whole vocabulary, in nats."""

from rlvr_jax.core import Term


def entropy_bonus() -> Term:
  def loss(current, rollout, advantages):
    del rollout, advantages
    return -current["entropy"], {}

  return Term(loss, needs=("entropy",))
