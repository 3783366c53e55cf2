"""Verifiers, the pool of worker processes that runs them, and mixing. Importing this room does not import jax."""

from rlvr_jax.rewards.mix import Mixed, mix
from rlvr_jax.rewards.pool import VerifierPool
from rlvr_jax.rewards.verdict import STATUSES, Sample, Verdict, verdict

__all__ = ["STATUSES", "Mixed", "Sample", "Verdict", "VerifierPool", "mix", "verdict"]
