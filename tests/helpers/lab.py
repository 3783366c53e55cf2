"""A laboratory config small enough for tests, runs that share their programs, and parts defined outside the package."""

import copy
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlvr_jax.core import Term, Transform
from rlvr_jax.runs import LabRun

# Four trees with eight leaves a token deep, three of them right: an untrained model is right now and then.
LAB = dict(
  seed=0,
  model=dict(source="tiny", sizes=dict(width=16, num_layers=1, num_heads=2, num_kv_heads=1, mlp_width=32)),
  task=dict(name="token_tree", branching=8, depth=1, num_right=3, num_prompts=4),
  prompts=dict(per_step=2),
  rollout=dict(name="groups", group_size=4, temperature=1.0, max_new_tokens=3),
  rewards=[dict(name="correct", weight=1.0), dict(name="lab:low_tokens", label="low", weight=0.5)],
  credit=[dict(name="group_normalise", eps=1e-6), dict(name="spread_over_tokens")],
  objective=[dict(name="clipped_surrogate", weight=1.0, clip_low=0.2, clip_high=0.2)],
  reduce=dict(name="token_mean"),
  optimiser=dict(name="adamw", learning_rate=1e-2, clip_norm=1.0),
  train=dict(num_steps=4),
  eval=dict(every=2, num_prompts=4, num_samples=4),
  checkpoint=dict(every=2),
)
SFT = dict(
  kind="sft", train=dict(num_steps=2), objective=[dict(name="negative_log_likelihood")],
  optimiser=dict(learning_rate=1e-2),
)  # fmt: skip


def lab(**changes):
  """LAB with top-level keys replaced; a mapping is merged into the one it replaces unless it names another part."""
  config = copy.deepcopy(LAB)
  for key, value in changes.items():
    merge = isinstance(value, dict) and isinstance(config.get(key), dict) and "name" not in value
    config[key] = config[key] | value if merge else value
  return config


class SharedRun(LabRun):
  """Programs that depend on the same parts of a config, for as many lanes, are compiled once in a process."""

  programs: dict[str, Any] = {}

  def _parts_of(self, name):
    told = {part: spec for part, spec in self.config.items() if part != "checkpoint"}
    if name not in ("init", "evaluate"):
      return [told, list(self.values), self.budget]
    parts = [told.get(part) for part in ("task", "model", "critic")]
    evaluation = {key: value for key, value in told["eval"].items() if key != "every"}
    return parts if name == "init" else [*parts, evaluation, self.stage_configs[-1]["rollout"], list(self.values)]

  def call(self, name, fn, *args, **options):
    key = json.dumps([name, self._parts_of(name), len(self.seeds), self.sharding is not None], sort_keys=True)
    if key in self.programs:
      self._compiled[name] = self.programs[key]
    out = super().call(name, fn, *args, **options)
    self.programs[key] = self._compiled[name]
    return out


def host(tree):
  """As numpy arrays; keys as their bits."""
  plain = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
  return jax.tree.map(lambda x: np.asarray(plain(x)), tree)


def lane(tree, index):
  """One lane of it, still with its axis of lanes."""
  return jax.tree.map(lambda x: np.asarray(x)[index : index + 1], tree)


def same(actual, expected):
  """Bit for bit, NaN included."""
  jax.tree.map(np.testing.assert_array_equal, host(actual), host(expected))


def close(actual, expected, atol=1e-5):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol), host(actual), host(expected))


def doubled(factor: float = 2.0) -> Transform:
  """A credit link of one's own: the reward times a number, on every action token."""

  def update(reward, state, rollout):
    return jnp.where(rollout.action_mask, factor * reward[:, None], 0.0), state + 1, rollout

  return Transform(lambda: jnp.zeros((), jnp.int32), update)


def pull_to_uniform(strength: float = 1.0) -> Term:
  """An objective term of one's own."""

  def loss(current, rollout, advantages):
    return -strength * current["entropy"], dict(my_metric=current["entropy"])

  return Term(loss, needs=("entropy",))


def low_tokens(below: int = 8):
  """A reward component of one's own: the share of a completion's tokens whose id is low."""

  def component(verdict, rollout):
    low = rollout.action_mask & (rollout.tokens < below)
    return jnp.sum(low, axis=1) / jnp.maximum(jnp.sum(rollout.action_mask, axis=1), 1)

  return component
