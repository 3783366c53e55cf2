"""Privileged contexts of text tasks: the prompt with one of its row's own fields before it, as a teacher reads it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlvr_jax.core import Rollout, make_view, nearest
from rlvr_jax.tasks import Example
from rlvr_jax.tasks.loader import pad_rows


class Context(NamedTuple):
  """One privileged context: config.views.<view> = dict(context=field, max_tokens=...)."""

  field: str  # a field of the row's metadata, or "reference" or "demonstration"
  max_tokens: int  # of the prompt with the field before it, after the template


def contexts_of(views: Mapping[str, Mapping[str, Any]]) -> dict[str, Context]:
  """Field -> context. Raises ValueError for one without max_tokens, or with two."""
  found: dict[str, Context] = {}
  for name, spec in views.items():
    field = spec.get("context")
    if field is None:
      continue
    if not isinstance(spec.get("max_tokens"), int) or spec["max_tokens"] < 1:
      raise ValueError(
        f"config.views.{name}.max_tokens must be an int >= 1 where it has a context, got {spec.get('max_tokens')!r}"
      )
    context = Context(field, spec["max_tokens"])
    if found.setdefault(field, context) != context:
      raise ValueError(
        f"config.views: context {field!r} has two max_tokens, {found[field].max_tokens} and {context[1]}"
      )
  return found


def _value(example: Example, field: str) -> str:
  values = dict(example.metadata) | dict(reference=example.reference, demonstration=example.demonstration)
  if values.get(field) is None:
    raise ValueError(
      f"config.views: the row with prompt_id {example.prompt_id} has no {field!r}{nearest(field, values)} "
      f"It has {sorted(k for k, v in values.items() if v is not None)}"
    )
  return str(values[field])


def privileged(example: Example, field: str) -> Any:
  """The prompt with the field and an empty line before it; in a conversation, before the last message."""
  value = _value(example, field)
  if isinstance(example.prompt, str):
    return f"{value}\n\n{example.prompt}"
  last = dict(example.prompt[-1])
  last["content"] = f"{value}\n\n{last['content']}"
  return [*example.prompt[:-1], last]


def encode(
  context: Context, examples: Sequence[Example], template: Callable, tokenizer: Any, pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
  """Tokens Int["p u"] and mask. Raises ValueError naming the row that does not fit."""
  rows = []
  for example in examples:
    ids = template(tokenizer, privileged(example, context.field))
    if len(ids) > context.max_tokens:
      raise ValueError(
        f"config.views: the row with prompt_id {example.prompt_id} has {len(ids)} tokens with its {context.field!r}, "
        f"more than max_tokens={context.max_tokens}"
      )
    rows.append(ids)
  return pad_rows(rows, context.max_tokens, pad_id, "left")


def attach(rollout: Rollout, prompts: Mapping[str, tuple[Any, Any]]) -> Rollout:
  """The rollout with a view for each context; `prompts` are of its groups, whose rows stand together."""
  views = {}
  for field, (tokens, mask) in prompts.items():
    size = rollout.tokens.shape[0] // tokens.shape[0]
    fan = lambda x, size=size: jnp.repeat(x, size, axis=0)
    views[field] = make_view(fan(tokens), fan(mask), rollout)
  return rollout.replace(views=views)


attach_jitted = jax.jit(attach)
