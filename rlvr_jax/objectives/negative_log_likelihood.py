"""Supervised learning on the action tokens; reads no advantages.

L_t = -log π
"""

from rlvr_jax.core import Term


def negative_log_likelihood() -> Term:
  def loss(current, rollout, advantages):
    del rollout, advantages
    return -current["log_probs"], {}

  return Term(loss, needs=("log_probs",))
