"""The train step as a whole: numbers by hand, invariances, compilation, errors. The model is a table of transitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from table import Table

from rlvr_jax import credit, models, objectives
from rlvr_jax.core import Rollout, Term
from rlvr_jax.objectives import reducers
from rlvr_jax.sharding import make_mesh, place
from rlvr_jax.train import make_train_step, optimisers

V, N, T = 5, 8, 6


def make(n=N, vocab=V, temperature=1.0, params=None):
  """Two groups per four rows, ragged lengths, actions from column 2 on; behaviour is the table's own when given."""
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, vocab, (n, T)).astype(np.int32)
  action = (np.arange(T) >= 2) & (np.arange(T) < 3 + np.arange(n)[:, None] % 4)
  behaviour = np.zeros((n, T), np.float32)
  if params is not None:
    log_p = np.asarray(jax.nn.log_softmax(params["table"] / temperature))
    behaviour[:, 1:] = log_p[tokens[:, :-1], tokens[:, 1:]]
  return Rollout(
    tokens=tokens, valid_mask=np.ones((n, T), bool), action_mask=action, prompt_id=np.arange(n) // 4,
    group_id=np.arange(n) // 4, row_mask=np.ones(n, bool), reward=(np.arange(n) % 3 == 0).astype(np.float32),
    rewards={}, behaviour_log_probs=behaviour * action, truncated=np.zeros(n, bool),
    policy_version=np.zeros(n, np.int32), num_groups=n // 4, first_action=2,
  )  # fmt: skip


def table():
  return dict(table=jax.random.normal(jax.random.key(1), (V, V)))


def grpo(term=None):
  return (
    credit.chain(("g", credit.group_normalise()), ("s", credit.spread_over_tokens())),
    [("policy", 1.0, term or objectives.clipped_surrogate())],
    reducers.token_mean(),
  )


def run(rollout, params=None, num_steps=1, parts=None, optimiser=None, **kwargs):
  made = make_train_step(Table(), optimiser or optimisers.sgd(1.0), *(parts or grpo()), **kwargs)
  state, step = made.init(params or table(), 3), jax.jit(made.step)
  for _ in range(num_steps):
    state, metrics = step(state, rollout)
  return state, {k: float(m.mean()) for k, m in metrics.items()}


def moved(state):
  return np.asarray(table()["table"] - state.params["table"])


def test_first_on_policy_gradient_is_reinforce_by_hand():
  """-(1/N) sum A ∇log π with ∇log π(y | x) = onehot(y) - π(. | x), in a plain loop."""
  rollout, params = make(), np.asarray(table()["table"], np.float64)
  p = np.exp(params) / np.exp(params).sum(1, keepdims=True)
  want, count = np.zeros((V, V)), rollout.action_mask.sum()
  for i in range(N):
    group = rollout.reward[rollout.group_id == rollout.group_id[i]]
    advantage = (rollout.reward[i] - group.mean()) / (group.std() + 1e-6)
    for j in np.flatnonzero(rollout.action_mask[i]):
      x, y = rollout.tokens[i, j - 1], rollout.tokens[i, j]
      want[x] -= advantage * (np.eye(V)[y] - p[x]) / count
  for term in (objectives.clipped_surrogate(), objectives.reinforce()):
    np.testing.assert_allclose(moved(run(rollout, parts=grpo(term))[0]), want, atol=1e-6)


def test_golden_step():
  """Numbers of one whole step. A change here is a change of what everyone trains: say in the commit why they moved."""
  parts = (
    grpo()[0],
    [
      ("policy", 1.0, objectives.clipped_surrogate()),
      ("kl", 0.1, objectives.kl_to_reference()),
      ("bonus", 0.01, objectives.entropy_bonus()),
    ],
    reducers.sequence_mean(),
  )
  optimiser = optimisers.adamw(0.05, clip_norm=0.5, weight_decay=0.1)
  rollout = make(params=table()).replace(row_mask=np.arange(N) != 6)
  state, metrics = run(rollout, parts=parts, optimiser=optimiser, temperature=0.8, num_epochs=4)
  assert metrics == pytest.approx(GOLDEN, abs=2e-5)
  assert int(state.step) == 1 and int(state.seed) == 3


