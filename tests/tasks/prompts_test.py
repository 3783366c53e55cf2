"""Batches: layout, epochs, exact position, drops, and one pass for evaluation."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlvr_jax.tasks import Example, eval_batches, prompt_loader
from rlvr_jax.tasks.templates import plain

ROOT = Path(__file__).parents[2]


@pytest.fixture
def load(tokenizer):
  def load(examples, **changes):
    options = dict(batch_size=3, max_prompt_tokens=4, pad_id=0) | changes
    return prompt_loader(examples, tokenizer, plain(), **options)

  return load


def ids(loader, num):
  return [next(loader).prompt_id.tolist() for _ in range(num)]


def test_layout(load, tokenizer):
  examples = (Example(7, "1=", 1, None, {}), Example(9, "123=", 2, None, {}))
  batch = next(load(examples, batch_size=2, shuffle=False, max_prompt_tokens=5))
  one, two, three, equal = tokenizer.convert_tokens_to_ids(list("123="))
  np.testing.assert_array_equal(batch.tokens, [[0, 0, 0, one, equal], [0, one, two, three, equal]])
  np.testing.assert_array_equal(batch.valid_mask, [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]])
  assert batch.prompt_id.tolist() == [7, 9] and batch.examples == examples and batch.real.all()
  assert (batch.tokens.dtype, batch.valid_mask.dtype, batch.prompt_id.dtype) == (np.int32, bool, np.int32)


def test_smallest_bucket_that_holds_the_batch(load):
  examples = [Example(i, "1" * (i + 1), 0, None, {}) for i in range(6)]
  loader = load(examples, batch_size=2, shuffle=False, max_prompt_tokens=6, buckets=(2, 5, 8))
  assert [next(loader).tokens.shape[1] for _ in range(3)] == [2, 5, 8]
  for buckets in ((2, 5), (5, 2, 8), (2, 2, 8), (0, 8)):
    with pytest.raises(ValueError, match="buckets must ascend to at least max_prompt_tokens=6"):
      load(examples, max_prompt_tokens=6, buckets=buckets)


def test_epochs_cover_without_repeats_and_are_reshuffled(load, make_examples):
  loader = load(make_examples(12), seed=5)
  epochs = [sum(ids(loader, 4), []) for _ in range(3)]
  assert all(sorted(epoch) == list(range(100, 112)) for epoch in epochs)
  assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != sorted(epochs[0])


def test_a_batch_stays_within_its_epoch(load, make_examples):
  loader = load(make_examples(7), seed=1)
  for _ in range(20):
    epoch = sum(ids(loader, 2), [])
    assert len(set(epoch)) == 6
  assert loader.epoch == 20


def test_seeds_are_unrelated(load, make_examples):
  """Not just another epoch of the neighbouring seed, as adding the two would give."""
  examples = make_examples(30)
  first, second = load(examples, seed=0, batch_size=30), load(examples, seed=1, batch_size=30)
  orders = [tuple(row) for loader in (first, second) for row in ids(loader, 5)]
  assert len(set(orders)) == 10


def test_num_epochs_ends_and_no_shuffle_keeps_order(load, make_examples):
  loader = load(make_examples(6), shuffle=False, num_epochs=2)
  seen = [(loader.epoch, batch.prompt_id.tolist()) for batch in loader]
  assert [row for _, row in seen] == [[100, 101, 102], [103, 104, 105]] * 2
  assert loader.epoch == 2 and next(loader, None) is None


@pytest.mark.parametrize("num_epochs", [None, 3])
def test_restore_at_every_position(load, make_examples, num_epochs):
  """3 batches an epoch, 3 epochs: every boundary, the start and the end among the positions."""
  examples = make_examples(11)
  whole = ids(load(examples, num_epochs=num_epochs), 9)
  for k in range(10):
    first = load(examples, num_epochs=num_epochs)
    assert ids(first, k) == whole[:k]
    state = json.loads(json.dumps(first.get_state()))
    second = load(examples, num_epochs=num_epochs)
    next(second)  # a position of its own, to be forgotten
    second.set_state(state)
    assert second.epoch == first.epoch == k // 3
    assert ids(second, 9 - k) == whole[k:]
    assert num_epochs is None or next(second, None) is None


def test_restore_in_another_process(load, make_examples):
  """The order does not hang on anything of this process, such as its string hashes."""
  code = """
import json, sys
from rlvr_jax.tasks import Example, prompt_loader
from rlvr_jax.tasks.templates import plain
class Characters:
  bos_token_id = None
  def __call__(self, text, add_special_tokens): return dict(input_ids=[ord(c) for c in text])
