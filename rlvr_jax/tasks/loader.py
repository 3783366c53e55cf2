"""What both kinds of batches share: the one pass that checks every row, and the resumable iterator."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import grain
import numpy as np
from jaxtyping import Bool, Int

from rlvr_jax.core import nearest
from rlvr_jax.tasks.types import Example, derived_seed, to_json


class Row(NamedTuple):
  """Token ids of one example; if it cannot be used, a reason ("long", "missing") and the rule that it breaks."""

  prompt: list[int]
  demonstration: list[int] = []
  reason: str = ""
  problem: str = ""

  @classmethod
  def of_prompt(cls, ids: list[int], max_prompt_tokens: int) -> "Row":
    if len(ids) > max_prompt_tokens:
      return cls(ids, [], "long", f"has {len(ids)} prompt tokens, more than max_prompt_tokens={max_prompt_tokens}")
    return cls(ids)


class Fit(NamedTuple):
  """Which rows can be used."""

  indices: list[int]
  dropped: Mapping[str, int]
  fingerprint: str  # sha256 over id, tokens and reference of the usable rows: data, tokenizer and template


def fit(examples: Sequence[Example], encode: Callable[[Example], Row], on_unfit: Mapping[str, str]) -> Fit:
  """Encodes every row once. `on_unfit` says per reason whether such a row is an "error" or to "drop".

  Raises ValueError for an unfit row, a prompt without tokens, an id used twice, or when nothing is left.
  """
  for reason, action in on_unfit.items():
    if action not in ("error", "drop"):
      hint = nearest(action, ("error", "drop"))
      raise ValueError(f"on_{reason} must be 'error' or 'drop', got {action!r}{hint}")
  digest, ids, indices, dropped = hashlib.sha256(), set(), [], {reason: 0 for reason in on_unfit}
  for index in range(len(examples)):
    example = examples[index]
    row = encode(example)
    _check(example, row, ids, on_unfit)
    if row.reason:
      dropped[row.reason] += 1
      continue
    indices.append(index)
    digest.update(to_json([example.prompt_id, row.prompt, row.demonstration, example.reference]).encode() + b"\n")
  if not indices:
    raise ValueError(f"the data set has no usable rows: {len(examples)} rows, dropped {dropped}")
  return Fit(indices, dropped, digest.hexdigest())


def _check(example: Example, row: Row, ids: set, on_unfit: Mapping[str, str]) -> None:
  where = f"row with prompt_id {example.prompt_id} ({str(example.prompt)[:60]!r})"
  if example.prompt_id in ids:
    raise ValueError(f"{where}: the id is used twice; group statistics need one prompt per id")
  ids.add(example.prompt_id)
  if not row.prompt:
    raise ValueError(f"{where} has no prompt tokens; the sampler needs at least one")
  if row.reason and on_unfit[row.reason] == "error":
    raise ValueError(f"{where} {row.problem}; change that, or set on_{row.reason}='drop' to leave such rows out")


def pad_rows(
  rows: Sequence[list[int]], width: int, pad_id: int, side: str
) -> tuple[Int[np.ndarray, "p l"], Bool[np.ndarray, "p l"]]:
  """Rows of ids as one array and its mask, padded on `side` ("left" or "right"); none is longer than `width`."""
  tokens = np.full((len(rows), width), pad_id, np.int32)
  mask = np.zeros((len(rows), width), bool)
  for i, row in enumerate(rows):
    place = slice(width - len(row), width) if side == "left" else slice(0, len(row))
    tokens[i, place], mask[i, place] = row, True
  return tokens, mask


class Loader:
  """Iterator over batches of usable rows, whose whole state is the number of the next batch.

  A batch lies within one epoch, so no prompt is in it twice; each epoch is shuffled anew. The order is a pure function
  of (seed, epoch), so a restored loader continues exactly, wherever it stopped.

  Attributes: num_dropped (rows left out, each counted once), dropped (the same by reason), fingerprint (of what is
  read), batches_per_epoch.
  """

  def __init__(
    self,
    examples: Sequence[Example],
    kept: Fit,
    encode: Callable[[Example], Row],
    collate: Callable[[list], Any],
    *,
    batch_size: int,
    seed: int,
    shuffle: bool,
    num_epochs: int | None,
  ):
    if not 1 <= batch_size <= len(kept.indices):
      raise ValueError(
        f"batch_size must be in [1, number of usable rows], got {batch_size} with {len(kept.indices)} rows "
        f"(dropped {dict(kept.dropped)}): a batch holds no prompt twice"
      )
    if num_epochs is not None and num_epochs < 1:
      raise ValueError(f"num_epochs must be at least 1 or None for no end, got {num_epochs}")
    self.dropped, self.fingerprint = dict(kept.dropped), kept.fingerprint
    self.num_dropped = sum(kept.dropped.values())
    self.batches_per_epoch = len(kept.indices) // batch_size
    self._examples, self._encode, self._collate = examples, encode, collate
    self._identity = dict(fingerprint=kept.fingerprint, batch_size=batch_size, seed=seed, shuffle=shuffle)
    self._indices = kept.indices
    self._num_batches = None if num_epochs is None else num_epochs * self.batches_per_epoch
    self._next = 0
    order = grain.MapDataset.source(kept.indices)
    order = order.shuffle(seed=derived_seed("order of prompts", seed)) if shuffle else order
    self._order = order.batch(batch_size, drop_remainder=True).repeat(num_epochs)

  def __iter__(self):
    return self

  def __next__(self):
    if self._next == self._num_batches:
      raise StopIteration
    examples = [self._examples[int(i)] for i in self._order[self._next]]
    self._next += 1
    return self._collate([(example, self._encode(example)) for example in examples])

  @property
  def num_rows(self) -> int:
    """Usable rows."""
    return len(self._indices)

  def at(self, rows: Sequence[int]):
    """The batch of these usable rows, chosen by someone else; the position stays where it is. -1: filler, row 0."""
    examples = [self._examples[self._indices[max(int(i), 0)]] for i in rows]
    return self._collate([(example, self._encode(example)) for example in examples])

  @property
  def epoch(self) -> int:
    """Epoch of the next batch, from 0; after the last one, the number of epochs."""
    return self._next // self.batches_per_epoch

  def get_state(self) -> dict:
    """Position and what it is a position in; can be written as JSON."""
    return dict(self._identity, next_batch=self._next)

  def set_state(self, state: Mapping[str, Any]) -> None:
    """Continues from `get_state`. Raises ValueError when it was taken over other data or settings, naming each."""
    known = {*self._identity, "next_batch"}
    if set(state) != known:
      raise ValueError(f"a loader state has keys {sorted(known)}, got {sorted(state)}")
    other = [f"{k} was {state[k]!r}, is {mine!r}" for k, mine in self._identity.items() if state[k] != mine]
    if other:
      raise ValueError(f"this position belongs to another stream of prompts: {'; '.join(other)}")
    end = float("inf") if self._num_batches is None else self._num_batches
    if not 0 <= state["next_batch"] <= end:
      raise ValueError(f"next_batch must be in [0, {end}], got {state['next_batch']}")
    self._next = int(state["next_batch"])