GOLDEN = {
  "advantage_mean": 0.0, "advantage_std": 0.76696, "bonus": -1.20414, "entropy": 1.20799, "grad_norm": 0.17332,
  "groups_without_signal": 0.5, "kl": 0.0089, "kl/kl": 0.00928, "log_probs": -2.1369, "loss": -0.05604,
  "num_tokens": 17.0, "policy": -0.04489, "policy/approx_kl": 0.00969, "policy/clip_fraction": 0.13235,
  "policy/clip_fraction_low": 0.01471, "policy/ratio_max": 1.42734, "sampler_mismatch": 0.25334,
  "sampler_mismatch_max": 0.63119, "update_norm": 0.22211,
}  # fmt: skip


@pytest.mark.parametrize("reducer", [reducers.token_mean(), reducers.prompt_mean()])
def test_one_two_four_and_eight_microbatches_are_equal(reducer):
  rollout = make()
  parts = (*grpo()[:2], reducer)
  whole, metrics = run(rollout, parts=parts)
  for count in (2, 4, 8):
    state, got = run(rollout, parts=parts, num_microbatches=count)
    np.testing.assert_allclose(moved(state), moved(whole), atol=1e-6)
    assert got == pytest.approx(metrics, abs=1e-5)


def test_temperature_is_the_samplers():
  """At 0.7 the log-probs are those that a sampler at 0.7 reports, so nothing is mismatched; at 1 it is."""
  rollout = make(params=table(), temperature=0.7)
  assert run(rollout, temperature=0.7)[1]["sampler_mismatch_max"] < 1e-5
  assert run(rollout)[1]["sampler_mismatch_max"] > 0.1


def test_old_detached_equals_old_recomputed():
  """One update per rollout: `old` for free, against a pass of its own that a need of the credit forces."""
  reads = credit.stateless(lambda x, r: x + 0 * r.stats["old.entropy"], needs=("old.log_probs", "old.entropy"))
  chain = credit.chain(
    ("g", credit.group_normalise()), ("s", credit.spread_over_tokens()), ("r", reads)
  )  # fmt: skip
  free, scored = run(make())[0], run(make(), parts=(chain, *grpo()[1:]))[0]
  np.testing.assert_allclose(moved(free), moved(scored), atol=1e-6)


def test_two_epochs_keep_the_old_policy():
  """By hand: the second full-batch update takes ratios to the policy before the first."""
  rollout, term = make(), objectives.clipped_surrogate()
  state, metrics = run(rollout, num_epochs=2)
  given = run(rollout)[0]
  second = make_train_step(Table(), optimisers.sgd(1.0), *grpo(), supplied=("old.log_probs",))
  old = make_train_step(Table(), optimisers.sgd(1.0), *grpo(term)).score(table(), rollout, ("log_probs",))["log_probs"]
  after, _ = second.step(given, rollout.replace(stats={"old.log_probs": old}))
  np.testing.assert_allclose(state.params["table"], after.params["table"], atol=1e-6)
  assert metrics["policy/ratio_max"] > 1.0


def test_minibatches_draw_rows_anew_from_seed_and_step():
  """Two minibatches differ from one batch; the draw follows from seed and step, so it repeats, and moves on."""
  rollout = make()
  once, again = (run(rollout, num_minibatches=2, num_steps=2)[0] for _ in range(2))
  np.testing.assert_array_equal(moved(once), moved(again))
  made = make_train_step(Table(), optimisers.sgd(1.0), *grpo(), num_minibatches=2)
  step, state = jax.jit(made.step), made.init(table(), 3)
  ends = [
    step(s, rollout)[0].params["table"] for s in (state, state.replace(step=state.step + 1), made.init(table(), 4))
  ]
  assert all(np.abs(ends[0] - other).max() > 1e-4 for other in ends[1:])


