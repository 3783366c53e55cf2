"""Regressions, penalties, critics and teachers by hand, in loops and at their optimum; sweeps; errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import ACTION, ADVANTAGES, INF, LOG_RATIO, evaluate, rollout

from rlvr_jax import distill, objectives
from rlvr_jax.credit.optimal_advantage import optimal_advantage
from rlvr_jax.objectives import reducers

RNG = np.random.default_rng(0)


def test_kl_cov_penalty_by_hand():
  marks = {"credit.kl_cov": [[1, 0, 1, 1]]}
  value, grad = evaluate(
    objectives.kl_cov_penalty(), [[0.3, 0.5, -0.2, 0.0]], [[0.0] * 4], reduce=reducers.token_sum, **marks
  )
  np.testing.assert_allclose(value, [[0.3, 0, 0.2, 0]], atol=1e-6)
  np.testing.assert_array_equal(grad, [[1, 0, -1, 0]])


REWARD = jnp.array([0.2, 1.0, 0.5])
REFERENCE = jax.nn.log_softmax(jnp.array([0.3, -0.7, 1.1]))


def of_every_token(term, logits, advantages, **more):
  """One row per token of a vocabulary of three; loss of the mean, and its gradient by the logits and by log Z."""
  batch = rollout(
    np.ones((3, 1), bool), **{"reference.log_probs": REFERENCE[:, None], "old.log_probs": REFERENCE[:, None]}
  )

  def loss(logits, more):
    current = dict(log_probs=jax.nn.log_softmax(logits)[:, None]) | {k: jnp.full((3, 1), x) for k, x in more.items()}
    return jnp.mean(term.loss(current, batch, advantages[:, None])[0])

  return jax.value_and_grad(loss, argnums=(0, 1))(logits, more)


def test_a_star_po_is_solved_by_the_tilted_reference():
  """π ∝ ref exp(r/β) with V* = β log E_ref exp(r/β): no residual, for any answer. At the reference there is one."""
  beta = 0.5
  best = beta * jnp.log(jnp.sum(jnp.exp(REFERENCE + REWARD / beta)))
  solve = lambda logits: of_every_token(objectives.a_star_po(beta), logits, REWARD - best)
  value, grads = solve(REFERENCE + REWARD / beta)
  assert value < 1e-10 and np.abs(grads[0]).max() < 1e-5
  assert solve(REFERENCE)[0] == pytest.approx(float(jnp.mean((REWARD - best) ** 2)))


def test_a_star_po_in_a_loop():
  ref = np.where(ACTION, RNG.normal(-2, 0.5, ACTION.shape), np.nan)
  value, grad = evaluate(
    objectives.a_star_po(0.3), LOG_RATIO, ADVANTAGES, ACTION, **{"reference.log_probs": ref}
  )  # fmt: skip
  losses = []
  for i in range(3):
    residual = 0.3 * sum((LOG_RATIO[i] - 1 - ref[i])[ACTION[i]]) - ADVANTAGES[i][ACTION[i]][0]
    losses.append(residual**2)
    np.testing.assert_allclose(value[i][ACTION[i]], residual**2, rtol=1e-5)
    np.testing.assert_allclose(grad[i], 2 * residual * 0.3 * ACTION[i] / 3, rtol=1e-5)
  weights = reducers.sequence_mean()(rollout(ACTION))
  np.testing.assert_allclose(np.sum(weights.token * value) / weights.total, np.mean(losses), rtol=1e-6)


def test_optimal_advantage():
  """r = (1, 0, 0, 0), β1 = .5: V* = .5 log((e² + 3)/4) = 0.477229; the mean and the largest reward at the ends."""
  batch = rollout(np.ones((5, 1), bool), [0] * 5, np.arange(5) < 4)
  reward = jnp.array([1.0, 0, 0, 0, jnp.nan])
  of = lambda beta: np.asarray(optimal_advantage(beta).update(reward, {}, batch)[0])
  np.testing.assert_allclose(of(0.5), [0.522771, -0.477229, -0.477229, -0.477229, 0], atol=1e-5)
  np.testing.assert_allclose(of(1e3), [0.75, -0.25, -0.25, -0.25, 0], atol=1e-3)
  np.testing.assert_allclose(of(1e-3), [0, -1, -1, -1, 0], atol=2e-3)


@pytest.mark.parametrize("length_mean", [False, True])
def test_mirror_descent_in_a_loop(length_mean):
  """Its gradient is that of (A - τ S)² / (2τ): -(A - τ S) ∇S."""
  tau = 0.4
  value, grad = evaluate(objectives.mirror_descent(tau, length_mean), LOG_RATIO, ADVANTAGES, ACTION)
  for i in range(3):
    count = ACTION[i].sum() if length_mean else 1
    s, a = LOG_RATIO[i].sum() / count, ADVANTAGES[i][ACTION[i]][0]
    np.testing.assert_allclose(value[i][ACTION[i]], -a * s + tau / 2 * s**2, rtol=1e-5)
    np.testing.assert_allclose(grad[i], -(a - tau * s) * ACTION[i] / count / 3, rtol=1e-5)


@pytest.mark.parametrize("length_mean", [False, True])
def test_flow_rl_in_a_loop(length_mean):
  ref, log_z = (np.where(ACTION, RNG.normal(-2, 0.5, ACTION.shape), np.nan) for _ in range(2))
  term = objectives.flow_rl(2.0, 0.2, 0.3, length_mean)
  batch = rollout(ACTION, **{"reference.log_probs": ref, "old.log_probs": np.full(ACTION.shape, -1.0)})

  def loss(log_probs, log_z):
    per_token, _ = term.loss(dict(log_probs=log_probs, log_z=log_z), batch, jnp.asarray(ADVANTAGES, jnp.float32))
    return jnp.sum(jnp.where(ACTION, per_token, 0.0)[:, 1:] * jnp.eye(3)), per_token  # one token of each row

  given = jnp.asarray(LOG_RATIO - 1, jnp.float32), jnp.asarray(log_z, jnp.float32)
  grads, value = jax.grad(loss, argnums=(0, 1), has_aux=True)(*given)
  for i in range(3):
    on, first = ACTION[i], np.argmax(ACTION[i])
    over = np.mean if length_mean else np.sum
    residual = log_z[i][first] + over((LOG_RATIO[i] - 1 - ref[i])[on]) - 2.0 * ADVANTAGES[i][on][0]
    weight = np.clip(np.exp(LOG_RATIO[i][on].sum()), 0.8, 1.3)
    np.testing.assert_allclose(np.asarray(value)[i][on], weight * residual**2, rtol=1e-5)
    np.testing.assert_allclose(
      grads[0][i], 2 * weight * residual * on / (on.sum() if length_mean else 1), rtol=1e-5
    )  # fmt: skip
    np.testing.assert_allclose(grads[1][i], 2 * weight * residual * (np.arange(4) == first), rtol=1e-5)


def test_flow_rl_is_solved_by_the_tilted_reference():
  """π ∝ ref exp(β R) and log Z of it: neither the policy nor log Z has a gradient."""
  beta = 3.0
  log_z = float(jax.nn.logsumexp(REFERENCE + beta * REWARD))
  solved = of_every_token(objectives.flow_rl(beta), REFERENCE + beta * REWARD, REWARD, log_z=log_z)
  assert solved[0] < 1e-10 and max(np.abs(x).max() for x in jax.tree.leaves(solved[1])) < 1e-5
  off = of_every_token(objectives.flow_rl(beta), REFERENCE, REWARD, log_z=log_z)
  assert off[0] > 0.1 and abs(off[1][1]["log_z"]) > 0.01


@pytest.mark.parametrize(
  "value, old, returns, clip, loss, slope",
  [
    (1.0, 0.5, 3.0, None, 2.0, -2.0),  # half of 2²
    (1.0, 0.5, 3.0, 0.2, 2.645, 0.0),  # clipped to .7, whose error 2.3 is the larger: no further
    (1.0, 0.5, 0.0, 0.2, 0.5, 1.0),  # it may come back
    (0.6, 0.5, 3.0, 0.2, 2.88, -2.4),  # inside
    (0.0, 0.5, -3.0, 0.2, 5.445, 0.0),  # clipped to .3
    (0.0, 0.5, 3.0, 0.2, 4.5, -3.0),
    (0.5, 0.5, 3.0, 0.2, 3.125, -2.5),  # the first update: all of the gradient
  ],
)
def test_value_loss_by_hand(value, old, returns, clip, loss, slope):
  term = objectives.value_loss(clip)
  batch = rollout(np.ones((1, 1), bool), **{"old.value": [[old]], "credit.returns": [[returns]]})
  of = lambda x: term.loss(dict(value=jnp.full((1, 1), x)), batch, None)[0][0, 0]
  np.testing.assert_allclose(jax.value_and_grad(of)(value), (loss, slope), rtol=1e-5, atol=1e-7)
  assert set(term.needs) == {"value", "credit.returns"} | ({"old.value"} if clip else set())


def test_sampled_reverse_kl_has_the_gradient_of_k2():
  """d ∇log π; d is .5 and -.2. With a ratio to π_old of e^.3 and e^-.1, and bounded by 1.2."""
  term, teacher = objectives.sampled_reverse_kl(), dict(reduce=reducers.token_sum, view="teacher")
  value, grad = evaluate(term, [[0.5, -0.2]], [[0.0, 0.0]], **teacher)
  np.testing.assert_allclose(grad, [[0.5, -0.2]], rtol=1e-5)
  np.testing.assert_allclose(value, [[-0.25, 0.24]], rtol=1e-5)  # d log π, which only its gradient is for
  old = {"old.log_probs": [[-0.8, -1.1]]}
  grad = evaluate(objectives.sampled_reverse_kl(max_ratio=1.2), [[0.5, -0.2]], [[0.0, 0.0]], **teacher, **old)[1]
  np.testing.assert_allclose(grad, [[0.5 * 1.2, -0.2 * np.exp(-0.1)]], rtol=1e-5)


@pytest.mark.parametrize("max_ratio", [None, INF])
def test_sampled_reverse_kl_expects_the_gradient_of_the_divergence(max_ratio):
  """Over all three tokens; with the ratio, over tokens of another policy than π."""
  logits = jnp.array([0.5, 0.1, -0.4])
  sampler = jax.nn.log_softmax(logits) if max_ratio is None else jax.nn.log_softmax(jnp.array([-0.3, 0.4, 0.2]))
  term = objectives.sampled_reverse_kl(max_ratio=max_ratio)
  batch = rollout(
    np.ones((3, 1), bool), **{"teacher.log_probs": REFERENCE[:, None], "old.log_probs": sampler[:, None]}
  )  # fmt: skip
  p = jnp.exp(sampler)
  loss = lambda x: jnp.sum(p * term.loss(dict(log_probs=jax.nn.log_softmax(x)[:, None]), batch, None)[0][:, 0])
  truth = lambda x: distill.reverse_kl(jax.nn.log_softmax(x), REFERENCE)
  np.testing.assert_allclose(jax.grad(loss)(logits), jax.grad(truth)(logits), atol=1e-6)


@pytest.mark.parametrize("term", [objectives.generalised_jsd(0.3, "hint"), objectives.top_k_kl(2, view="hint")])
def test_distillation_terms_hand_over_their_divergence(term):
  ((name, divergence),) = term.divergences.items()
  assert divergence.view == "hint" and term.needs == ()
  np.testing.assert_array_equal(term.loss({name: jnp.ones((1, 2))}, None, None)[0], np.ones((1, 2)))
  assert divergence.fn(jnp.zeros((1, 2, 3)), jnp.zeros((1, 2, 3))).shape == (1, 2)


SWEPT = {
  "a_star_po": lambda x: objectives.a_star_po(x),
  "cispo": lambda x: objectives.cispo(1 - x, 1 + x),
  "clipped_surrogate": lambda x: objectives.clipped_surrogate(x, x, 1 + x),
  "dppo_tv": lambda x: objectives.dppo_tv(x, x, 1 + x),
  "gmpo": lambda x: objectives.gmpo(x),
  "gspo": lambda x: objectives.gspo(x, x),
  "mirror_descent": lambda x: objectives.mirror_descent(x),
  "sampled_reverse_kl": lambda x: objectives.sampled_reverse_kl("reference", 1 + x),
  "sapo": lambda x: objectives.sapo(x, x),
  "vespo": lambda x: objectives.vespo(x, x, x, x),
  "value_loss": lambda x: objectives.value_loss(x),
  "flow_rl": lambda x: objectives.flow_rl(x, x, x),
}


@pytest.mark.parametrize("name", SWEPT)
def test_a_sweep_may_trace_numbers(name):
  old, noise = np.full(ACTION.shape, -1.0), np.where(ACTION, RNG.normal(0, 0.5, ACTION.shape), np.nan)
  stats = {"old.log_probs": old, "reference.log_probs": noise - 1, "old.value": noise, "credit.returns": noise + 1}
  batch = rollout(ACTION, **stats)
  current = {k: jnp.asarray(LOG_RATIO - 1, jnp.float32) for k in ("log_probs", "value", "log_z")}
  of = lambda x: SWEPT[name](x).loss(current, batch, jnp.asarray(ADVANTAGES, jnp.float32))[0] * ACTION
  numbers = (0.05, 0.3)
  np.testing.assert_allclose(jax.vmap(of)(jnp.array(numbers)), [of(x) for x in numbers], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
  "make, words",
  [
    (lambda: objectives.a_star_po(0), "a_star_po: beta2 must be > 0, got 0"),
    (lambda: objectives.cispo(low=1.2), "cispo: low must be >= 0 and <= 1, got 1.2"),
    (lambda: objectives.cispo(high=0.2), "cispo: high must be >= 1, got 0.2"),
    (lambda: objectives.dppo_tv(delta_low=2), "delta_low must be >= 0 and <= 1, got 2"),
    (lambda: objectives.dppo_tv(view="reference"), "no 'reference'"),
    (lambda: objectives.flow_rl(beta=-1), "beta must be > 0, got -1"),
    (lambda: objectives.generalised_jsd(beta=2), "beta must be >= 0 and <= 1, got 2"),
    (lambda: objectives.gmpo(clip=-0.4), "clip must be >= 0, got -0.4"),
    (lambda: objectives.gspo(form="tokens"), "did you mean 'token'"),
    (lambda: objectives.gspo(clip_high=float("nan")), "clip_high must be >= 0, got nan"),
    (lambda: objectives.mirror_descent(-1), "tau must be >= 0, got -1"),
    (lambda: objectives.sampled_reverse_kl(max_ratio=0.5), "max_ratio must be >= 1, got 0.5"),
    (lambda: objectives.sapo(tau_negative=0), "tau_negative must be > 0, got 0"),
    (lambda: objectives.top_k_kl(3, tail="none"), "no 'none'"),
    (lambda: objectives.value_loss(clip=0), "clip must be > 0, got 0"),
    (lambda: objectives.vespo(k_positive=-1), "k_positive must be >= 0, got -1"),
  ],
)
def test_errors(make, words):
  with pytest.raises(ValueError, match=words):
    make()
