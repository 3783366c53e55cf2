"""Tokenised prompts with the completion to imitate, for a supervised stage."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlvr_jax.tasks.loader import Loader, Row, fit, pad_rows
from rlvr_jax.tasks.types import Example


class DemonstrationBatch(NamedTuple):
  """`p` rows laid out as the sampler does: the prompt ends at column `first_action`, where the demonstration begins."""

  tokens: Any  # int32["p t"]    prompt, demonstration, EOS; t = max_prompt_tokens + max_demonstration_tokens
  valid_mask: Any  # bool["p t"]
  action_mask: Any  # bool["p t"]     demonstration and EOS
  prompt_id: Any  # int32["p"]
  examples: tuple[Example, ...]
  first_action: int


def demonstration_batches(
  examples: Sequence[Example],
  tokenizer: Any,
  template: Any,
  *,
  batch_size: int,
  max_prompt_tokens: int,
  max_demonstration_tokens: int,
  eos_id: int,
  pad_id: int,
  on_long: str = "error",
  on_missing: str = "error",
  seed: int = 0,
  shuffle: bool = True,
  num_epochs: int | None = None,
) -> Loader:
  """Iterator over `DemonstrationBatch`es of one static shape; position, epochs and errors as in `prompt_loader`.

  Args:
    max_demonstration_tokens: budget of the demonstration with its EOS. Over either budget is "long".
    eos_id:     ends every demonstration and is itself to be learnt.
    on_missing: what to do with a row without demonstration: "error" or "drop", as `on_long`.
  """
  budgets = (max_prompt_tokens, max_demonstration_tokens)
  encode = functools.partial(_encode, tokenizer, template, budgets, eos_id)
  collate = functools.partial(_collate, budgets, pad_id)
  kept = fit(examples, encode, dict(long=on_long, missing=on_missing))
  return Loader(
    examples, kept, encode, collate, batch_size=batch_size, seed=seed, shuffle=shuffle, num_epochs=num_epochs
  )


def _encode(tokenizer, template, budgets: tuple[int, int], eos_id: int, example: Example) -> Row:
  row = Row.of_prompt(template(tokenizer, example.prompt), budgets[0])
  if row.reason:
    return row
  if not example.demonstration:
    return row._replace(reason="missing", problem="has no demonstration")
  # Alone, as a continuation is sampled: tokens never straddle the end of the prompt.
  ids = tokenizer(example.demonstration, add_special_tokens=False)["input_ids"] + [eos_id]
  if len(ids) > budgets[1]:
    problem = f"has {len(ids)} demonstration tokens with EOS, more than max_demonstration_tokens={budgets[1]}"
    return row._replace(reason="long", problem=problem)
  return row._replace(demonstration=ids)


def _collate(budgets: tuple[int, int], pad_id: int, pairs) -> DemonstrationBatch:
  examples, rows = zip(*pairs)
  prompt, prompt_mask = pad_rows([row.prompt for row in rows], budgets[0], pad_id, "left")
  action, action_mask = pad_rows([row.demonstration for row in rows], budgets[1], pad_id, "right")
  return DemonstrationBatch(
    tokens=np.concatenate([prompt, action], axis=1),
    valid_mask=np.concatenate([prompt_mask, action_mask], axis=1),
    action_mask=np.concatenate([np.zeros_like(prompt_mask), action_mask], axis=1),
    prompt_id=np.array([example.prompt_id for example in examples], np.int32),
    examples=examples,
    first_action=budgets[0],
  )
