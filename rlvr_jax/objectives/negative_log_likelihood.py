"""Supervised learning on the action tokens; reads no advantages.

  L_t = -log π

Nothing but the log-probability of the demonstration, so its reducer alone decides how demonstrations are weighed.
"""

from rlvr_jax.core import Term


def negative_log_likelihood() -> Term:
  def loss(current, rollout, advantages):
    del rollout, advantages
    return -current["log_probs"], {}

  return Term(loss, needs=("log_probs",))
