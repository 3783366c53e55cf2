"""Supervised batches: layout, masks, and rows that do not fit."""

import numpy as np
import pytest

from rlvr_jax.tasks import Example, demonstration_batches
from rlvr_jax.tasks.templates import plain

EOS = 2


@pytest.fixture
def load(make_tokenizer):
  def load(examples, **changes):
    options = dict(batch_size=2, max_prompt_tokens=3, max_demonstration_tokens=4, eos_id=EOS, pad_id=0) | changes
    return demonstration_batches(examples, make_tokenizer(adds_bos=True), plain(), **options)

  return load


def test_layout(load, tokenizer):
  rows = [Example(3, "1", 1, "23", {}), Example(4, "2=", 2, "123", {})]
  batch = next(load(rows, shuffle=False))
  one, two, three, equal = tokenizer.convert_tokens_to_ids(list("123="))
  bos = tokenizer.bos_token_id
  np.testing.assert_array_equal(
    batch.tokens, [[0, bos, one, two, three, EOS, 0], [bos, two, equal, one, two, three, EOS]]
  )
  np.testing.assert_array_equal(batch.valid_mask, [[0, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1]])
  np.testing.assert_array_equal(batch.action_mask, [[0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1]])
  assert batch.prompt_id.tolist() == [3, 4] and batch.first_action == 3
  assert (batch.tokens.dtype, batch.action_mask.dtype) == (np.int32, bool)


def test_rows_that_do_not_fit(load):
  good = [Example(i, "1", 1, "2", {}) for i in range(4)]
  missing, long_prompt, long_answer = (
    Example(7, "1", 1, None, {}), Example(8, "123", 1, "1", {}), Example(9, "1", 1, "1234", {}),
  )  # fmt: skip
  for row, named in [
    (missing, "prompt_id 7 .*has no demonstration.*on_missing='drop'"),
    (long_prompt, "prompt_id 8 .*has 4 prompt tokens, more than max_prompt_tokens=3"),
    (long_answer, "prompt_id 9 .*has 5 demonstration tokens with EOS, more than max_demonstration_tokens=4"),
  ]:
    with pytest.raises(ValueError, match=named):
      load([*good, row])
  loader = load([missing, *good, long_prompt, long_answer], on_long="drop", on_missing="drop", num_epochs=1)
  assert loader.dropped == dict(long=2, missing=1) and loader.num_dropped == 3
  assert sorted(i for batch in loader for i in batch.prompt_id.tolist()) == [0, 1, 2, 3]


def test_position_is_restored(load, make_examples):
  whole, resumed = load(make_examples(9)), load(make_examples(9))
  ids = [next(whole).prompt_id.tolist() for _ in range(8)]
  resumed.set_state(load(make_examples(9)).get_state() | dict(next_batch=3))
  assert [next(resumed).prompt_id.tolist() for _ in range(5)] == ids[3:]


def test_position_belongs_to_the_demonstrations(load, make_examples):
  state = load(make_examples(9)).get_state()
  with pytest.raises(ValueError, match="fingerprint was"):
    load([e._replace(demonstration="1") for e in make_examples(9)]).set_state(state)