rows = [Example(i, f"{i}=", i, None, {}) for i in range(11)]
loader = prompt_loader(rows, Characters(), plain(), batch_size=3, max_prompt_tokens=4, pad_id=0)
if len(sys.argv) > 1: loader.set_state(json.loads(sys.argv[1]))
print(json.dumps([[next(loader).prompt_id.tolist() for _ in range(4)], loader.get_state()]))
"""

  def run(*arguments):
    out = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=True, text=True, cwd=ROOT)
    return json.loads(out.stdout)

  first, state = run()
  second, _ = run(json.dumps(state))
  exec(code.split("if len")[0], scope := {})
  assert [next(scope["loader"]).prompt_id.tolist() for _ in range(8)] == first + second


def test_restore_refuses_other_data_and_settings(load, make_examples):
  state = load(make_examples(9)).get_state()
  for loader, named in [
    (load(make_examples(10)), "fingerprint was"),
    (load([e._replace(reference="x") for e in make_examples(9)]), "fingerprint was"),
    (load(make_examples(9)[::-1]), "fingerprint was"),
    (load(make_examples(9), batch_size=4), "batch_size was 3, is 4"),
    (load(make_examples(9), seed=1), "seed was 0, is 1"),
    (load(make_examples(9), shuffle=False), "shuffle was True, is False"),
  ]:
    with pytest.raises(ValueError, match=named):
      loader.set_state(state)
  with pytest.raises(ValueError, match="a loader state has keys"):
    load(make_examples(9)).set_state(dict(next_batch=1))
  with pytest.raises(ValueError, match=r"next_batch must be in \[0, 3\], got 4"):
    load(make_examples(9), num_epochs=1).set_state(state | dict(next_batch=4))


def test_long_prompt_is_named_before_the_first_batch(load):
  rows = [Example(i, "1=", 0, None, {}) for i in range(5)] + [Example(41, "12345=", 0, None, {})]
  with pytest.raises(ValueError, match="prompt_id 41 .*has 6 prompt tokens, more than max_prompt_tokens=4"):
    load(rows)
  assert load(rows, max_prompt_tokens=6).num_dropped == 0  # exactly the budget fits


def test_drops_are_counted_once_and_batches_stay_full(load, make_examples):
  rows = [e._replace(prompt="12345=") if i % 5 == 2 else e for i, e in enumerate(make_examples(13))]
  loader = load(rows, on_long="drop")
  whole = ids(loader, 7)
  assert {i for row in whole[:3] for i in row} <= {e.prompt_id for e in rows if len(e.prompt) < 5}
  assert all(len(set(row)) == 3 for row in whole) and loader.num_dropped == 3 and loader.dropped == dict(long=3)
  resumed = load(rows, on_long="drop")
  resumed.set_state(loader.get_state() | dict(next_batch=4))
  assert ids(resumed, 3) == whole[4:] and resumed.num_dropped == 3


def test_bad_data(load, make_examples):
  examples = make_examples(4)
  with pytest.raises(ValueError, match="the data set has no usable rows: 0 rows"):
    load(())
  with pytest.raises(ValueError, match=r"no usable rows: 4 rows, dropped {'long': 4}"):
    load(examples, max_prompt_tokens=1, on_long="drop")
  with pytest.raises(ValueError, match="batch_size must be in .*got 5 with 4 rows"):
    load(examples, batch_size=5)
  with pytest.raises(ValueError, match="batch_size must be in .*got 0"):
    load(examples, batch_size=0)
  with pytest.raises(ValueError, match="prompt_id 100 .*used twice"):
    load((*examples, examples[0]))
  with pytest.raises(ValueError, match="prompt_id 1 .*no prompt tokens"):
    load([Example(1, "", 0, None, {})])
  with pytest.raises(ValueError, match="on_long must be 'error' or 'drop', got 'dorp'; did you mean 'drop'"):
    load(examples, on_long="dorp")
  with pytest.raises(ValueError, match="num_epochs must be at least 1"):
    load(examples, num_epochs=0)


@pytest.mark.parametrize("num, batch_size", [(7, 3), (6, 3), (2, 5)])
def test_eval_uses_every_prompt_once_in_order(tokenizer, make_examples, num, batch_size):
  batches = eval_batches(make_examples(num), tokenizer, plain(), batch_size=batch_size, max_prompt_tokens=4, pad_id=0)
  real = [i for batch in batches for i in batch.prompt_id[batch.real].tolist()]
  assert real == list(range(100, 100 + num)) and len(batches) == -(-num // batch_size)
  assert all(batch.tokens.shape == (batch_size, 4) and batch.valid_mask.any(axis=1).all() for batch in batches)
  assert all(e.prompt_id == i for batch in batches for e, i in zip(batch.examples, batch.prompt_id))


def test_eval_long_prompts(tokenizer, make_examples):
  rows = (*make_examples(3), Example(5, "12345=", 0, None, {}))
  options = dict(batch_size=2, max_prompt_tokens=4, pad_id=0)
  with pytest.raises(ValueError, match="prompt_id 5 "):
    eval_batches(rows, tokenizer, plain(), **options)
  batches = eval_batches(rows, tokenizer, plain(), on_long="drop", **options)
  assert batches.num_dropped == 1 and sum(batch.real.sum() for batch in batches) == 3
