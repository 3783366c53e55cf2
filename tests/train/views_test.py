"""Teachers, contexts, heads and divergences inside a train step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from table import Table

from rlvr_jax import credit
from rlvr_jax.core import Divergence, Rollout, Term, make_view
from rlvr_jax.models import Decoder, WithHeads, categorical_head, scalar_head, tiny_config
from rlvr_jax.objectives import reducers
from rlvr_jax.rollouts import PromptArrays, groups
from rlvr_jax.train import ViewSpec, make_train_step, optimisers

V, N, T = 5, 4, 6


def table(seed=1):
  return dict(table=jax.random.normal(jax.random.key(seed), (V, V)))


def make():
  tokens = np.random.default_rng(0).integers(0, V, (N, T)).astype(np.int32)
  action = np.broadcast_to(np.arange(T) >= 2, (N, T)) & (np.arange(T) < 4 + np.arange(N)[:, None] % 3)
  return Rollout(
    tokens=tokens, valid_mask=np.ones((N, T), bool), action_mask=action, prompt_id=np.zeros(N, np.int32),
    group_id=np.zeros(N, np.int32), row_mask=np.ones(N, bool), reward=np.ones(N, np.float32), rewards={},
    behaviour_log_probs=None, truncated=np.zeros(N, bool), policy_version=np.zeros(N, np.int32), first_action=2,
  )  # fmt: skip


def log_table(params):
  return np.asarray(jax.nn.log_softmax(params["table"]))


def reading(stat):
  """A term whose loss is a constant statistic."""
  return Term(lambda current, rollout, advantages: (rollout.stats[stat], {}), needs=(stat,))


def step_of(term, model=None, parts=None, rate=1.0, **kwargs):
  return make_train_step(
    model or Table(), optimisers.sgd(rate), parts, [("term", 1.0, term)], reducers.token_mean(), **kwargs
  )


def test_a_given_teacher_reads_the_rows_as_sampled():
  made = step_of(reading("teacher.log_probs"), views=dict(teacher=ViewSpec("given")), num_microbatches=2)
  rollout, teacher = make(), log_table(table(7))
  _, metrics = jax.jit(made.step)(made.init(table(), 0, dict(teacher=table(7))), rollout)
  want = [teacher[rollout.tokens[i, j - 1], rollout.tokens[i, j]] for i, j in np.argwhere(rollout.action_mask)]
  np.testing.assert_allclose(metrics["loss"].mean(), np.mean(want), rtol=1e-5)


def test_a_context_replaces_the_prompt():
  """The first action follows the last token of the hint, the others follow what they followed."""
  rollout = make()
  hint = np.array([[0, 3, 4, 1]] * N, np.int32)
  rollout = rollout.replace(views=dict(hint=make_view(jnp.asarray(hint), jnp.ones((N, 4), bool), rollout)))
  made = step_of(reading("teacher.log_probs"), views=dict(teacher=ViewSpec("policy", "hint")))
  _, metrics = jax.jit(made.step)(made.init(table(), 0), rollout)
  p, want = log_table(table()), []
  for i, j in np.argwhere(rollout.action_mask):
    want.append(p[1 if j == 2 else rollout.tokens[i, j - 1], rollout.tokens[i, j]])
  np.testing.assert_allclose(metrics["loss"].mean(), np.mean(want), rtol=1e-5)


def test_a_token_missing_from_a_view_leaves_the_loss():
  rollout = make()
  view = make_view(jnp.zeros((N, 3), jnp.int32), jnp.ones((N, 3), bool), rollout)
  view = view.__class__(view.tokens, view.valid_mask, view.take.at[0, 2].set(-1))
  made = step_of(reading("teacher.log_probs"), views=dict(teacher=ViewSpec("policy", "hint")))
  _, metrics = made.step(made.init(table(), 0), rollout.replace(views=dict(hint=view)))
  assert metrics["num_tokens"].mean() == rollout.action_mask.sum() - 1


def test_a_moving_average_follows_and_the_initial_policy_stays():
  term = Term(
    lambda current, r, a: (current["log_probs"] + r.stats["teacher.log_probs"] + r.stats["reference.log_probs"], {}),
    needs=("log_probs", "teacher.log_probs", "reference.log_probs"),
  )
  made = step_of(term, views=dict(teacher=ViewSpec("ema", decay=0.75)))
  before = made.init(table(), 0)
  after, _ = made.step(before, make())
  want = 0.75 * table()["table"] + 0.25 * after.params["table"]
  np.testing.assert_allclose(after.anchors["teacher"]["table"], want, rtol=1e-5)
  np.testing.assert_array_equal(after.anchors["reference"]["table"], table()["table"])
  assert np.abs(after.params["table"] - before.params["table"]).max() > 1e-3


@pytest.mark.parametrize("num_microbatches", [1, 2])
def test_a_divergence_and_its_gradient_equal_the_dense_ones(num_microbatches):
  forward_kl = lambda log_p, teacher: jnp.sum(jnp.exp(teacher) * (teacher - log_p), axis=-1)
  term = Term(
    lambda current, r, a: (current["kl"], {}), needs=(), divergences=dict(kl=Divergence("teacher", forward_kl))
  )
  made = step_of(
    term, views=dict(teacher=ViewSpec("given")), num_microbatches=num_microbatches, chunk_tokens=5, temperature=0.7
  )
  rollout = make()
  state = made.init(table(), 0, dict(teacher=table(7)))
  after, metrics = jax.jit(made.step)(state, rollout)

  def dense(params):
    p, q = (jax.nn.log_softmax(x["table"] / 0.7) for x in (params, table(7)))
    kl = jnp.sum(jnp.exp(q) * (q - p), axis=-1)
    rows = rollout.tokens[:, :-1][rollout.action_mask[:, 1:]]
    return jnp.mean(kl[rows])

  value, grad = jax.value_and_grad(dense)(table())
  np.testing.assert_allclose(metrics["loss"].mean(), value, rtol=1e-5)
  np.testing.assert_allclose(state.params["table"] - after.params["table"], grad["table"], atol=1e-6)


DECODER = Decoder(tiny_config(V, width=16, num_layers=1, num_heads=2, num_kv_heads=1, mlp_width=32))
CRITIC = Term(
  lambda current, r, a: ((current["value"] - r.stats["credit.returns"]) ** 2, {}), needs=("value", "credit.returns")
)


def returns_are_three():
  def update(reward, rollout):
    three = jnp.full(rollout.tokens.shape, 3.0)
    return three, rollout.replace(stats=dict(rollout.stats) | {"credit.returns": three})

  return credit.stateless(update, provides=("credit.returns",))


@pytest.mark.parametrize("trunk, moves", [("own", False), ("detached", False), ("shared", True)])
def test_a_critic_learns_its_returns(trunk, moves):
  model = WithHeads(DECODER, dict(value=scalar_head()), trunk)
  made = step_of(CRITIC, model, returns_are_three(), rate=0.01)
  made = made._replace(step=jax.jit(made.step))
  params, losses = model.init(jax.random.key(0)), []
  state = made.init(params, 0)
  for _ in range(3):
    state, metrics = made.step(state, make())
    losses.append(float(metrics["loss"].mean()))
  assert losses[0] > losses[1] > losses[2]
  same = jax.tree.map(lambda a, b: bool((a == b).all()), params["policy"], state.params["policy"])
  assert all(jax.tree.leaves(same)) == (not moves)


def test_a_value_stands_where_its_token_is_chosen():
  model = WithHeads(DECODER, dict(value=categorical_head(num_bins=7)), "shared")
  params, rollout = model.init(jax.random.key(0)), make()
  valid = jnp.asarray(rollout.valid_mask)
  hidden = model.hidden(params, rollout.tokens, jnp.arange(T)[None].repeat(N, 0), valid)
  out = model.head_statistics(params, rollout.tokens, valid, hidden)
  head = model.heads["value"].value
  np.testing.assert_allclose(out["value"][:, 1:], head(params["heads"]["value"], hidden[:, :-1]), rtol=1e-5)
  assert out["value_logits"].shape == (N, T, 7) and not out["value"][:, 0].any()


def test_heads_do_not_change_what_is_sampled():
  model = WithHeads(DECODER, dict(value=scalar_head(), log_z=scalar_head()))
  params = model.init(jax.random.key(0))
  prompts = PromptArrays(jnp.ones((2, 2), jnp.int32), jnp.ones((2, 2), bool), jnp.arange(2))
  options = dict(stop_ids=(0,), pad_id=4, group_size=2, max_new_tokens=3)
  plain = groups(DECODER, **options)(params["policy"], prompts, jax.random.key(1), 0)
  with_heads = groups(model, **options)(params, prompts, jax.random.key(1), 0)
  jax.tree.map(np.testing.assert_array_equal, plain, with_heads)


@pytest.mark.parametrize(
  "make_it, words",
  [
    (lambda: step_of(reading("techer.log_probs"), views=dict(teacher=ViewSpec())), "did you mean 'teacher.log_probs'"),
    (lambda: step_of(reading("old.value")), "'old.value', which nothing supplies"),
    (lambda: step_of(CRITIC, WithHeads(DECODER, dict(value=scalar_head()))), "'credit.returns'"),
    (lambda: step_of(reading("t.log_probs"), views=dict(t=ViewSpec("emma"))), "no 'emma'; did you mean 'ema'"),
    (lambda: step_of(reading("t.log_probs"), views=dict(old=ViewSpec())), "cannot be called 'old'"),
    (lambda: step_of(reading("t.log_probs"), views=dict(t=ViewSpec("given"))).init(table(), 0), "views .'t'., got .."),
    (lambda: WithHeads(DECODER, {}, "shard"), "did you mean 'shared'"),
    (
      lambda: (s := step_of(reading("t.log_probs"), views=dict(t=ViewSpec("policy", "hint")))).step(
        s.init(table(), 0), make()
      ),
      "view 't' reads 'hint'; the rollout has the views",
    ),
  ],
)
def test_errors(make_it, words):
  with pytest.raises(ValueError, match=words):
    make_it()


def test_a_teacher_of_another_vocabulary_is_refused():
  kl = Term(lambda c, r, a: (c["kl"], {}), divergences=dict(kl=Divergence("t", lambda p, q: jnp.sum(p - q, axis=-1))))
  made = step_of(kl, views=dict(t=ViewSpec("given")))
  with pytest.raises(ValueError, match="view 't' has a vocabulary of 4, the policy of 5"):
    made.step(made.init(table(), 0, dict(t=dict(table=table()["table"][:, :4]))), make())
