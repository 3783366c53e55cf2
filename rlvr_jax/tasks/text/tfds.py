"""TFDS data sets, read by random access from array_record files; TensorFlow is never imported."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlvr_jax.core import build, nearest
from rlvr_jax.tasks.text.fields import make_fields, split_task, to_example
from rlvr_jax.tasks.types import EVAL_ID, Example, TextTask, make_task


class Rows(Sequence):
  """Rows of a data source, decoded when asked for. `kept` are the positions in the source that count."""

  def __init__(self, source, decode, kept=None):
    self._source, self._decode = source, decode
    self._kept = np.arange(len(source)) if kept is None else kept

  def __len__(self) -> int:
    return len(self._kept)

  def __getitem__(self, index: int) -> Example:
    position = int(self._kept[index])
    return self._decode(self._source[position], position)

  def select(self, indices: Sequence[int]) -> "Rows":
    return Rows(self._source, self._decode, self._kept[np.asarray(indices, int)])


def tfds_task(data_dir: str, source: Mapping[str, Any] | None = None, prepared: str | None = None) -> TextTask:
  """Another text task kept as a TFDS data set `text_rows/<prepared>` under `data_dir`, and read from there.

  With `source`, the spec of a task of this room, the data set is written unless one of the same content is there: its
  name is the first 16 digits of the task's fingerprint, so changed content never meets old files. With `prepared`,
  that name, nothing is generated. Tuples in a reference or in metadata come back as lists, as in any JSON.

  Raises ValueError unless exactly one of both is given, or when there is no such data set or its content has changed.
  """
  from rlvr_jax.tasks import text
  from rlvr_jax.tasks.text.text_rows import decode, prepare

  if (source is None) == (prepared is None):
    raise ValueError(f"tfds_task needs one of source and prepared, got source={source}, prepared={prepared!r}")
  builder = prepare(data_dir, prepared, None if source is None else build(text, dict(source)))
  splits = {split: Rows(builder.as_data_source(split), decode) for split in builder.info.splits}
  task = make_task(f"text_rows/{builder.builder_config.name}", splits["train"], splits.get("eval", ()))
  if not task.fingerprint.startswith(builder.builder_config.name):
    raise ValueError(f"{task.name} in {data_dir!r} holds other rows than its name says: {task.fingerprint}; delete it")
  return task


def tfds_catalogue(
  dataset: str,
  data_dir: str,
  train_split: str = "train",
  eval_split: str | None = None,
  eval_fraction: float = 0.0,
  download: bool = False,
  fields: Mapping[str, Any] | None = None,
) -> TextTask:
  """A data set of the TFDS catalogue, such as "gsm8k" or "name/config:version".

  Args:
    data_dir:   where prepared data sets are. It must be stored there as array_record.
    eval_split, eval_fraction: the eval rows: a split of the data set, or a share of prompts held out by hash.
    download:   fetch and prepare it when it is not there.
    fields:     as for `jsonl`.

  Raises ValueError for an unknown name or split with the nearest known, and when it is not prepared.
  """
  builder = _catalogue_builder(dataset, data_dir, download)
  fields = make_fields(fields)

  def rows(split: str, first_id: int) -> Rows:
    if split not in builder.info.splits:
      known = sorted(builder.info.splits)
      raise ValueError(f"{builder.info.full_name} has no split {split!r}{nearest(split, known)} It has {known}")

    def decode(row, position: int) -> Example:
      where = f"{builder.info.full_name}, {split} row {position}"
      return to_example(_plain(row), fields, where, first_id + position)

    return Rows(builder.as_data_source(split), decode)

  held_out = None if eval_split is None else rows(eval_split, EVAL_ID)
  return split_task(builder.info.full_name, rows(train_split, 0), held_out, eval_fraction)


def _catalogue_builder(dataset: str, data_dir: str, download: bool):
  import tensorflow_datasets as tfds

  try:
    builder = tfds.builder(dataset, data_dir=data_dir)
  except tfds.core.DatasetNotFoundError as error:
    hint = nearest(dataset, tfds.list_builders(with_community_datasets=False))
    raise ValueError(f"tfds has no dataset {dataset!r} in its catalogue or in {data_dir!r}{hint}") from error
  if not builder.is_prepared():
    if not download:
      raise ValueError(f"{dataset!r} is not prepared in data_dir={data_dir!r}; set download=True to fetch it")
    builder = tfds.builder(dataset, data_dir=data_dir, file_format="array_record")
    builder.download_and_prepare()
  if builder.info.file_format.value != "array_record":
    stored = builder.info.file_format.value
    raise ValueError(f"{dataset!r} in {data_dir!r} is stored as {stored}, random access needs array_record")
  return builder


def _plain(value: Any) -> Any:
  """What TFDS gives, as JSON has it: text for bytes, numbers for numpy scalars, lists for arrays."""
  if isinstance(value, Mapping):
    return {key: _plain(item) for key, item in value.items()}
  if isinstance(value, bytes):
    return value.decode()
  if isinstance(value, np.ndarray | np.generic):
    return _plain(value.tolist())
  return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