def test_minibatches_see_every_row_once():
  """A loss linear in the parameters, each row with its own token: two half updates add up to one whole step."""
  linear = Term(lambda current, rollout, advantages: (-current["log_probs"], {}), needs=("log_probs",))
  rollout = make()
  rollout = rollout.replace(tokens=np.tile(np.arange(N)[:, None] % V, (1, T)).astype(np.int32))
  rollout = rollout.replace(action_mask=np.tile(np.arange(T) == 3, (N, 1)))
  small = dict(optimiser=optimisers.sgd(1e-3), parts=(None, [("nll", 1.0, linear)], reducers.token_mean()))
  whole, halves = run(rollout, **small)[0], run(rollout, num_minibatches=2, **small)[0]
  np.testing.assert_allclose(moved(halves), 2 * moved(whole), atol=2e-6)


def test_reference_is_the_initial_policy_and_absent_when_off():
  made = make_train_step(Table(), optimisers.sgd(1.0), *grpo())
  assert made.init(table(), 0).anchors == {}
  text = str(jax.make_jaxpr(made.step)(made.init(table(), 0), make()))
  parts = (grpo()[0], [*grpo()[1], ("kl", 0.1, objectives.kl_to_reference())], grpo()[2])
  with_kl = make_train_step(Table(), optimisers.sgd(1.0), *parts)
  more = str(jax.make_jaxpr(with_kl.step)(with_kl.init(table(), 0), make()))
  assert more.count("dot_general") > text.count("dot_general")  # one more pass through the head, only when on
  state, metrics = run(make(), num_steps=3, parts=parts)
  np.testing.assert_array_equal(state.anchors["reference"]["table"], table()["table"])
  assert metrics["kl"] > 0 and metrics["kl/kl"] > 0


def test_supervised_step_without_credit():
  parts = (None, [("nll", 1.0, objectives.negative_log_likelihood())], reducers.token_mean())
  _, first = run(make().replace(behaviour_log_probs=None), parts=parts)
  _, tenth = run(make().replace(behaviour_log_probs=None), parts=parts, num_steps=10)
  assert tenth["nll"] < first["nll"] and "advantage_mean" not in first and "sampler_mismatch" not in first


def test_metrics_by_hand():
  rollout = make().replace(reward=np.array([1, 0, 0, 0, 1, 1, 1, 1], np.float32))
  _, metrics = run(rollout, report=("entropy",))
  p = np.asarray(jax.nn.softmax(table()["table"]))
  before = rollout.tokens[:, :-1][rollout.action_mask[:, 1:]]
  assert metrics["entropy"] == pytest.approx(-(p * np.log(p)).sum(1)[before].mean(), abs=1e-5)
  assert metrics["groups_without_signal"] == 0.5
  assert metrics["num_tokens"] == rollout.action_mask.sum()
  assert metrics["policy/clip_fraction"] == 0 and metrics["policy/ratio_max"] == 1
  assert metrics["grad_norm"] == pytest.approx(metrics["update_norm"], rel=1e-5)


def test_compiles_once_and_donates():
  """With a reference, whose buffers must not be the donated parameters."""
  parts = (grpo()[0], [*grpo()[1], ("kl", 0.1, objectives.kl_to_reference())], grpo()[2])
  made = make_train_step(Table(), optimisers.adamw(0.1), *parts, num_microbatches=2)
  traces = []

  def counted(state, rollout):
    traces.append(1)
    return made.step(state, rollout)

  step, state = jax.jit(counted, donate_argnums=0), made.init(table(), 0)
  for i in range(3):
    given = state
    state, _ = step(state, jax.tree.map(jnp.asarray, make().replace(reward=np.arange(N, dtype=np.float32) + i)))
    assert all(x.is_deleted() for x in jax.tree.leaves(given.params) + jax.tree.leaves(given.opt_state))
  assert len(traces) == 1 and step._cache_size() == 1
  step(state, make(n=16))
  assert len(traces) == 2  # another shape is another program


