"""Divergence from a teacher over the whole vocabulary, between forward and reverse KL, per token.

  L_t = KL(T ‖ π)                                 β = 0, forward: the gradient by the logits is π - T
  L_t = KL(π ‖ T)                                 β = 1, reverse
  L_t = β KL(T ‖ M) + (1 - β) KL(π ‖ M)           between,  M = β T + (1 - β) π

T is the next-token distribution of `view`, constant. On tokens of the policy this is on-policy distillation; on tokens
of the teacher or of a data set, β = 0 is knowledge distillation.

Args:  beta: in [0, 1]; a traced one is taken as strictly between.
Peers: TRL's GKD, where β has the same meaning. Between, the divergence tends to 0 with β or 1 - β, and divided by it
       to the forward or the reverse KL.
Ref:   Agarwal et al., GKD, arXiv:2306.13649.
"""

from rlvr_jax import distill
from rlvr_jax.core import Divergence, Term


def generalised_jsd(beta: float = 0.5, view: str = "teacher") -> Term:
  divergence = Divergence(view, distill.generalised_jsd(beta))

  def loss(current, rollout, advantages):
    del rollout, advantages
    return current["jsd"], {}

  return Term(loss, divergences=dict(jsd=divergence))
