"""From rewards to token-level advantages: a chain of transforms, one file per idea. Pure."""

from rlvr_jax.credit.chain import chain, stateless
from rlvr_jax.credit.group_normalise import group_normalise
from rlvr_jax.credit.leave_one_out import leave_one_out
from rlvr_jax.credit.spread_over_tokens import spread_over_tokens

__all__ = ["chain", "group_normalise", "leave_one_out", "spread_over_tokens", "stateless"]
