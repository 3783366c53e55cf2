"""From the method part of a config to a train step: the same for text tasks, graph tasks and worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax

import rlvr_jax.credit as credit_room
import rlvr_jax.models as models_room
import rlvr_jax.objectives as objectives_room
from rlvr_jax.core import build, check_keys
from rlvr_jax.models import Decoder, WithHeads
from rlvr_jax.objectives import reducers as reducers_room
from rlvr_jax.train import TrainStep, ViewSpec, make_train_step, optimisers


def make_credit(specs: Sequence[Mapping[str, Any]], group_size: int):
  """The chain, and the error that names which part a group is too small for."""
  parts = []
  for i, spec in enumerate(specs):
    spec = dict(spec)
    label = spec.pop("label", spec.get("name"))
    part = build(credit_room, spec)
    if group_size < part.min_group_size:
      raise ValueError(
        f"config.credit[{i}], {spec['name']!r}, needs rollout.group_size >= {part.min_group_size}, got {group_size}"
      )
    parts.append((label, part))
  return credit_room.chain(*parts)


def make_objective(specs: Sequence[Mapping[str, Any]]):
  """(name, weight, term) each; a weight left out is 1."""
  terms = []
  for spec in specs:
    spec = dict(spec)
    weight, label = spec.pop("weight", 1.0), spec.pop("label", spec.get("name"))
    terms.append((label, weight, build(objectives_room, spec)))
  return tuple(terms)


def with_heads(decoder: Decoder, critic: Mapping[str, Any] | None) -> Decoder | WithHeads:
  """The decoder, or it with the heads of config.critic = dict(trunk=..., heads=(dict(name=..., label=...), ...))."""
  if not critic:
    return decoder
  check_keys("config.critic", critic, ("trunk", "heads"))
  heads = {}
  for spec in critic.get("heads", (dict(name="scalar_head"),)):
    spec = dict(spec)
    check_keys("config.critic.heads: name", [spec.get("name")], ("scalar_head", "categorical_head"))
    label = spec.pop("label", "value")
    heads[label] = build(models_room, spec)
  return WithHeads(decoder, heads, critic.get("trunk", "own"))


VIEW_KEYS = ("params", "context", "decay")  # of a ViewSpec
VIEW_SOURCES = ("expert", "source", "max_tokens")  # where given parameters come from; the room of a text context


def make_views(specs: Mapping[str, Mapping[str, Any]], models: Mapping[str, Any]) -> dict[str, ViewSpec]:
  """config.views = dict(teacher=dict(params="ema", context="hint", decay=0.99)); params="given" has a `source` of its
  own (a model to load) or an `expert` (parameters that an earlier stage saved)."""
  views = {}
  for name, spec in specs.items():
    check_keys(f"config.views.{name}", spec, (*VIEW_KEYS, *VIEW_SOURCES))
    given = [key for key in ("expert", "source") if spec.get(key)]
    if (spec.get("params") == "given") != (len(given) == 1):
      raise ValueError(
        f"config.views.{name}: params='given' goes with one of expert and source, got params={spec.get('params')!r} "
        f"with {given}"
      )
    options = {key: value for key, value in spec.items() if key in VIEW_KEYS}
    views[name] = ViewSpec(**options, model=models.get(name))
  return views


def make_method(
  config: Mapping[str, Any], settings: Mapping[str, Any], model: Any, supplied=(), models: Mapping[str, Any] = {}
) -> TrainStep:
  """The train step of one stage, everything in it checked. `models`: view -> a model of its own."""
  train, rollout = settings["train"], config["rollout"]
  samples = config.get("kind", "rl") != "sft"
  total = dict(total_steps=train.num_steps * train.num_minibatches * train.num_epochs)
  if rollout.get("entropy"):
    supplied = (*supplied, "behaviour.entropy")
  return make_train_step(
    model,
    build(optimisers, config["optimiser"], **total),
    make_credit(config["credit"], rollout["group_size"]) if samples and config["credit"] else None,
    make_objective(config["objective"]),
    build(reducers_room, config["reduce"]),
    temperature=rollout.get("temperature", 1.0) if samples else 1.0,
    num_microbatches=train.num_microbatches,
    num_minibatches=train.num_minibatches,
    num_epochs=train.num_epochs,
    chunk_tokens=train.chunk_tokens,
    report=("entropy",) if train.report_entropy else (),
    supplied=supplied if samples else (),
    views=make_views(config.get("views", {}), models),
  )


def check_sampling_matches(rollout: Mapping[str, Any]) -> None:
  """A filtered sampler draws from a distribution that the trainer's log-probs do not describe."""
  for name in ("top_k", "top_p", "min_p"):
    if rollout.get(name):
      raise ValueError(
        f"config.rollout.{name} must be None for training, got {rollout[name]}: the trainer's log-probs are not "
        f"filtered; config.eval.rollout may set it"
      )
  temperature = rollout.get("temperature", 1.0)
  if not isinstance(temperature, jax.core.Tracer) and temperature <= 0:
    raise ValueError(f"config.rollout.temperature must be > 0 for training, got {temperature}")


def check_rows(kind: str, per_step: int, rollout: Mapping[str, Any], train) -> None:
  rows = per_step * (1 if kind == "sft" else rollout["group_size"])
  if rows % (train.num_minibatches * train.num_microbatches):
    raise ValueError(
      f"a batch of {rows} rows is no multiple of config.train.num_minibatches * num_microbatches = "
      f"{train.num_minibatches} * {train.num_microbatches}"
    )
