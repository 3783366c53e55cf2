"""Supervised learning on the action tokens: L_t = -log π. Reads no advantages."""

from rlvr_jax.core import Term


def negative_log_likelihood() -> Term:
  def loss(current, rollout, advantages):
    del rollout, advantages
    return -current["log_probs"], {}

  return Term(loss, needs=("log_probs",))
