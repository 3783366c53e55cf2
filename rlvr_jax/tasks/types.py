"""What a text task is: rows with a prompt and something to verify against, in two disjoint splits."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Prompt = str | list[dict]

EVAL_ID = 2**30  # where the ids of a separately drawn eval split start, so they never meet a train id
MAX_ID = 2**31  # ids are int32


class Example(NamedTuple):
  """One row of a task. Everything in it can be written as JSON."""

  prompt_id: int  # in [0, 2**31), unique over both splits, stable over epochs and restarts
  prompt: Prompt  # text, or messages `[{"role": ..., "content": ...}]`
  reference: Any  # what verifiers compare with
  demonstration: str | None  # a completion worth imitating, for the supervised stage
  metadata: Mapping[str, Any]


class TextTask(NamedTuple):
  """Train and eval rows, disjoint in their prompts. `dropped` counts rows left out on the way, by reason."""

  name: str
  train: Sequence[Example]
  eval: Sequence[Example]
  fingerprint: str  # sha256 over the content of both splits, in order
  dropped: Mapping[str, int]


def to_json(value: Any) -> str:
  """One text for one value: keys sorted, no NaN. Raises TypeError or ValueError for what JSON cannot hold."""
  return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def prompt_hash(prompt: Prompt) -> int:
  """64 bits of the sha256 of the prompt; the same in every process, unlike `hash`."""
  return int.from_bytes(hashlib.sha256(to_json(prompt).encode()).digest()[:8])


def is_held_out(prompt: Prompt, fraction: float) -> bool:
  """Whether the prompt belongs to the eval split, decided by its text alone: equal prompts never part."""
  return prompt_hash(prompt) < fraction * 2**64


def derived_seed(*parts: Any) -> int:
  """A 31-bit seed from the sha256 of `parts`; seeds 0 and 1 give unrelated streams, as do two roles with one seed."""
  return int.from_bytes(hashlib.sha256(to_json(list(parts)).encode()).digest()[:4]) >> 1


def make_task(
  name: str, train: Sequence[Example], held_out: Sequence[Example], dropped: Mapping[str, int] | None = None
) -> TextTask:
  """Checks both splits, drops and counts (`in_eval`) train rows whose prompt is an eval prompt, fingerprints the rest.

  Raises ValueError for an empty train split, an id that is out of range or used twice, an empty prompt, or a row
  that JSON cannot hold.
  """
  digest, seen, dropped = hashlib.sha256(), {}, dict(in_eval=0) | dict(dropped or {})
  eval_prompts = set()
  for example in held_out:
    digest.update(b"eval" + _line(name, "eval", example, seen))
    eval_prompts.add(to_json(example.prompt))
  kept = []
  for index, example in enumerate(train):  # one pass: rows may be decoded as they are read
    if to_json(example.prompt) not in eval_prompts:
      digest.update(b"train" + _line(name, "train", example, seen))
      kept.append(index)
  if not kept:
    raise ValueError(f"task {name!r} has no train rows: {len(train)} read, dropped {dropped}, the rest is in eval")
  if len(kept) < len(train):
    dropped["in_eval"] += len(train) - len(kept)
    train = select(train, kept)
  return TextTask(name, train, held_out, digest.hexdigest(), dropped)


def select(rows: Sequence[Example], indices: Sequence[int]) -> Sequence[Example]:
  """Those rows, still lazy if `rows` reads them when asked (it then has a `select` of its own)."""
  return rows.select(indices) if hasattr(rows, "select") else tuple(rows[i] for i in indices)


def _line(name: str, split: str, example: Example, seen: dict[int, str]) -> bytes:
  """The row as JSON, once it has passed."""
  where = f"task {name!r}, {split} row with prompt_id {example.prompt_id}"
  if not 0 <= example.prompt_id < MAX_ID:
    raise ValueError(f"{where}: ids must be in [0, 2**31)")
  if example.prompt_id in seen:
    raise ValueError(f"{where}: the id is used twice, before in {seen[example.prompt_id]}")
  seen[example.prompt_id] = split
  if not example.prompt:
    raise ValueError(f"{where}: the prompt is empty")
  try:
    return to_json(list(example)).encode() + b"\n"
  except (TypeError, ValueError) as error:
    raise ValueError(f"{where}: not writable as JSON: {error}") from error