def test_decoder_on_eight_devices_equals_one_and_compiles_once():
  """The real model, its parameters split over fsdp and tensor, with a reference and microbatches."""
  config = models.tiny_config(16, width=8, num_layers=2, num_heads=2, num_kv_heads=2, mlp_width=16)
  model, rollout = models.Decoder(config), make(n=16, vocab=16)
  parts = (grpo()[0], [*grpo()[1], ("kl", 0.1, objectives.kl_to_reference())], grpo()[2])
  compiles, ends = [], []
  jax.monitoring.register_event_duration_secs_listener(
    lambda event, secs, **kw: compiles.append(kw) if "backend_compile" in event else None
  )
  for mesh in (make_mesh(devices=jax.devices()[:1]), make_mesh(2, 2, 2)):
    with jax.set_mesh(mesh):
      made = make_train_step(model, optimisers.sgd(0.5, momentum=0.9), *parts, num_microbatches=2, chunk_tokens=8)
      state = made.init(place(mesh, model.init(jax.random.key(0)), model.axes()), 0)
      placed, step = place(mesh, rollout, ("batch", "time")), jax.jit(made.step, donate_argnums=0)
      compiles.clear()
      for _ in range(2):
        state, metrics = step(state, placed)
      assert [c for c in compiles if c.get("fun_name") == "jit(step)"] == compiles[:1] and len(compiles) == 1
      ends.append((jax.device_get(state), {k: float(m.mean()) for k, m in metrics.items()}))
  gate = state.opt_state["momentum"].trace["layers"]["mlp"]["gate"]["weight"]
  assert not gate.sharding.is_fully_replicated  # moments lie as their parameters do
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), ends[0][0], ends[1][0])
  assert ends[1][1] == pytest.approx(ends[0][1], abs=1e-4)


@pytest.mark.parametrize("remat", ["none", "full"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decoder_compute_dtype_and_remat(dtype, remat):
  config = models.tiny_config(16, width=8, num_layers=2, num_heads=2, num_kv_heads=2, mlp_width=16)
  params = models.Decoder(config).init(jax.random.key(0))
  ends = []
  for model in (models.Decoder(config), models.Decoder(config, dtype=dtype, remat=remat)):
    made = make_train_step(model, optimisers.sgd(1.0), *grpo())
    state, _ = jax.jit(made.step)(made.init(params, 0), make(vocab=16))
    assert {x.dtype.name for x in jax.tree.leaves(state.params)} == {"float32"}
    ends.append(jax.tree.map(lambda a, b: np.asarray(a - b), params, state.params))
  tolerance = 1e-6 if dtype == "float32" else 0.05
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance), *ends)


def build_with(credit_part=None, objective=None, **kwargs):
  chain, terms, reducer = grpo()
  return make_train_step(
    Table(),
    optimisers.sgd(1.0),
    credit_part if credit_part is not None else chain,
    objective or terms,
    reducer,
    **kwargs,
  )


def term_needing(*needs):
  return [("odd", 1.0, Term(lambda *a: None, needs=needs))]


@pytest.mark.parametrize(
  "make_it, words",
  [
    (lambda: build_with(objective=term_needing("teacher.log_probs")), "'odd' needs 'teacher.log_probs', which nothing"),
    (lambda: build_with(objective=term_needing("log_prob")), "did you mean 'log_probs'"),
    (lambda: build_with(credit.stateless(lambda x, r: x, needs=("entropy",))), "credit needs 'entropy'.*'old.entropy'"),
    (lambda: build_with(report=("entropi",)), "report needs 'entropi'.*did you mean 'entropy'"),
    (lambda: make_train_step(Table(), optimisers.sgd(1.0), None, *grpo()[1:]), "'policy' needs 'advantages'"),
    (lambda: build_with(objective=grpo()[1] * 2), "different names, got .'policy', 'policy'"),
    (lambda: make_train_step(Table(), optimisers.sgd(1.0), None, [], grpo()[2]), "at least one term"),
    (lambda: build_with(objective=[("entropy", 1.0, objectives.entropy_bonus())]), "another metric, got .'entropy'"),
    (lambda: build_with(num_microbatches=0), "num_microbatches must be >= 1, got 0"),
    (lambda: build_with(num_microbatches=3).step(STATE(), make()), "multiple of .* 1 . 3, got 8"),
    (lambda: build_with(credit.leave_one_out()).step(STATE(), make()), r"advantages \[n t\] = \(8, 6\), got \(8,\)"),
    (lambda: build_with(supplied=("teacher.log_probs",)).step(STATE(), make()), "lacks .'teacher.log_probs'"),
    (
      lambda: build_with(objective=term_needing("behaviour.log_probs")).step(
        STATE(), make().replace(behaviour_log_probs=None)
      ),
      "behaviour_log_probs is None",
    ),
  ],
)
def test_errors(make_it, words):
  with pytest.raises(ValueError, match=words):
    make_it()


