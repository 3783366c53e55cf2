"""Ratio losses by hand; limits in which one is another; what all of them share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import ACTION, ADVANTAGES, INF, LOG_RATIO, evaluate, one, rollout

from rlvr_jax import objectives
from rlvr_jax.objectives import reducers

PULLS_BACK = objectives.mirror_descent(0.5, length_mean=True)  # to the old policy, whatever the advantage
SURROGATES = [
  objectives.cispo(), objectives.cispo(high=INF), objectives.clipped_surrogate(),
  objectives.clipped_surrogate(0.0, 0.0), objectives.clipped_surrogate(dual_clip=3.0),
  objectives.dppo_tv(), objectives.dppo_tv(1, 1, cap=INF), objectives.gmpo(), objectives.gmpo(0.0),
  objectives.gspo(), objectives.gspo(form="token"),
  PULLS_BACK, objectives.reinforce(), objectives.sapo(), objectives.vespo(), objectives.vespo(0, 0, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize("term", SURROGATES, ids=range(len(SURROGATES)))
def test_first_on_policy_gradient_is_the_advantage_times_grad_log_prob(term):
  _, grad = evaluate(term, np.zeros(ACTION.shape), ADVANTAGES, ACTION)
  np.testing.assert_allclose(grad, -ADVANTAGES / ACTION.sum(1, keepdims=True) / 3, rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("term", SURROGATES, ids=range(len(SURROGATES)))
@pytest.mark.parametrize("far", [-200.0, 200.0])
def test_a_ratio_far_out_of_range_spoils_no_other_row(term, far):
  """Its own loss may be infinite, where the method says so, but is a number; and nothing without an advantage.

  Row 0 is the same each time; rows 1 to 3 have the far ratio and a gain, nothing and a loss.
  """
  log_ratio = jnp.array([[0.1, 0.1]] + [[far, 0.0]] * 3)
  advantages = jnp.array([[1.0], [1.0], [0.0], [-1.0]]) * jnp.ones((1, 2))
  batch = rollout(np.ones(log_ratio.shape, bool), **{"old.log_probs": jnp.full(log_ratio.shape, -1.0)})
  of_rows = lambda log_probs: jnp.sum(term.loss(dict(log_probs=log_probs), batch, advantages)[0], axis=1)
  value, back = jax.vjp(of_rows, log_ratio - 1)
  grad = jnp.stack([back(row)[0][i] for i, row in enumerate(jnp.eye(4))])
  assert not np.isnan(value).any() and not np.isnan(grad).any()
  if term is not PULLS_BACK:
    assert value[2] == 0 and not grad[2].any()
  alone = evaluate(term, log_ratio[:1], advantages[:1])
  np.testing.assert_allclose(value[0], alone[0].sum(), rtol=1e-6)
  np.testing.assert_allclose(grad[0], 2 * alone[1][0], rtol=1e-6)


# --- one is another in a limit, bit for bit ---

WIDE = objectives.clipped_surrogate(INF, INF)


@pytest.mark.parametrize("form", ["sequence", "token"])
def test_gspo_of_rows_of_one_token_is_the_clipped_surrogate(form):
  same = [
    evaluate(make, LOG_RATIO[:, 1:2], ADVANTAGES[:, 1:2], ACTION[:, 1:2])
    for make in (objectives.gspo(0.1, 0.2, form), objectives.clipped_surrogate(0.1, 0.2))
  ]
  jax.tree.map(np.testing.assert_array_equal, *same)


@pytest.mark.parametrize(
  "term, host, values",
  [
    (objectives.cispo(high=INF), WIDE, False),
    (objectives.dppo_tv(1, 1, cap=INF), WIDE, False),
    (objectives.clipped_surrogate(dual_clip=1e9), objectives.clipped_surrogate(), True),
    (objectives.vespo(0, 0, 0, 0), objectives.reinforce(), True),
  ],
  ids=["cispo", "dppo_tv", "dual_clip", "vespo"],
)
def test_neutral_settings_equal_the_host(term, host, values):
  got, want = (evaluate(t, LOG_RATIO, ADVANTAGES, ACTION) for t in (term, host))
  np.testing.assert_array_equal(got[1], want[1])
  if values:
    np.testing.assert_array_equal(got[0], want[0])


def test_unclipped_gmpo_and_gspo_are_one():
  got, want = (
    evaluate(t, LOG_RATIO, ADVANTAGES, ACTION) for t in (objectives.gmpo(INF), objectives.gspo(INF, INF))
  )  # fmt: skip
  np.testing.assert_array_equal(got[0], want[0])
  np.testing.assert_allclose(got[1], want[1], rtol=1e-6)  # sums in another order


def test_a_flat_sapo_is_the_unclipped_ratio():
  np.testing.assert_allclose(one(objectives.sapo(1e-3, 1e-3), 1.7, 1.0)[1], -1.7, rtol=1e-4)


def test_mirror_descent_at_zero_is_reinforce():
  """The row's value stands on each of its tokens, and its gradient is the sum of theirs."""
  got = evaluate(objectives.mirror_descent(0.0), LOG_RATIO, ADVANTAGES, ACTION)[1]
  want = evaluate(objectives.reinforce(), LOG_RATIO, ADVANTAGES, ACTION, reducers.sequence_sum)[1]
  np.testing.assert_allclose(got, want, rtol=1e-6)


