"""JSONL and Parquet rows, their fields, splits and errors."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from rlvr_jax.tasks.text import jsonl, parquet

ROWS = [
  dict(question="1+1", answer="so\n#### 2", hint=[1, 2], gold=None),
  dict(question="line\u2028separator\u0085x", answer="a #### b #### 3", hint=[], gold="3"),
]
FIELDS = dict(prompt="question", reference="answer", reference_after="####", demonstration="gold")


def write(path, rows):
  path.write_bytes(b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows))
  return str(path)


def write_parquet(path, rows):
  pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
  return str(path)


@pytest.mark.parametrize("read, save", [(jsonl, write), (parquet, write_parquet)])
def test_rows(tmp_path, read, save):
  task = read(save(tmp_path / "rows", ROWS), fields=FIELDS)
  assert [list(e) for e in task.train] == [
    [0, "1+1", "2", None, dict(hint=[1, 2])],
    [1, "line\u2028separator\u0085x", "3", "3", dict(hint=[])],
  ]
  assert task.eval == () and task.dropped == dict(in_eval=0)


def test_both_formats_have_one_fingerprint_and_content_changes_it(tmp_path):
  first = jsonl(write(tmp_path / "a", ROWS), fields=FIELDS)
  second = parquet(write_parquet(tmp_path / "b", ROWS), fields=FIELDS)
  changed = jsonl(write(tmp_path / "c", [ROWS[0] | dict(hint=[3]), ROWS[1]]), fields=FIELDS)
  swapped = jsonl(write(tmp_path / "d", ROWS[::-1]), fields=FIELDS)
  assert first.fingerprint == second.fingerprint
  assert len({first.fingerprint, changed.fingerprint, swapped.fingerprint}) == 3


def test_eval_file_takes_its_prompts_out_of_train(tmp_path):
  rows = [dict(prompt=f"p{i}", reference=i) for i in range(6)]
  task = jsonl(write(tmp_path / "train", rows), eval_path=write(tmp_path / "eval", rows[1:3]))
  assert [e.prompt for e in task.train] == ["p0", "p3", "p4", "p5"] and [e.prompt for e in task.eval] == ["p1", "p2"]
  assert task.dropped == dict(in_eval=2) and [e.prompt_id for e in task.eval] == [2**30, 2**30 + 1]
  with pytest.raises(ValueError, match="has no train rows: 2 read"):
    jsonl(write(tmp_path / "train", rows[:2]), eval_path=write(tmp_path / "eval", rows))


def test_eval_fraction_is_by_prompt(tmp_path):
  """Equal prompts stay on one side, and a row keeps its side when the file grows."""
  rows = [dict(prompt=f"p{i % 50}", reference=i) for i in range(100)]
  task = jsonl(write(tmp_path / "a", rows), eval_fraction=0.3)
  train, held_out = ({e.prompt for e in split} for split in (task.train, task.eval))
  assert not train & held_out and 5 <= len(held_out) <= 25 and len(task.train) + len(task.eval) == 100
  grown = jsonl(write(tmp_path / "b", rows + [dict(prompt="new", reference=0)]), eval_fraction=0.3)
  assert held_out == {e.prompt for e in grown.eval} - {"new"}


def test_messages_and_ids(tmp_path):
  messages = [dict(role="system", content="s"), dict(role="user", content="u")]
  path = write(tmp_path / "a", [dict(prompt=messages, reference=[1], row=42)])
  (example,) = jsonl(path, fields=dict(id="row")).train
  assert example.prompt == messages and example.prompt_id == 42 and example.reference == [1]


@pytest.mark.parametrize(
  "line, message",
  [
    (b'{"prompt": "a"', "bad, line 3: not JSON"),
    (b'["a"]', "bad, line 3: must be an object, got list"),
    (b'{"promt": "a", "reference": 1}', "bad, line 3: no field 'prompt'; did you mean 'promt'"),
    (b'{"prompt": "", "reference": 1}', "bad, line 3: 'prompt' must be text.*not empty"),
    (b'{"prompt": 5, "reference": 1}', "bad, line 3: 'prompt' must be text"),
    (b'{"prompt": [{"role": "user"}], "reference": 1}', "bad, line 3: 'prompt' must be text, or messages"),
    (b'{"prompt": "a", "reference": NaN}', "bad, line 3: .*NaN"),
    (b'{"prompt": "\xff", "reference": 1}', "bad, line 3: not JSON in UTF-8"),
  ],
)
def test_malformed_row_names_file_and_line(tmp_path, line, message):
  (tmp_path / "bad").write_bytes(b'{"prompt": "x", "reference": 0}\n\n' + line + b"\n")
  with pytest.raises(ValueError, match=message):
    jsonl(str(tmp_path / "bad"))


def test_other_errors(tmp_path):
  path = write(tmp_path / "a", [dict(prompt="a", reference="1", row=1), dict(prompt="b", reference="2", row=1)])
  for options, message in [
    (dict(fields=dict(promt="a")), "fields has no 'promt'; did you mean 'prompt'"),
    (dict(fields=dict(id="row")), "prompt_id 1: the id is used twice"),
    (dict(fields=dict(id="prompt")), "line 1: 'prompt' must be a whole number, got 'a'"),
    (dict(fields=dict(demonstration="row")), "line 1: 'row' must be text or null, got 1"),
    (dict(fields=dict(reference_after="#")), "line 1: 'reference' has no '#'"),
    (dict(fields=dict(metadata=("rows",))), "no field 'rows'; did you mean 'row'"),
    (dict(eval_fraction=1.5), r"eval_fraction must be in \[0, 1\), got 1.5"),
    (dict(eval_path=path, eval_fraction=0.5), "not both"),
    (dict(eval_path=str(tmp_path / "none")), "no file '.*none'"),
  ]:
    with pytest.raises(ValueError, match=message):
      jsonl(path, **options)
  with pytest.raises(ValueError, match="a: not a Parquet file"):
    parquet(path)
  with pytest.raises(ValueError, match="has no train rows: 0 read"):
    jsonl(write(tmp_path / "empty", []))
