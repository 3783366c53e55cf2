"""No array of the train step is as large as [n t v], forward or backward, in any nested program."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import credit, models, objectives
from rlvr_jax.core import Rollout
from rlvr_jax.objectives import reducers
from rlvr_jax.train import make_train_step, optimisers

V, N, T, FIRST = 251, 4, 13, 4
LIMIT = N * (T - FIRST) * V  # what one pass over all action columns at once would make


def programs(value):
  """The jaxprs inside a parameter of an equation, whatever it is called and however it is nested."""
  if hasattr(value, "eqns"):
    yield value
  elif hasattr(value, "jaxpr"):
    yield value.jaxpr
  elif isinstance(value, (list, tuple)):
    for x in value:
      yield from programs(x)


def too_large(jaxpr, limit):
  """(primitive, shape) of every array of `limit` elements or more. Parameters and their like are far below it."""
  found = []
  for eqn in jaxpr.eqns:
    for var in (*eqn.invars, *eqn.outvars):
      shape = getattr(var.aval, "shape", ())
      if math.prod(shape) >= limit:
        found.append((eqn.primitive.name, shape))
    for value in eqn.params.values():
      for inner in programs(value):
        found += too_large(inner, limit)
  return found


def rollout():
  mask = np.tile(np.arange(T) >= FIRST, (N, 1))
  return Rollout(
    tokens=np.zeros((N, T), np.int32), valid_mask=np.ones((N, T), bool), action_mask=mask,
    prompt_id=np.zeros(N, np.int32), group_id=np.zeros(N, np.int32), row_mask=np.ones(N, bool),
    reward=np.arange(N, dtype=np.float32), rewards={}, behaviour_log_probs=np.zeros((N, T), np.float32),
    truncated=np.zeros(N, bool), policy_version=np.zeros(N, np.int32), num_groups=1, first_action=FIRST,
  )  # fmt: skip


def arrays_of_step(model, **kwargs):
  made = make_train_step(
    model, optimisers.adamw(0.1, weight_decay=0.1),
    credit.chain(("g", credit.group_normalise()), ("s", credit.spread_over_tokens())),
    [("p", 1.0, objectives.clipped_surrogate()), ("k", 0.1, objectives.kl_to_reference()),
     ("h", 0.1, objectives.entropy_bonus())],
    reducers.token_mean(), **kwargs,
  )  # fmt: skip
  state = jax.eval_shape(lambda key: made.init(model.init(key), 0), jax.random.key(0))
  return too_large(jax.make_jaxpr(made.step)(state, rollout()).jaxpr, LIMIT)


def decoder(**kwargs):
  return models.Decoder(
    models.tiny_config(V, width=8, num_layers=2, num_heads=2, num_kv_heads=1, mlp_width=16), **kwargs
  )


@pytest.mark.parametrize(
  "kwargs", [dict(), dict(num_microbatches=2), dict(num_minibatches=2, num_epochs=2)], ids=["one", "micro", "mini"]
)
@pytest.mark.parametrize("remat", ["none", "full"])
def test_no_whole_logits(kwargs, remat):
  assert arrays_of_step(decoder(remat=remat), chunk_tokens=8, **kwargs) == []


def test_finds_one_chunk_over_everything():
  found = arrays_of_step(decoder(), chunk_tokens=N * T)
  assert {shape for _, shape in found} >= {(N, T - FIRST, V)}
  assert "dot_general" in {name for name, _ in found}


def test_finds_whole_logits_in_a_backward_pass_only():
  """Planted: the forward rule keeps nothing large, the backward rule builds all logits, inside scan and checkpoint."""

  @jax.custom_vjp
  def sneaky(x):
    return x

  sneaky.defvjp(lambda x: (x, None), lambda _, g: (g + 0 * jnp.sum(jnp.ones((N, T, V))),))

  class Planted(models.Decoder):
    def hidden(self, params, *args):
      x = super().hidden(params, *args)
      return jax.lax.scan(lambda c, _: (jax.checkpoint(sneaky)(c), None), x, None, length=2)[0]

  assert arrays_of_step(Planted(decoder().config), chunk_tokens=8) != []
