"""The procedural generators of the reasoning-gym library."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rlvr_jax.core import check_keys, nearest
from rlvr_jax.tasks.types import EVAL_ID, Example, TextTask, derived_seed, make_task

MAX_ROUNDS = 4  # how often the number of draws is doubled before a generator counts as exhausted


def reasoning_gym(
  dataset: str,
  params: Mapping[str, Any] | None = None,
  num_train: int = 20000,
  num_eval: int = 200,
  seed: int = 0,
) -> TextTask:
  """`num_train` and `num_eval` different questions of the generator `dataset` with `params`, no question in both.

  The library draws row i from `Random(seed + i)`, so neighbouring seeds share nearly all rows. Here both splits get
  far-apart seeds derived from `seed`, a question that was drawn before is replaced by a later one, and train questions
  that are in eval are dropped and replaced: both counted in `dropped`. The eval rows do not depend on `seed`.

  The reference is the entry's `answer` (None where the library has no single one) and the metadata is the entry, as
  `reasoning_gym.get_score_answer_fn(dataset)(answer, metadata)` wants it.

  Raises ValueError for an unknown generator or parameter, a value that the generator refuses, or fewer different
  questions than asked for. Rows are generated here: from 25 us (chain_sum) to a second (knight_swap) each. A few
  generators read sets in hash order (isomorphic_strings, polynomial_multiplication and ransom_note in 0.1.25): their
  rows and fingerprint change between processes unless PYTHONHASHSEED is set, or `tfds_task` keeps what was generated.
  """
  params = dict(params or {})
  _check(dataset, params)
  dropped = dict(repeated=0, in_eval=0)
  make = lambda role: derived_seed("reasoning_gym", *role)
  held_out = _draw(dataset, params, make(["eval"]), num_eval, "num_eval", set(), dropped)
  questions = {entry["question"] for entry in held_out}
  train = _draw(dataset, params, make(["train", seed]), num_train, "num_train", questions, dropped)
  name = f"reasoning_gym/{dataset}"
  return make_task(name, _examples(train, 0), _examples(held_out, EVAL_ID), dropped)


def _check(dataset: str, params: Mapping[str, Any]) -> None:
  from reasoning_gym.factory import DATASETS  # imports a hundred generators: only when used

  if dataset not in DATASETS:
    raise ValueError(f"reasoning_gym has no dataset {dataset!r}{nearest(dataset, DATASETS)} It has {sorted(DATASETS)}")
  known = {field.name for field in dataclasses.fields(DATASETS[dataset][1])}
  check_keys(f"reasoning_gym {dataset!r}", params, known - {"seed", "size"})


def _create(dataset: str, params: Mapping[str, Any], seed: int, size: int):
  import reasoning_gym as library

  try:
    return library.create_dataset(dataset, seed=seed, size=size, **params)
  except (AssertionError, TypeError, ValueError) as error:
    raise ValueError(f"reasoning_gym {dataset!r} refuses params={params} with size={size}: {error}") from error


def _draw(dataset, params, seed: int, num: int, argument: str, excluded: set[str], dropped: dict) -> list[dict]:
  """The first `num` entries with different questions, none of them in `excluded`; counts the others in `dropped`."""
  found, done = {}, 0
  for size in (num * 2**i for i in range(MAX_ROUNDS) if num):
    source = _create(dataset, params, seed, size)
    for index in range(done, size):
      if len(found) == num:
        break
      entry = source[index]
      question = entry["question"]
      dropped["in_eval"] += question in excluded
      dropped["repeated"] += question in found
      if question not in excluded:
        found.setdefault(question, entry)
    done = size
  if len(found) < num:
    raise ValueError(
      f"reasoning_gym {dataset!r} with params={params} gave {len(found)} different questions in {done} draws, "
      f"fewer than {argument}={num}"
    )
  return list(found.values())


def _examples(entries: list[dict], first_id: int) -> tuple[Example, ...]:
  return tuple(Example(first_id + i, e["question"], e["answer"], None, e) for i, e in enumerate(entries))
