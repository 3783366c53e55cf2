"""Generalised advantage estimation over a row's action tokens, with a learned value.

  δ_t = r_t + γ V_{t'} - V_t        t' the next action token; V = 0 after the last
  A_t = δ_t + γ λ A_{t'}
  R_t = A_t(λ_value) + V_t          the critic's target, `rollout.stats["credit.returns"]`, before any whitening

V_t, `old.value[:, t]`, is the value of the state in which token t is chosen. Tokens between two actions are skipped
(carry): inserting them changes nothing. λ = 1 is the Monte-Carlo return minus V. Decoupled λ (VC-PPO, VAPO):
`value_lam` for the returns, and for the advantages a λ that grows with the length T of the row,

  λ_policy = clip(1 - 1 / (α T), 0, 1)       α = length_adaptive_alpha

for which the defaults leave λ_value = 1, as in VAPO.

Args:
  lam:                   λ of the advantages, unless length_adaptive_alpha is given; and of the returns.
  value_lam:             λ of the returns; None: `lam`.
  carry:                 False: a token between two actions is a step like any other, with its own V and no reward, and
                         only its advantage is dropped. Its value must then be in `old.value`, which the train step
                         leaves at 0 there.
  length_adaptive_alpha: α; 0.05 in VAPO.

Peers:    carry in verl and NeMo RL; carry=False in TRL, OpenRLHF, SkyRL and open-instruct.
Differs:  nothing is whitened here; `whiten` does that.
Ref:      Schulman et al., GAE, arXiv:1506.02438; Yuan et al., VC-PPO, arXiv:2503.01491; Yue et al., VAPO,
          arXiv:2504.05118.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlvr_jax.core import Rollout, Transform, check_number
from rlvr_jax.credit.actions import action_tokens, num_actions
from rlvr_jax.credit.chain import stateless


def generalised_advantage(
  reward: Float[Array, "t"],
  value: Float[Array, "t"],
  keep: Bool[Array, "t"],
  gamma: Float[Array, "t"],
  lam: Float[Array, "t"],
) -> Float[Array, "t"]:
  """A_t = r_t + γ_t V_{t'} - V_t + γ_t λ_t A_{t'} for one row, t' the next kept token; 0 where not `keep`.

  γ_t and λ_t belong to the step from t to t'. What stands where not `keep` is not read.
  """

  def back(after, step):
    next_value, next_advantage = after
    reward, value, keep, gamma, lam = step
    advantage = reward + gamma * next_value - value + gamma * lam * next_advantage
    after = jnp.where(keep, value, next_value), jnp.where(keep, advantage, next_advantage)
    return after, jnp.where(keep, advantage, 0.0)

  reward, value, gamma, lam = (jnp.where(keep, x, 0.0) for x in (reward, value, gamma, lam))
  end = jnp.zeros(()), jnp.zeros(())
  return jax.lax.scan(back, end, (reward, value, keep, gamma, lam), reverse=True)[1]


def gae(
  gamma: float = 1.0,
  lam: float = 1.0,
  value_lam: float | None = None,
  carry: bool = True,
  length_adaptive_alpha: float | None = None,
) -> Transform:
  check_number("gae: gamma", gamma, minimum=0, maximum=1)
  check_number("gae: lam", lam, minimum=0, maximum=1)
  if value_lam is not None:
    check_number("gae: value_lam", value_lam, minimum=0, maximum=1)
  if length_adaptive_alpha is not None:
    check_number("gae: length_adaptive_alpha", length_adaptive_alpha, above=0)
  lam_of_returns = lam if value_lam is None else value_lam

  def update(reward: Float[Array, "n t"], rollout: Rollout) -> tuple[Float[Array, "n t"], Rollout]:
    actions, value = action_tokens(rollout), rollout.stats["old.value"]
    reward = jnp.where(actions, reward, 0.0)
    steps = actions if carry else rollout.valid_mask & rollout.row_mask[:, None]

    def advantages(lam):
      gammas, lams = (jnp.broadcast_to(jnp.asarray(x, jnp.float32), reward.shape) for x in (gamma, lam))
      return jnp.where(actions, jax.vmap(generalised_advantage)(reward, value, steps, gammas, lams), 0.0)

    returns = jnp.where(actions, advantages(lam_of_returns) + value, 0.0)
    policy_lam = lam
    if length_adaptive_alpha is not None:
      length = jnp.maximum(num_actions(rollout), 1.0)[:, None]
      policy_lam = jnp.clip(1 - 1 / (length_adaptive_alpha * length), 0.0, 1.0)
    return advantages(policy_lam), rollout.replace(stats={**rollout.stats, "credit.returns": returns})

  return stateless(update, needs=("old.value",), provides=("credit.returns",), takes="n t")
