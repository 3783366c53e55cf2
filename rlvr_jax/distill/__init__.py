"""Teacher views, divergences and KL estimators. Pure; imports core only."""

from rlvr_jax.distill.kl import k1, k2, k3

__all__ = ["k1", "k2", "k3"]
