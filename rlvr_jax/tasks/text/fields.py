"""Which fields of a row make an example: shared by JSONL, Parquet and TFDS catalogue tasks."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlvr_jax.core import check_keys, nearest
from rlvr_jax.tasks.types import Example, Prompt, TextTask, is_held_out, make_task, select


class Fields(NamedTuple):
  """Names of fields. None: not there, except for `metadata`, where it means every field without another role."""

  prompt: str = "prompt"  # text, or messages
  reference: str = "reference"
  reference_after: str | None = None  # keep what follows the last of these marks, "####" for GSM8K
  demonstration: str | None = None
  id: str | None = None  # whole numbers; by default the number of the row
  metadata: Sequence[str] | None = None


def make_fields(fields: Mapping[str, Any] | None) -> Fields:
  """Raises ValueError for an unknown key, with the nearest known one."""
  fields = dict(fields or {})
  check_keys("fields", fields, Fields._fields)
  return Fields(**fields)


def to_example(row: Mapping[str, Any], fields: Fields, where: str, default_id: int) -> Example:
  """Raises ValueError that begins with `where` for a missing field or one of the wrong kind."""
  named = [fields.prompt, fields.reference, fields.demonstration, fields.id]
  named = [name for name in named if name is not None]
  metadata = [k for k in row if k not in named] if fields.metadata is None else list(fields.metadata)
  for name in (*named, *metadata):
    if name not in row:
      raise ValueError(f"{where}: no field {name!r}{nearest(name, row)} It has {sorted(row)}")
  demonstration = None if fields.demonstration is None else row[fields.demonstration]
  if not isinstance(demonstration, str | None):
    raise ValueError(f"{where}: {fields.demonstration!r} must be text or null, got {demonstration!r}")
  return Example(
    default_id if fields.id is None else _id(row[fields.id], fields.id, where),
    _prompt(row[fields.prompt], fields.prompt, where),
    _reference(row[fields.reference], fields, where),
    demonstration,
    {name: row[name] for name in metadata},
  )


def _id(value: Any, name: str, where: str) -> int:
  if isinstance(value, bool) or not isinstance(value, int):
    raise ValueError(f"{where}: {name!r} must be a whole number, got {value!r}")
  return value


def _prompt(value: Any, name: str, where: str) -> Prompt:
  if isinstance(value, str) and value:
    return value
  is_message = lambda m: isinstance(m, Mapping) and all(isinstance(m.get(k), str) for k in ("role", "content"))
  if not isinstance(value, list) or not value or not all(map(is_message, value)):
    rule = "must be text, or messages with a role and a content, and not empty"
    raise ValueError(f"{where}: {name!r} {rule}, got {str(value)[:80]!r}")
  return value


def _reference(value: Any, fields: Fields, where: str) -> Any:
  mark = fields.reference_after
  if mark is None:
    return value
  if not isinstance(value, str) or mark not in value:
    raise ValueError(f"{where}: {fields.reference!r} has no {mark!r} (reference_after), got {str(value)[-80:]!r}")
  return value.rsplit(mark, 1)[1].strip()


def split_task(name: str, rows: Sequence, held_out: Sequence | None, eval_fraction: float) -> TextTask:
  """The eval rows are those given or, by hash of the prompt, about `eval_fraction` of `rows`; one way, not both."""
  if not 0.0 <= eval_fraction < 1.0:
    raise ValueError(f"eval_fraction must be in [0, 1), got {eval_fraction}")
  if held_out is not None and eval_fraction:
    raise ValueError(f"give an eval source or eval_fraction, not both; eval_fraction is {eval_fraction}")
  if held_out is None:
    sides = np.array([is_held_out(row.prompt, eval_fraction) for row in rows], bool)
    held_out, rows = (select(rows, np.flatnonzero(side).tolist()) for side in (sides, ~sides))
  return make_task(name, rows, held_out)