def STATE():
  return build_with().init(table(), 0)


def test_supplied_statistics_reach_the_term():
  seen = Term(
    lambda current, r, a: (-current["log_probs"] * r.stats["teacher.weight"], {}), needs=("log_probs", "teacher.weight")
  )
  parts = (None, [("t", 1.0, seen)], reducers.token_mean())
  rollout = make()
  on, off = (
    moved(run(rollout.replace(stats={"teacher.weight": np.full((N, T), w, np.float32)}), parts=parts,
              supplied=("teacher.weight",))[0])
    for w in (1.0, 0.0)
  )  # fmt: skip
  assert np.abs(on).max() > 0 and not off.any()


def test_a_careless_term_is_safe():
  """It reads NaN, and overflows, where nothing counts; a masked sum alone would leave NaN in the gradient."""
  careless = Term(
    lambda current, r, a: (jnp.exp(-20 * current["log_probs"]) + jnp.where(r.loss_mask, 0, jnp.nan), {}),
    needs=("log_probs",),
  )
  rollout, params = make(), dict(table=10 * jnp.eye(V))  # x is nearly always followed by x
  tokens = np.where(np.arange(T) == 2, 1, np.zeros_like(rollout.tokens))
  mask = np.tile(np.arange(T) >= 4, (N, 1))
  rollout = rollout.replace(tokens=tokens, action_mask=mask)
  # Not token_mean: XLA makes a select of the product with a mask, which would hide the NaN here and not elsewhere.
  parts = (None, [("careless", 1.0, careless)], reducers.sequence_mean())
  state, metrics = run(rollout, params=params, parts=parts)
  assert np.isfinite(state.params["table"]).all() and metrics["careless"] == pytest.approx(1.0, abs=0.01)


def test_a_careless_transform_is_safe():
  """It sums rewards and statistics over the whole batch, NaN where nothing counts included."""

  def update(reward, rollout):
    return reward[:, None] - jnp.mean(reward) + 0 * jnp.sum(rollout.stats["teacher.x"]) + jnp.zeros((1, T))

  rollout = make().replace(row_mask=np.arange(N) != 3)
  off = lambda x, mask: np.where(mask, x, np.nan).astype(np.float32)
  given = {"teacher.x": off(1.0, rollout.loss_mask)}
  rollout = rollout.replace(reward=off(rollout.reward, rollout.row_mask), stats=given)
  parts = (credit.stateless(update, needs=("teacher.x",)), *grpo()[1:])
  state, metrics = run(rollout, parts=parts, supplied=("teacher.x",))
  assert np.isfinite(moved(state)).all() and np.isfinite(list(metrics.values())).all()


def test_advantages_off_the_loss_mask_are_not_read():
  odd = credit.stateless(lambda x, r: jnp.where(r.loss_mask, x[:, None], jnp.nan))
  plain = credit.spread_over_tokens()
  term = [("odd", 1.0, Term(lambda c, r, a: (-c["log_probs"] * jnp.sum(a), {}), needs=("log_probs", "advantages")))]
  ends = [run(make(), parts=(part, term, reducers.token_mean()))[0] for part in (odd, plain)]
  np.testing.assert_array_equal(*map(moved, ends))


def test_min_group_size_reaches_the_builder():
  assert build_with().min_group_size == 2 and build_with(credit.spread_over_tokens()).min_group_size == 1
