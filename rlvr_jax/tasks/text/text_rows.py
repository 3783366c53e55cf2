"""The project's own TFDS builder: the rows of a text task as a data set in array_record files."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from rlvr_jax.tasks.types import Example, TextTask, to_json

VERSION = "1.0.0"


class TextRows(tfds.core.GeneratorBasedBuilder):
  """Features: prompt_id, and as JSON texts prompt, reference, demonstration and metadata. Splits: train, maybe eval."""

  VERSION = tfds.core.Version(VERSION)

  def __init__(self, *, task: TextTask | None = None, **kwargs):
    self._task = task
    super().__init__(**kwargs)

  def _info(self) -> tfds.core.DatasetInfo:
    texts = {name: tfds.features.Text() for name in Example._fields if name != "prompt_id"}
    features = tfds.features.FeaturesDict(dict(prompt_id=tfds.features.Scalar(np.int64), **texts))
    return tfds.core.DatasetInfo(builder=self, description=self.__doc__, features=features, disable_shuffling=True)

  def _split_generators(self, dl_manager) -> dict[str, Iterator]:
    splits = dict(train=self._task.train, eval=self._task.eval)
    return {
      name: self._generate_examples(rows) for name, rows in splits.items() if len(rows)
    }  # TFDS refuses empty ones

  def _generate_examples(self, rows) -> Iterator[tuple[int, dict]]:
    for index, example in enumerate(rows):
      fields = example._asdict()
      yield index, {k: v if k == "prompt_id" else to_json(v) for k, v in fields.items()}


def decode(row: Mapping[str, Any], position: int) -> Example:
  texts = {k: json.loads(row[k]) for k in Example._fields if k != "prompt_id"}
  return Example(prompt_id=int(row["prompt_id"]), **texts)


def prepare(data_dir: str, prepared: str | None, task: TextTask | None) -> TextRows:
  """The builder of the data set named `prepared`, or of the one holding `task`, which is written if it is not there."""
  name = task.fingerprint[:16] if task is not None else prepared
  folder = Path(data_dir) / "text_rows" / name / VERSION
  if task is None and not folder.exists():
    there = sorted(path.parent.name for path in folder.parent.parent.glob(f"*/{VERSION}"))
    raise ValueError(f"no prepared data set {name!r} in {folder.parent.parent}, which has {there}")
  config = tfds.core.BuilderConfig(name=name, version=VERSION)
  builder = TextRows(task=task, config=config, data_dir=data_dir, file_format="array_record")
  builder.download_and_prepare()  # returns at once when it is there
  return builder
