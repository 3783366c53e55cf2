"""Rows from JSONL and Parquet files."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlvr_jax.tasks.text.fields import make_fields, split_task, to_example
from rlvr_jax.tasks.types import EVAL_ID, TextTask


def jsonl(
  path: str, eval_path: str | None = None, eval_fraction: float = 0.0, fields: Mapping[str, Any] | None = None
) -> TextTask:
  """One JSON object a line, UTF-8, lines ended by `\\n` only (text may hold U+2028); empty lines are skipped.

  Args:
    eval_path:     file with the eval rows. A train row with the prompt of an eval row is dropped and counted.
    eval_fraction: instead, the share of prompts held out by the hash of their text.
    fields:        which field is what, e.g. `dict(prompt="question", reference="answer", reference_after="####")`;
                   keys and defaults in `tasks.text.fields.Fields`.

  Raises ValueError naming file and line for what is not an object or lacks a field.
  """
  return _files("jsonl", _jsonl_rows, path, eval_path, eval_fraction, fields)


def parquet(
  path: str, eval_path: str | None = None, eval_fraction: float = 0.0, fields: Mapping[str, Any] | None = None
) -> TextTask:
  """A Parquet file, or a folder of them. Arguments and errors as `jsonl`; rows are counted from 0 in messages."""
  return _files("parquet", _parquet_rows, path, eval_path, eval_fraction, fields)


def _files(name: str, read: Callable[[str], Iterator], path, eval_path, eval_fraction, fields) -> TextTask:
  fields = make_fields(fields)

  def examples(path: str, first_id: int):
    if not Path(path).exists():
      raise ValueError(f"task {name!r}: no file {path!r}")
    return tuple(to_example(row, fields, where, first_id + i) for i, (where, row) in enumerate(read(path)))

  held_out = None if eval_path is None else examples(eval_path, EVAL_ID)
  return split_task(f"{name}/{Path(path).name}", examples(path, 0), held_out, eval_fraction)


def _jsonl_rows(path: str) -> Iterator[tuple[str, dict]]:
  for number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
    if not line.strip():
      continue
    where = f"{path}, line {number}"
    try:
      row = json.loads(line, parse_constant=_refuse)
    except ValueError as error:
      raise ValueError(f"{where}: not JSON in UTF-8: {error}") from error
    if not isinstance(row, dict):
      raise ValueError(f"{where}: must be an object, got {type(row).__name__}")
    yield where, row


def _refuse(constant: str):
  raise ValueError(f"{constant} is not JSON")


def _parquet_rows(path: str) -> Iterator[tuple[str, dict]]:
  import pyarrow
  import pyarrow.parquet

  try:
    table = pyarrow.parquet.read_table(path)
  except pyarrow.ArrowInvalid as error:
    raise ValueError(f"{path}: not a Parquet file: {error}") from error
  for number, row in enumerate(table.to_pylist()):
    yield f"{path}, row {number}", row
