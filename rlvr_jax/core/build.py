"""From a spec, which is a name and its kwargs, to the object it names. A room's `__all__` is the only registry."""

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import jax


def nearest(name: str, known: Iterable[str]) -> str:
  """A hint for an error message: the known name closest to `name`, or nothing."""
  close = difflib.get_close_matches(str(name), [str(k) for k in known], n=1, cutoff=0.5)
  return f"; did you mean {close[0]!r}?" if close else ""


def check_keys(where: str, given: Iterable[str], known: Iterable[str]) -> None:
  """Raises ValueError when a key of `given` is not in `known`, naming the nearest that is."""
  known = sorted(known)
  for key in given:
    if key not in known:
      raise ValueError(f"{where} has no {key!r}{nearest(key, known)} It has {known}")


def check_number(
  name: str,
  value: Any,
  *,
  minimum: float | None = None,
  maximum: float | None = None,
  above: float | None = None,
  below: float | None = None,
) -> None:
  """Raises ValueError when `value` is outside the bounds (`above` and `below` are strict) or is NaN.

  A traced value, as when a sweep maps a builder over numbers, has nothing to check yet and passes.
  """
  if isinstance(value, jax.core.Tracer):
    return
  rules = [
    (">=", minimum, lambda b: value >= b), (">", above, lambda b: value > b),
    ("<=", maximum, lambda b: value <= b), ("<", below, lambda b: value < b),
  ]  # fmt: skip
  wanted = [(sign, bound, holds) for sign, bound, holds in rules if bound is not None]
  if not all(holds(bound) for _, bound, holds in wanted) or value != value:
    raise ValueError(f"{name} must be {' and '.join(f'{sign} {bound}' for sign, bound, _ in wanted)}, got {value}")


def _find(room: ModuleType, name: str) -> Callable:
  if ":" not in name:
    if name not in room.__all__:
      raise ValueError(f"{room.__name__} has no {name!r}{nearest(name, room.__all__)} It has {sorted(room.__all__)}")
    return getattr(room, name)
  path, _, attribute = name.rpartition(":")
  try:
    module = importlib.import_module(path)
  except ImportError as error:
    raise ValueError(f"a builder of your own is named 'package.module:builder', got {name!r}: {error}") from error
  if not callable(builder := getattr(module, attribute, None)):
    raise ValueError(f"module {path!r} has no builder {attribute!r}{nearest(attribute, dir(module))}")
  return builder


def build(room: ModuleType, spec: Mapping[str, Any] | str, **given) -> Any:
  """`getattr(room, spec["name"])(**rest)`, with unknown names and unknown, missing or doubled keys named in the error.

  Args:
    room:  a module whose `__all__` lists its builders.
    spec:  a mapping with a `name`, or just the name. A name `package.module:builder` is a builder of your own.
    given: kwargs that the caller supplies (a tokenizer, a model); only those the builder asks for are passed.
  """
  spec = dict(name=spec) if isinstance(spec, str) else dict(spec)
  label = room.__name__
  if "name" not in spec:
    raise ValueError(f"a spec for {label} needs a 'name', got keys {sorted(spec)}")
  name = spec.pop("name")
  builder = _find(room, name)
  parameters = inspect.signature(builder).parameters
  takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
  named = [k for k, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
  if not takes_any:
    check_keys(f"{label}.{name}", spec, [k for k in named if k not in given])
  kwargs = spec | {k: v for k, v in given.items() if k in named}
  missing = [k for k in named if parameters[k].default is inspect.Parameter.empty and k not in kwargs]
  if missing:
    raise ValueError(f"{label}.{name} needs {missing}; the spec has {sorted(spec)}")
  return builder(**kwargs)
