"""Return of a row's token rewards from each of its action tokens on.

  A_t = r_t + γ A_{t'}        t' the next action token; 0 after the last

Tokens between two actions, such as an environment's answer, cost no discount and have no credit: inserting them changes
nothing. `carry=False` is the return that older code computes: it starts anew at every token between, so that a reward
never reaches the turns before its own.

Peers:    carry=True since verl#7300; carry=False in older verl and in SkyRL.
Ref:      Hu et al., REINFORCE++, arXiv:2501.03262.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlvr_jax.core import Rollout, Transform, check_number
from rlvr_jax.credit.actions import action_tokens
from rlvr_jax.credit.chain import stateless


def discounted(
  reward: Float[Array, "t"], keep: Bool[Array, "t"], gamma: Float[Array, ""], carry: bool = True, own: bool = True
) -> Float[Array, "t"]:
  """The recursion for one row; 0 where not `keep`, and what stands there is not read.

  own=False answers A_{t'}, the return from the next kept token on, for t.
  """

  def back(future, step):
    reward_t, keep_t = step
    now = jnp.where(keep_t, reward_t + gamma * future, future if carry else 0.0)
    return now, jnp.where(keep_t, now if own else future, 0.0)

  return jax.lax.scan(back, jnp.zeros(()), (jnp.where(keep, reward, 0.0), keep), reverse=True)[1]


def discounted_return(gamma: float = 1.0, carry: bool = True) -> Transform:
  check_number("discounted_return: gamma", gamma, minimum=0, maximum=1)

  def update(reward: Float[Array, "n t"], rollout: Rollout) -> Float[Array, "n t"]:
    of_rows = jax.vmap(lambda reward, keep: discounted(reward, keep, jnp.asarray(gamma, jnp.float32), carry))
    return of_rows(reward, action_tokens(rollout))

  return stateless(update, takes="n t")
