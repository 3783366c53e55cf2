"""Per-token losses, one file each, and `reducers`, which make one number of them. Pure."""

from rlvr_jax.objectives import reducers as reducers
from rlvr_jax.objectives.a_star_po import a_star_po
from rlvr_jax.objectives.cispo import cispo
from rlvr_jax.objectives.clipped_surrogate import clipped_surrogate
from rlvr_jax.objectives.dppo_tv import dppo_tv
from rlvr_jax.objectives.entropy_bonus import entropy_bonus
from rlvr_jax.objectives.flow_rl import flow_rl
from rlvr_jax.objectives.generalised_jsd import generalised_jsd
from rlvr_jax.objectives.gmpo import gmpo
from rlvr_jax.objectives.gspo import gspo
from rlvr_jax.objectives.kl_cov_penalty import kl_cov_penalty
from rlvr_jax.objectives.kl_to_reference import kl_to_reference
from rlvr_jax.objectives.mirror_descent import mirror_descent
from rlvr_jax.objectives.negative_log_likelihood import negative_log_likelihood
from rlvr_jax.objectives.reinforce import reinforce
from rlvr_jax.objectives.sampled_reverse_kl import sampled_reverse_kl
from rlvr_jax.objectives.sapo import sapo
from rlvr_jax.objectives.top_k_kl import top_k_kl
from rlvr_jax.objectives.value_loss import value_loss
from rlvr_jax.objectives.vespo import vespo

__all__ = [
  "a_star_po", "cispo", "clipped_surrogate", "dppo_tv", "entropy_bonus", "flow_rl", "generalised_jsd", "gmpo", "gspo",
  "kl_cov_penalty", "kl_to_reference", "mirror_descent", "negative_log_likelihood", "reinforce", "sampled_reverse_kl",
  "sapo", "top_k_kl", "value_loss", "vespo",
]  # fmt: skip
