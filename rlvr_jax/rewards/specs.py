"""Checks reward specs in the parent, before any worker starts."""

import inspect
import keyword
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_jax.rewards import host


def label_of(spec: Mapping[str, Any]) -> str:
  label = spec.get("label")
  return spec["name"] if label is None else label


def weights_of(specs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
  """{label: weight}, in the order of `specs`; a weight left out is 1."""
  return {label_of(spec): float(spec.get("weight", 1.0)) for spec in specs}


def check_specs(specs: Sequence[Mapping[str, Any] | str]) -> tuple[dict[str, Any], ...]:
  """The specs as dicts. A bare name is a spec without options.

  Raises ValueError for no spec, a spec without a name, an unknown verifier, option or missing option, a weight that is
  not finite, and a label used twice.
  """
  specs = tuple(dict(name=s) if isinstance(s, str) else dict(s) for s in specs)
  if not specs:
    raise ValueError("rewards need at least one verifier, got none")
  for spec in specs:
    _check(spec)
  labels = [label_of(spec) for spec in specs]
  for label in labels:
    if labels.count(label) > 1:
      raise ValueError(f"reward label {label!r} is used twice; give each spec its own label=, got {labels}")
  return specs


def _check(spec: dict[str, Any]) -> None:
  name, weight = spec.get("name"), spec.get("weight", 1.0)
  if not isinstance(name, str):
    raise ValueError(f"a reward spec needs a 'name' (text), got {spec}")
  if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
    raise ValueError(f"the weight of reward {name!r} must be a finite number, got {weight!r}")
  if ":" in name:
    _check_import_path(name)
  else:
    _check_options(name, {k: v for k, v in spec.items() if k not in ("name", "weight", "label")})


def _check_import_path(name: str) -> None:
  module, _, builder = name.rpartition(":")
  words = [*module.split("."), builder]
  if not all(w.isidentifier() and not keyword.iskeyword(w) for w in words):
    raise ValueError(f"a user's verifier is named 'package.module:builder', got {name!r}")
  if module == "__main__":
    raise ValueError(f"verifier {name!r}: workers cannot import __main__; put the builder into a module of its own")


def _check_options(name: str, options: dict[str, Any]) -> None:
  from rlvr_jax.core import check_keys, nearest  # here, because core imports jax and workers import this room

  if name not in host.__all__:
    raise ValueError(f"rewards.host has no {name!r}{nearest(name, host.__all__)} It has {sorted(host.__all__)}")
  parameters = inspect.signature(getattr(host, name)).parameters
  check_keys(f"rewards.host.{name}", options, parameters)
  missing = [k for k, p in parameters.items() if p.default is p.empty and k not in options]
  if missing:
    raise ValueError(f"rewards.host.{name} needs {missing}, got {options}")
