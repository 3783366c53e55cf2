"""Groups whose rewards do not vary leave the loss, numerator and divisor alike.

  loss mask_{i,t} ← loss mask_{i,t} · 1[max_{j in group} m_j - min_{j in group} m_j > tolerance]

They have no advantage, but would still be counted in the loss's divisor and pulled by terms that ask for none, such as
a KL penalty. m is a raw metric rather than the credit so far, which shaping may have made vary. This is DAPO's filter
inside a step of fixed size; sampling more prompts in their place is the run's business. The credit is passed on as it
is.

Args:
  component: the name of a reward component (`rollout.rewards`) to judge by; None: `rollout.reward`.
  tolerance: what still counts as equal.

Peers:  verl `filter_groups`: exact np.std == 0; slime: std, with a tolerance since slime#1674.
Ref:    Yu et al., DAPO, arXiv:2503.14476, sec. 3.2.
"""

from jaxtyping import Array, Float

from rlvr_jax.core import Rollout, Transform, check_keys, check_number, group_max, group_min, masked
from rlvr_jax.credit.chain import stateless


def keep_mixed_groups(component: str | None = None, tolerance: float = 1e-6) -> Transform:
  check_number("keep_mixed_groups: tolerance", tolerance, minimum=0)

  def update(credit: Float[Array, "*nt"], rollout: Rollout) -> tuple[Float[Array, "*nt"], Rollout]:
    if component is not None:
      check_keys("keep_mixed_groups: component: rollout.rewards", [component], rollout.rewards)
    metric = rollout.reward if component is None else rollout.rewards[component]
    mixed = group_max(metric, rollout) - group_min(metric, rollout) > tolerance
    return masked(credit, rollout.row_mask), rollout.keeping(mixed[:, None])

  return stateless(update, min_group_size=2)
