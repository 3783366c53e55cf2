"""Entropy of the next-token distribution, to be raised.

  L_t = -H_t        over the whole vocabulary, in nats; a negative weight lowers it

Ref: Agarwal et al., The Unreasonable Effectiveness of Entropy Minimization, arXiv:2505.15134 (negative weight).
"""

from rlvr_jax.core import Term


def entropy_bonus() -> Term:
  def loss(current, rollout, advantages):
    del rollout, advantages
    return -current["entropy"], {}

  return Term(loss, needs=("entropy",))
