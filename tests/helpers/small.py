"""A config small enough for tests, as a plain dict; and verifiers that misbehave."""

import copy

from rlvr_jax.rewards import verdict

SMALL = dict(
  seed=0,
  model=dict(source="tiny"),
  task=dict(name="arithmetic", num_terms=2, num_digits=1, num_train=60, num_eval=8),
  template=dict(name="plain"),
  prompts=dict(per_step=4, max_tokens=6),
  rollout=dict(name="groups", group_size=4, max_new_tokens=3),
  rewards=[dict(name="exact")],
  verify=dict(num_workers=1),
  credit=[dict(name="group_normalise"), dict(name="spread_over_tokens")],
  objective=[dict(name="clipped_surrogate")],
  reduce=dict(name="token_mean"),
  optimiser=dict(name="adamw", learning_rate=1e-3),
  train=dict(num_steps=2),
  eval=dict(num_prompts=6, num_samples=2),
  mesh=dict(num_devices=1),
  stages=[
    dict(kind="sft", train=dict(num_steps=2), objective=[dict(name="negative_log_likelihood")]),
    dict(kind="rl"),
  ],
)


def small(**changes):
  """SMALL with top-level keys replaced; a mapping is merged into the one it replaces."""
  config = copy.deepcopy(SMALL)
  for key, value in changes.items():
    merge = isinstance(value, dict) and isinstance(config.get(key), dict) and "name" not in value
    config[key] = config[key] | value if merge else value
  return config


def not_a_number():
  """A builder whose verifier answers NaN."""
  return lambda sample: verdict(float("nan"), "ok")


def crash():
  """A builder whose verifier ends its process."""
  import os

  return lambda sample: os._exit(3)