# --- by hand ---


def test_both_forms_of_gspo_have_one_value_and_one_gradient():
  """Under sequence_mean, rows clipped on either side and unclipped ones included."""
  both = [
    evaluate(objectives.gspo(0.1, 0.1, form), LOG_RATIO, ADVANTAGES, ACTION) for form in ("sequence", "token")
  ]  # fmt: skip
  clipped = [row.any() for row in both[0][1]]
  assert any(clipped) and not all(clipped)
  for a, b in zip(*both):
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_gspo_by_hand():
  """Log-ratios .3 and .1: s = e^.2, on both tokens; each has half of its slope. Clipped at 1.1: 1.1 and no slope."""
  value, grad = evaluate(objectives.gspo(0.3, 0.3), [[0.3, 0.1]], [[2.0, 2.0]])
  np.testing.assert_allclose(value, [[-2.442806, -2.442806]], rtol=1e-6)
  np.testing.assert_allclose(grad, [[-1.221403, -1.221403]], rtol=1e-6)
  value, grad = evaluate(objectives.gspo(0.1, 0.1), [[0.3, 0.1]], [[2.0, 2.0]])
  np.testing.assert_allclose(value, [[-2.2, -2.2]], rtol=1e-6)
  assert not grad.any()


def test_token_gspo_takes_advantages_of_tokens():
  grad = evaluate(objectives.gspo(0.3, 0.3, "token"), [[0.3, 0.1]], [[2.0, 1.0]])[1]
  np.testing.assert_allclose(grad, [[-1.221403, -0.610701]], rtol=1e-6)


@pytest.mark.parametrize(
  "log_ratio, advantage, value, grad",
  [
    ([0.6, -0.2], 1.0, -1.105171, [0.0, -0.552585]),  # exp((.4 - .2)/2)
    ([0.6, -0.2], -1.0, 1.221403, [0.610701, 0.610701]),  # a gain is not bounded for a loss
    ([-0.6, 0.2], -1.0, 0.904837, [0.0, 0.452419]),  # exp((-.4 + .2)/2)
    ([0.6, -0.2], 0.0, 0.0, [0.0, 0.0]),
  ],
)
def test_gmpo_by_hand(log_ratio, advantage, value, grad):
  got = evaluate(objectives.gmpo(0.4), [log_ratio], [[advantage] * 2])
  np.testing.assert_allclose(got[0], [[value, value]], rtol=2e-6)
  np.testing.assert_allclose(got[1], [grad], rtol=2e-6)


@pytest.mark.parametrize(
  "kwargs, weights",
  [
    (dict(high=5.0), (0.5, 1.25, 5.0)),  # TRL: the bound itself
    (dict(low=0.8, high=1.2), (0.8, 1.2, 1.2)),  # verl, NeMo-RL, slime, SkyRL: 1 - .2 and 1 + .2
    (dict(high=1.28), (0.5, 1.25, 1.28)),  # open-instruct: 1 + .28 only
  ],
)
def test_cispo_conventions(kwargs, weights):
  for ratio, weight in zip((0.5, 1.25, 6.0), weights):
    value, slope = one(objectives.cispo(**kwargs), ratio, 2.0)
    np.testing.assert_allclose(slope, -2 * weight, rtol=1e-6)  # a clipped token keeps a gradient
    np.testing.assert_allclose(value, -2 * weight * (np.log(ratio) - 1), rtol=1e-5)


