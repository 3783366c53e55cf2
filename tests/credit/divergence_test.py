"""Credit out of log-probabilities of another model: against goldens, and against exact gradients by enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import credit

GAP = [0.5, -0.2, 0.1, 0.4]  # log π - log π_T of four tokens
GOLDEN = {0.0: [-0.5, 0.2, -0.1, -0.4], 0.5: [-0.475, 0.05, -0.3, -0.4], 1.0: [-0.8, -0.3, -0.5, -0.4]}


def gap_rollout(make_rollout, **changes):
  """The four tokens with an observation in their midst, whose gap nobody reads."""
  gap = np.array([[GAP[0], 9, *GAP[1:]]])
  stats = {"old.log_probs": gap - 2, "teacher.log_probs": np.full((1, 5), -2.0)}
  return make_rollout([0], action_mask=[[True, False, True, True, True]], stats=stats, **changes)


@pytest.mark.parametrize("discount, want", GOLDEN.items())
def test_teacher_log_ratio(discount, want, make_rollout, apply):
  rollout = gap_rollout(make_rollout)
  part = credit.teacher_log_ratio(discount=discount, coef=2.0)
  got, _ = apply(part, rollout, [[1, 9, 1, 1, 1]])
  np.testing.assert_allclose(got[0, [0, 2, 3, 4]], 1 + 2 * np.array(want), atol=1e-6)
  assert got[0, 1] == 0
  got, _ = apply(credit.teacher_log_ratio(discount=discount, add=False), rollout)  # credit per row is replaced
  np.testing.assert_allclose(got[0, [0, 2, 3, 4]], want, atol=1e-6)


def test_adding_to_credit_per_row_is_an_error(make_rollout, apply):
  with pytest.raises(ValueError, match="teacher_log_ratio works on a number per token"):
    apply(credit.teacher_log_ratio(), gap_rollout(make_rollout))


def test_a_token_the_teacher_does_not_see_has_no_ratio(make_rollout, apply):
  from rlvr_jax.core import View

  view = View(tokens=np.zeros((1, 5), int), valid_mask=np.ones((1, 5), bool), take=np.array([[0, 1, -1, 3, 4]]))
  got, _ = apply(credit.teacher_log_ratio(add=False), gap_rollout(make_rollout, views=dict(teacher=view)))
  np.testing.assert_allclose(got[0], [-0.5, 0, 0, -0.1, -0.4], atol=1e-6)


MINILLM = {  # d = -gap = (-.5, .2, -.1, -.4); what follows each token
  "paper": (dict(), [-0.1, -0.25, -0.4, 0]),  # (.2 - .1 - .4)/3, (-.1 - .4)/2, -.4
  "sum": (dict(length_normalise=False), [-0.3, -0.5, -0.4, 0]),
  "discounted": (dict(discount=0.5), [0.05 / 1.75, -0.3 / 1.5, -0.4, 0]),  # .2 - .05 - .1 over 1 + .5 + .25
  "own": (dict(single_step=False), [-0.2, -0.1, -0.25, -0.4]),
}


@pytest.mark.parametrize("kwargs, want", MINILLM.values(), ids=MINILLM)
def test_minillm_return(kwargs, want, make_rollout, apply):
  rollout = gap_rollout(make_rollout)
  got, _ = apply(credit.minillm_return(add=False, **kwargs), rollout)
  np.testing.assert_allclose(got[0, [0, 2, 3, 4]], want, atol=1e-6)
  got, _ = apply(credit.minillm_return(coef=-1.0, **kwargs), rollout, np.ones((1, 5)))
  np.testing.assert_allclose(got[0, [0, 2, 3, 4]], 1 - np.array(want), atol=1e-6)


V = 3
SEQUENCES = np.array(list(itertools.product(range(V), repeat=2)))  # all of two tokens
LOGITS, OTHER = (np.random.default_rng(i).normal(size=(1 + V, V)).astype(np.float32) for i in (0, 1))
REWARD = np.random.default_rng(2).normal(size=len(SEQUENCES)).astype(np.float32)


def token_log_probs(logits):
  """["n 2"]: row 0 holds the logits of the first token, row 1 + y those of the second after y."""
  log_p = jax.nn.log_softmax(logits)
  return jnp.stack([log_p[0, SEQUENCES[:, 0]], log_p[1 + SEQUENCES[:, 0], SEQUENCES[:, 1]]], axis=1)


def policy_gradient(advantages):
  """E_π[sum_t A_t ∇log π_t], over all sequences."""
  chance = np.exp(token_log_probs(LOGITS).sum(axis=1))
  return jax.grad(lambda logits: jnp.sum(chance[:, None] * advantages * token_log_probs(logits)))(LOGITS)


def objective(logits, coef):
  """E_π[r] - coef KL(π ‖ other) of whole sequences."""
  log_p, log_q = token_log_probs(logits).sum(axis=1), token_log_probs(OTHER).sum(axis=1)
  return jnp.sum(jnp.exp(log_p) * (REWARD - coef * (log_p - log_q)))


def enumerated(make_rollout, other):
  stats = {"old.log_probs": token_log_probs(LOGITS), f"{other}.log_probs": token_log_probs(OTHER)}
  return make_rollout(REWARD, action_mask=np.ones(SEQUENCES.shape), stats=stats)


def test_k1_in_the_reward_is_the_regularised_objective_and_k3_is_not(make_rollout, apply):
  rollout, want = enumerated(make_rollout, "reference"), jax.grad(objective)(LOGITS, 0.3)
  got, _ = apply(credit.kl_in_reward(0.3), rollout)
  np.testing.assert_allclose(policy_gradient(got[:, None]), want, atol=1e-6)
  parts = ("reward", credit.token_rewards()), ("kl", credit.kl_in_reward(0.3)), ("return", credit.discounted_return())
  tokens, _ = apply(credit.chain(*parts), rollout)
  np.testing.assert_allclose(policy_gradient(tokens), want, atol=1e-6)
  biased, _ = apply(credit.kl_in_reward(0.3, "k3"), rollout)
  assert np.max(np.abs(policy_gradient(biased[:, None]) - want)) > 0.01


def test_the_undiscounted_teacher_return_is_the_gradient_of_the_sequence_kl(make_rollout, apply):
  rollout = enumerated(make_rollout, "teacher")
  got, _ = apply(credit.teacher_log_ratio(discount=1.0, add=False), rollout)
  want = jax.grad(lambda x: objective(x, 1.0) - objective(x, 0.0))(LOGITS)
  np.testing.assert_allclose(policy_gradient(got), want, atol=1e-6)


def test_minillm_is_the_same_gradient_together_with_its_single_step_term(make_rollout, apply):
  """The single-step term is the reverse KL of each next-token distribution, the states it is met in held fixed."""
  rollout = enumerated(make_rollout, "teacher")
  later, _ = apply(credit.minillm_return(length_normalise=False, add=False), rollout)
  visits = np.concatenate([[1.0], np.exp(jax.nn.log_softmax(LOGITS[0]))])  # of the four states

  def single_step(logits):
    log_p, log_q = jax.nn.log_softmax(logits), jax.nn.log_softmax(OTHER)
    return -jnp.sum(visits[:, None] * jnp.exp(log_p) * (log_p - log_q))

  want = jax.grad(lambda x: objective(x, 1.0) - objective(x, 0.0))(LOGITS)
  np.testing.assert_allclose(policy_gradient(later) + jax.grad(single_step)(LOGITS), want, atol=1e-6)


OF_D = dict(k1=lambda d: d, k2=lambda d: d**2 / 2, k3=lambda d: np.exp(-d) - 1 + d)


@pytest.mark.parametrize("estimator, of_d", OF_D.items(), ids=OF_D)
def test_kl_is_summed_over_a_row_or_taken_from_each_token(estimator, of_d, make_rollout, apply):
  d = np.array([[9, 0.5, -0.25], [9, 1.0, 9]])
  stats = {"old.log_probs": d - 3, "reference.log_probs": np.full((2, 3), -3.0)}
  rollout = make_rollout([1, 2], action_mask=[[False, True, True], [False, True, False]], stats=stats)
  part = credit.kl_in_reward(0.1, estimator)
  got, _ = apply(part, rollout)
  np.testing.assert_allclose(got, [1 - 0.1 * (of_d(0.5) + of_d(-0.25)), 2 - 0.1 * of_d(1.0)], rtol=1e-6)
  got, _ = apply(part, rollout, np.ones((2, 3)))
  want = [[0, 1 - 0.1 * of_d(0.5), 1 - 0.1 * of_d(-0.25)], [0, 1 - 0.1 * of_d(1.0), 0]]
  np.testing.assert_allclose(got, want, rtol=1e-6)
