"""The project's TFDS builder and the catalogue adapter, without TensorFlow."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlvr_jax.core import build
from rlvr_jax.tasks import prompt_loader, text
from rlvr_jax.tasks.templates import plain
from rlvr_jax.tasks.text import jsonl, tfds_catalogue, tfds_task

ROOT = Path(__file__).parents[2]
SOURCE = dict(name="arithmetic", num_train=20, num_eval=6, demonstration="columns")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
  return str(tmp_path_factory.mktemp("tfds"))


def test_comes_back_as_it_was(data_dir):
  plain_task, task = build(text, SOURCE), build(text, dict(name="tfds_task", data_dir=data_dir, source=SOURCE))
  assert tuple(task.train) == plain_task.train and tuple(task.eval) == plain_task.eval
  assert task.fingerprint == plain_task.fingerprint
  folder = Path(data_dir, "text_rows", task.fingerprint[:16], "1.0.0")
  assert any("train.array_record" in path.name for path in folder.iterdir())
  written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
  assert tfds_task(data_dir, prepared=task.fingerprint[:16]).fingerprint == task.fingerprint
  assert tfds_task(data_dir, source=SOURCE).fingerprint == task.fingerprint
  assert written == {path: path.stat().st_mtime_ns for path in folder.iterdir()}  # read, not written again


def test_messages_unicode_and_null(tmp_path):
  path = tmp_path / "rows.jsonl"
  path.write_text(
    '{"prompt": [{"role": "user", "content": "é\u2028"}], "reference": null, "x": {"a": [1, null]}}\n', encoding="utf-8"
  )
  task = tfds_task(str(tmp_path), source=dict(name="jsonl", path=str(path)))
  assert tuple(task.train) == jsonl(str(path)).train and len(task.eval) == 0


def test_position_is_restored(data_dir, tokenizer):
  train = tfds_task(data_dir, source=SOURCE).train
  load = lambda: prompt_loader(train, tokenizer, plain(), batch_size=6, max_prompt_tokens=8, pad_id=0)
  whole = load()
  batches = [next(whole) for _ in range(8)]
  for k in range(8):
    resumed = load()
    resumed.set_state(whole.get_state() | dict(next_batch=k))
    for batch in batches[k:]:
      np.testing.assert_array_equal(batch.tokens, next(resumed).tokens)


def test_tensorflow_is_not_imported(data_dir):
  code = f"""
import sys
from rlvr_jax.tasks.text import tfds_task
assert len(tfds_task({data_dir!r}, source={SOURCE!r}).train) == 20
assert "tensorflow_datasets" in sys.modules and "tensorflow" not in sys.modules
"""
  subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


def test_task_errors(data_dir, tmp_path):
  with pytest.raises(ValueError, match="needs one of source and prepared"):
    tfds_task(data_dir)
  with pytest.raises(ValueError, match="no prepared data set '0123' in .*text_rows, which has"):
    tfds_task(data_dir, prepared="0123")
  name = tfds_task(str(tmp_path), source=SOURCE).fingerprint[:16]
  Path(tmp_path, "text_rows", name).rename(Path(tmp_path, "text_rows", "f" * 16))
  with pytest.raises(ValueError, match="holds other rows than its name says"):
    tfds_task(str(tmp_path), prepared="f" * 16)


BUILDER = '''
import numpy as np
import tensorflow_datasets as tfds

class TinySums(tfds.core.GeneratorBasedBuilder):
  """A data set with a name, as in the catalogue."""
  VERSION = tfds.core.Version("1.0.0")
  def _info(self):
    features = dict(question=tfds.features.Text(), answer=tfds.features.Text(), level=tfds.features.Scalar(np.int32),
                    parts=tfds.features.Tensor(shape=(2,), dtype=np.int64))
    return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True)
  def _split_generators(self, dl_manager):
    return dict(train=self._generate_examples(0, 9), test=self._generate_examples(8, 12))
  def _generate_examples(self, start, end):
    for i in range(start, end):
      yield i, dict(question=f"{i}+1=", answer=f"#### {i + 1}", level=i, parts=np.array([i, 1]))
'''


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
  """A data set known to TFDS by name and prepared in a folder."""
  folder = tmp_path_factory.mktemp("catalogue")
  (folder / "tiny_sums.py").write_text(BUILDER)
  spec = importlib.util.spec_from_file_location("tiny_sums", folder / "tiny_sums.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return str(folder / "data")


FIELDS = dict(prompt="question", reference="answer", reference_after="####")


def test_catalogue(catalogue):
  with pytest.raises(ValueError, match="'tiny_sums' is not prepared in data_dir=.*download=True"):
    tfds_catalogue("tiny_sums", catalogue, fields=FIELDS)
  task = tfds_catalogue("tiny_sums", catalogue, eval_split="test", download=True, fields=FIELDS)
  assert [(e.prompt_id, e.prompt, e.reference) for e in task.train] == [(i, f"{i}+1=", str(i + 1)) for i in range(8)]
  assert task.dropped == dict(in_eval=1)  # 8+1= is in both
  assert task.train[3].metadata == dict(level=3, parts=[3, 1]) and len(task.eval) == 4
  shares = tfds_catalogue("tiny_sums", catalogue, eval_fraction=0.5, fields=FIELDS)
  assert len(shares.train) + len(shares.eval) == 9 and len(shares.eval) > 0
  with pytest.raises(ValueError, match="has no split 'tst'; did you mean 'test'"):
    tfds_catalogue("tiny_sums", catalogue, eval_split="tst", fields=FIELDS)
  with pytest.raises(ValueError, match="train row 0: no field 'prompt'"):
    tfds_catalogue("tiny_sums", catalogue)
  with pytest.raises(ValueError, match="no dataset 'tiny_sum' .*did you mean 'tiny_sums'"):
    tfds_catalogue("tiny_sum", catalogue)
