"""What a run leaves on disk: metrics.jsonl, TensorBoard events, rollouts.jsonl. All of it survives a kill.

One JSON object per line, ASCII only: no separator that Unicode knows besides the newline (U+2028, U+0085) and no lone
surrogate a model may emit stands unescaped. A line without its newline was cut by a kill and is dropped on reopening.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX import SummaryWriter


def plain_json(value: Any) -> Any:
  """Arrays, NumPy scalars, tuples and mappings to what strict JSON has. NaN and infinities become None.

  Raises ValueError for anything else, naming its type.
  """
  if value is None or isinstance(value, (bool, str, int)) and not isinstance(value, np.generic):
    return value
  if isinstance(value, (float, np.floating)):
    return float(value) if math.isfinite(value) else None
  if isinstance(value, np.generic):
    return plain_json(value.item())
  if isinstance(value, np.ndarray):
    return plain_json(value.tolist())
  if isinstance(value, Mapping):
    return {str(k): plain_json(v) for k, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [plain_json(v) for v in value]
  raise ValueError(f"cannot be written as JSON: {type(value).__name__} {value!r:.100}")


def _line(row: Mapping[str, Any]) -> bytes:
  return (json.dumps(plain_json(row), ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def _replace(path: Path, data: bytes) -> None:
  """All of `data` or none of it, even when the machine stops half-way."""
  part = path.with_name(f".{path.name}.part")
  with open(part, "wb") as f:
    f.write(data)
    f.flush()
    os.fsync(f.fileno())
  os.replace(part, path)
  directory = os.open(path.parent, os.O_RDONLY)
  try:
    os.fsync(directory)  # the rename itself
  finally:
    os.close(directory)


def write_json_atomic(path: str | Path, value: Any) -> None:
  """Strict JSON that is there whole or not at all: written aside, synced, renamed."""
  text = json.dumps(plain_json(value), ensure_ascii=True, allow_nan=False, indent=2) + "\n"
  _replace(Path(path), text.encode("ascii"))


def _keep_until(path: Path, last_step: int | None) -> None:
  """Drops rows of steps after `last_step` (None: no row) and a half-written last line.

  Raises ValueError when a whole line is not a JSON object with a step: that is damage, not a kill.
  """
  if not path.exists():
    return
  data = path.read_bytes()
  kept = []
  for number, line in enumerate(data.split(b"\n")[:-1], 1):  # what follows the last newline is empty or half a line
    try:
      step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError) as error:
      raise ValueError(f"{path}:{number} is not a JSON object with a 'step': {line[:80]!r}") from error
    if last_step is None or step <= last_step:
      kept.append(line + b"\n")
  if (whole := b"".join(kept)) != data:
    _replace(path, whole)


class MetricWriter:
  """Appends to `metrics.jsonl` and to TensorBoard events under `tensorboard/`, both in `workdir`.

  Args:
    resume_step: the step a run goes on from: what a killed run wrote after it is removed, so the files are those of an
      uninterrupted run. None keeps every whole line.
  """

  def __init__(self, workdir: str | Path, resume_step: int | None = None):
    workdir = Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    path, events = workdir / "metrics.jsonl", workdir / "tensorboard"
    _keep_until(path, resume_step)
    purge = resume_step + 1 if resume_step is not None and events.exists() else None
    self._file = open(path, "ab")
    suffix = f".{len(list(events.glob('*')))}"  # names have whole seconds: a fast resume must not overwrite
    self._events = SummaryWriter(str(events), purge_step=purge, flush_secs=10, filename_suffix=suffix)

  def write(self, step: int, scalars: Mapping[str, float]) -> None:
    """One line, on its way to the disk when this returns.

    A number that is not finite is null there, and the row's `not_finite` says which it was: {"loss": "nan"}.
    """
    values = {}
    for name, value in scalars.items():
      if np.ndim(value) != 0:
        raise ValueError(f"metric {name!r} must be a scalar, got shape {np.shape(value)}")
      values[name] = float(value)
    odd = {name: str(value) for name, value in values.items() if not math.isfinite(value)}
    row = {"step": int(step), **values} | ({"not_finite": odd} if odd else {})
    self._file.write(_line(row))
    self._file.flush()
    for name, value in values.items():
      if name not in odd:
        self._events.add_scalar(name, value, int(step))

  def close(self) -> None:
    self._file.close()
    self._events.close()


def rollout_rows(batch: Any, scored: Any, advantages: Sequence[float] | None = None) -> list[dict[str, Any]]:
  """One row per completion of a verified batch, in batch order.

  Args:
    batch:      has `prompt_id` of its prompts; completions of a prompt stand together.
    scored:     `runs.verify.Scored`; its `verdicts` give rewards as they were before mixing, statuses and reasons.
    advantages: one number per completion, where known.
  """
  n, ids = len(scored.samples), np.asarray(batch.prompt_id)
  if n % len(ids):
    raise ValueError(f"rollout_rows: {n} completions are not a multiple of {len(ids)} prompts")
  rows = []
  for i, sample in enumerate(scored.samples):
    verdicts = scored.verdicts[i]
    row = dict(
      prompt_id=ids[i // (n // len(ids))],
      prompt=sample.prompt,
      completion=sample.completion,
      reference=sample.reference,
      rewards={label: v.reward if v.status != "error" else None for label, v in verdicts.items()},
      reward=scored.mixed.reward[i] if scored.mixed.row_mask[i] else None,
      statuses={label: v.status for label, v in verdicts.items()},
      reasons={label: v.reason for label, v in verdicts.items()},
      length=scored.lengths[i],
      truncated=scored.truncated[i],
    )
    rows.append(row if advantages is None else row | dict(advantage=advantages[i]))
  return rows


class RolloutLog:
  """Appends samples of completions with their verdicts to `rollouts.jsonl` in `workdir`.

  Args:
    max_per_step: completions kept of a step, spread evenly over the batch; the step turns the first one, so that over
      time every place of a group is seen. 0 writes none.
    resume_step:  as in `MetricWriter`.
  """

  def __init__(self, workdir: str | Path, resume_step: int | None = None, max_per_step: int = 8):
    if max_per_step < 0:
      raise ValueError(f"RolloutLog: max_per_step must be >= 0, got {max_per_step}")
    workdir = Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    path = workdir / "rollouts.jsonl"
    _keep_until(path, resume_step)
    self._file = open(path, "ab")
    self._max_per_step = max_per_step

  def write(self, step: int, batch: Any, scored: Any, advantages: Sequence[float] | None = None) -> None:
    """See `rollout_rows` for the arguments."""
    rows = rollout_rows(batch, scored, advantages)
    n, m = len(rows), min(self._max_per_step, len(rows))
    for i in sorted((j * n // m + step) % n for j in range(m)):
      self._file.write(_line({"step": int(step), **rows[i]}))
    self._file.flush()

  def close(self) -> None:
    self._file.close()