@pytest.mark.parametrize(
  "ratio, advantage, value, slope",
  [
    (1.0, 1.0, -2.0, -1.0),  # 4 σ(0) = 2
    (2.0, 1.0, -2.924234, -1.572895),  # 4 σ(1), and 4 σ (1 - σ) times the ratio
    (0.5, -1.0, 1.415939, 0.467072),  # (4/1.05) σ(-.525)
    (1.0, -3.0, 5.714286, 3.0),
    (2.0, 0.0, 0.0, 0.0),
  ],
)
def test_sapo_by_hand(ratio, advantage, value, slope):
  np.testing.assert_allclose(one(objectives.sapo(), ratio, advantage), (value, slope), rtol=5e-6)


def test_sapo_closes_for_a_ratio_that_overflows():
  assert one(objectives.sapo(), np.exp(100.0), 1.0) == (-4.0, 0.0)


@pytest.mark.parametrize(
  "ratio, advantage, weight",
  [
    (2.0, 1.0, 0.199148),  # 2² e^-3
    (2.0, -1.0, 1.082682),  # 2³ e^-2
    (0.5, 1.0, 1.120422),  # e^1.5 / 4
    (0.5, -1.0, 0.339785),  # e / 8
    (1.0, -1.0, 1.0),
  ],
)
def test_vespo_by_hand(ratio, advantage, weight):
  np.testing.assert_allclose(one(objectives.vespo(), ratio, advantage)[1], -weight * advantage, rtol=5e-6)


def test_vespo_weighs_by_the_product_over_the_row():
  log_ratio = [[np.log(4.0), np.log(0.5)]]  # W = 2
  grad = evaluate(objectives.vespo(), log_ratio, [[1.0, 1.0]], reduce=reducers.token_mean)[1]
  np.testing.assert_allclose(grad, [[-0.099574, -0.099574]], rtol=5e-6)


@pytest.mark.parametrize(
  "old, new, advantage, weight",
  [
    (0.5, 0.8, 1.0, 0.0),  # up by .3 > .2
    (0.5, 0.8, -1.0, 1.6),  # the same move is one that a loss does not ask for
    (0.5, 0.2, -1.0, 0.0),  # down by .3
    (0.5, 0.2, 1.0, 0.4),
    (0.001, 0.01, 1.0, 10.0),  # ten times as likely, and still rare
    (0.001, 0.05, 1.0, 20.0),  # the weight is capped, not dropped
  ],
)
@pytest.mark.parametrize("view", ["old", "behaviour"])
def test_dppo_by_hand(old, new, advantage, weight, view):
  batch = rollout(np.ones((1, 1), bool), **{f"{view}.log_probs": np.log([[old]])})
  term = objectives.dppo_tv(view=view)
  assert f"{view}.log_probs" in term.needs
  loss = lambda x: term.loss(dict(log_probs=x), batch, jnp.array([[advantage]]))[0][0, 0]
  np.testing.assert_allclose(jax.grad(loss)(jnp.log(jnp.array([[new]]))), [[-weight * advantage]], rtol=1e-5)


@pytest.mark.parametrize("view, value", [("old", -2 * np.exp(0.1)), ("behaviour", -2 * 1.2)])
def test_the_clipped_ratio_may_be_to_the_sampler(view, value):
  """log π - log π_old = 0.1 is inside the bounds, log π - log μ = 0.5 is clipped at 1.2."""
  batch = rollout(np.ones((1, 1), bool), **{"old.log_probs": [[-1.1]], "behaviour.log_probs": [[-1.5]]})
  term = objectives.clipped_surrogate(view=view)
  assert term.needs == ("log_probs", f"{view}.log_probs", "advantages")
  loss, _ = term.loss(dict(log_probs=jnp.array([[-1.0]])), batch, jnp.array([[2.0]]))
  np.testing.assert_allclose(loss, [[value]], rtol=1e-6)
