"""Generated questions: scored by the library, disjoint splits, and errors."""

import json

import pytest

from rlvr_jax.core import build
from rlvr_jax.tasks import text
from rlvr_jax.tasks.text import reasoning_gym

SMALL = dict(min_terms=2, max_terms=2, min_digits=1, max_digits=1)  # 200 questions in all


def test_rows_and_the_scorer_of_the_library():
  import reasoning_gym as library

  task = build(text, dict(name="reasoning_gym", dataset="chain_sum", params=SMALL, num_train=20, num_eval=5))
  score = library.get_score_answer_fn("chain_sum")
  for example in (*task.train, *task.eval):
    expression = example.prompt.split(":")[1].removesuffix("=")
    assert str(eval(expression)) == example.reference and example.metadata["metadata"]["num_terms"] == 2
    assert score(example.reference, example.metadata) == 1.0 and score("x", example.metadata) < 0.1
  assert task.name == "reasoning_gym/chain_sum" and json.dumps(task.train[0])


def test_splits_are_disjoint_full_and_counted():
  """60 of 200 questions are held out, so train meets them and itself often."""
  task = reasoning_gym("chain_sum", SMALL, num_train=120, num_eval=60)
  train, held_out = ({e.prompt for e in rows} for rows in (task.train, task.eval))
  assert (len(train), len(held_out)) == (120, 60) and not train & held_out
  assert task.dropped["in_eval"] > 20 and task.dropped["repeated"] > 20
  with pytest.raises(ValueError, match="different questions in 1440 draws, fewer than num_train=180"):
    reasoning_gym("chain_sum", SMALL, num_train=180, num_eval=60)


def test_neighbouring_seeds_are_unrelated():
  """In the library itself, seed 1 is seed 0 moved by one row."""
  first, again, second = (reasoning_gym("chain_sum", num_train=100, num_eval=5, seed=s) for s in (0, 0, 1))
  assert first == again and first.eval == second.eval
  assert len({e.prompt for e in first.train} & {e.prompt for e in second.train}) < 10


def test_generator_that_prepares_its_rows():
  assert len(reasoning_gym("group_anagrams", num_train=5, num_eval=3).train) == 5


def test_errors():
  for arguments, message in [
    (("chain_sums",), "no dataset 'chain_sums'; did you mean 'chain_sum'"),
    (("chain_sum", dict(min_term=2)), "'chain_sum' has no 'min_term'; did you mean 'min_terms'"),
    (("chain_sum", dict(seed=2)), "'chain_sum' has no 'seed'"),
    (("chain_sum", dict(min_terms=5, max_terms=2)), "refuses params=.*max_terms must be >= min_terms"),
  ]:
    with pytest.raises(ValueError, match=message):
      reasoning_gym(*arguments, num_train=3, num_eval=2)
