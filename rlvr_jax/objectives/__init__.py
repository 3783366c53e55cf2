"""Per-token losses, one file each, and `reducers`, which make one number of them. Pure."""

from rlvr_jax.objectives import reducers as reducers
from rlvr_jax.objectives.clipped_surrogate import clipped_surrogate
from rlvr_jax.objectives.entropy_bonus import entropy_bonus
from rlvr_jax.objectives.kl_to_reference import kl_to_reference
from rlvr_jax.objectives.negative_log_likelihood import negative_log_likelihood
from rlvr_jax.objectives.reinforce import reinforce

__all__ = ["clipped_surrogate", "entropy_bonus", "kl_to_reference", "negative_log_likelihood", "reinforce"]
