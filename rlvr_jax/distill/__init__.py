"""Teacher views, divergences and KL estimators. Pure; imports core only."""

from rlvr_jax.distill.divergences import forward_kl, generalised_jsd, reverse_kl, top_k_kl
from rlvr_jax.distill.kl import k1, k2, k3, k3_plus

__all__ = ["forward_kl", "generalised_jsd", "k1", "k2", "k3", "k3_plus", "reverse_kl", "top_k_kl"]
