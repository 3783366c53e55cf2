"""Tokenised batches of prompts: shuffled epochs with an exact position, and one fixed pass for evaluation."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlvr_jax.tasks.loader import Loader, Row, fit, pad_rows
from rlvr_jax.tasks.types import Example


class PromptBatch(NamedTuple):
  """`p` distinct prompts, left-padded to the smallest bucket `l` that holds them all."""

  tokens: Any  # int32["p l"]
  valid_mask: Any  # bool["p l"]
  prompt_id: Any  # int32["p"]
  examples: tuple[Example, ...]
  real: Any  # bool["p"]   False: a repeat that fills the last eval batch


PromptLoader = Loader


@dataclasses.dataclass(frozen=True)
class EvalBatches:
  """Every eval prompt exactly once where `real`, in the order of the data set."""

  batches: tuple[PromptBatch, ...]
  num_dropped: int
  fingerprint: str

  def __iter__(self):
    return iter(self.batches)

  def __len__(self):
    return len(self.batches)


def prompt_loader(
  examples: Sequence[Example],
  tokenizer: Any,
  template: Any,
  *,
  batch_size: int,
  max_prompt_tokens: int,
  pad_id: int,
  buckets: tuple[int, ...] | None = None,
  on_long: str = "error",
  seed: int = 0,
  shuffle: bool = True,
  num_epochs: int | None = None,
) -> Loader:
  """Iterator over `PromptBatch`es of `batch_size` different prompts.

  Every prompt is tokenised once here, so that a row which does not fit stops the run before anything compiles.

  Args:
    examples:   rows with random access.
    template:   `(tokenizer, prompt) -> ids`, see `tasks.templates`.
    buckets:    ascending widths a batch may be padded to, the last at least `max_prompt_tokens`; by default just that.
    on_long:    what to do with a prompt longer than `max_prompt_tokens`: "error" names it, "drop" leaves it out and
                counts it in `num_dropped`.
    seed:       of the order. Every epoch has its own.
    num_epochs: passes over the data; None for no end. The last `len % batch_size` prompts of a pass wait for the next.
  """
  buckets = _check_buckets(buckets, max_prompt_tokens)
  encode = functools.partial(_encode, tokenizer, template, max_prompt_tokens)
  collate = functools.partial(_collate, buckets=buckets, pad_id=pad_id)
  kept = fit(examples, encode, dict(long=on_long))
  return Loader(
    examples, kept, encode, collate, batch_size=batch_size, seed=seed, shuffle=shuffle, num_epochs=num_epochs
  )


def eval_batches(
  examples: Sequence[Example],
  tokenizer: Any,
  template: Any,
  *,
  batch_size: int,
  max_prompt_tokens: int,
  pad_id: int,
  buckets: tuple[int, ...] | None = None,
  on_long: str = "error",
) -> EvalBatches:
  """All of `examples` in order; the last batch is filled up with repeats of its rows, which are not `real`."""
  buckets = _check_buckets(buckets, max_prompt_tokens)
  encode = functools.partial(_encode, tokenizer, template, max_prompt_tokens)
  kept = fit(examples, encode, dict(long=on_long))
  if batch_size < 1:
    raise ValueError(f"batch_size must be at least 1, got {batch_size}")
  batches = []
  for start in range(0, len(kept.indices), batch_size):
    real = [(examples[i], encode(examples[i])) for i in kept.indices[start : start + batch_size]]
    filled = [real[i % len(real)] for i in range(batch_size)]
    batch = _collate(filled, buckets=buckets, pad_id=pad_id)
    batches.append(batch._replace(real=np.arange(batch_size) < len(real)))
  return EvalBatches(tuple(batches), sum(kept.dropped.values()), kept.fingerprint)


def _check_buckets(buckets, max_prompt_tokens: int) -> tuple[int, ...]:
  buckets = tuple(buckets or (max_prompt_tokens,))
  if buckets[0] < 1 or any(a >= b for a, b in zip(buckets, buckets[1:])) or buckets[-1] < max_prompt_tokens:
    raise ValueError(f"buckets must ascend to at least max_prompt_tokens={max_prompt_tokens}, got {buckets}")
  return buckets


def _encode(tokenizer, template, max_prompt_tokens: int, example: Example) -> Row:
  return Row.of_prompt(template(tokenizer, example.prompt), max_prompt_tokens)


def _collate(pairs, *, buckets, pad_id: int) -> PromptBatch:
  examples, rows = zip(*pairs)
  longest = max(len(row.prompt) for row in rows)
  tokens, valid_mask = pad_rows([row.prompt for row in rows], min(b for b in buckets if b >= longest), pad_id, "left")
  prompt_id = np.array([example.prompt_id for example in examples], np.int32)
  return PromptBatch(tokens, valid_mask, prompt_id, examples, np.ones(len(rows), bool))
