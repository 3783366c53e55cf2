"""Rows that were cut off at the length limit leave the loss, numerator and divisor alike.

  loss mask_{i,t} ← loss mask_{i,t} · 1[row i ended by itself]

A cut-off completion was not wrong, it was not finished. Its reward stays in the baseline of its group, and the credit
is passed on as it is.

Peers:  TRL `mask_truncated_completions` keeps the reward in the baseline too; open-instruct drops the row from it.
Ref:    Yu et al., DAPO, arXiv:2503.14476, sec. 3.4.
"""

from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, masked
from rlvr_jax.credit.chain import stateless


def overlong_filter() -> Transform:
  def update(credit: Float[Array, "*nt"], rollout: Rollout) -> tuple[Float[Array, "*nt"], Rollout]:
    return masked(credit, rollout.row_mask), rollout.keeping(~rollout.truncated[:, None])

  return stateless(update)
