"""KL divergence from a teacher over the k likeliest tokens and what is left of them, per token.

  L_t = KL(T ‖ π) over the k likeliest of T      direction "forward"
  L_t = KL(π ‖ T) over the k likeliest of π      direction "reverse"

Args:  tail: what becomes of the other tokens. "bucket": they are one more outcome, of probability 1 - P; the divergence
       is >= 0 and at most the full one. "renormalise": each side is divided by its own P. "drop": the k summands alone,
       which is no divergence: it may be negative, and pushing both sides' mass off the k tokens lowers it.
Peers: TRL's `add_tail_bucket`; verl drops the tail and clamps the sum at 0, where it then has no gradient.
Ref:   Hübotter et al., SDPO, arXiv:2601.20802 (top-k with a tail).
"""

from rlvr_jax import distill
from rlvr_jax.core import Divergence, Term


def top_k_kl(k: int, direction: str = "forward", tail: str = "bucket", view: str = "teacher") -> Term:
  divergence = Divergence(view, distill.top_k_kl(k, direction, tail))

  def loss(current, rollout, advantages):
    del rollout, advantages
    return current["top_k_kl"], {}

  return Term(loss, divergences=dict(top_k_kl=divergence))
