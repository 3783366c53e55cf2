"""The learning curve of one run as a picture."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

TRAIN, EVAL = "#1f77b4", "#d62728"


def read_rows(path: str | Path) -> list[dict[str, Any]]:
  """Rows of a JSON-lines file. Lines end at newlines only, whatever else Unicode calls a line separator."""
  with open(path, encoding="utf-8", newline="\n") as f:
    return [json.loads(line) for line in f if line.endswith("\n")]


def _series(rows, key: str) -> tuple[np.ndarray, np.ndarray]:
  found = sorted((r["step"], r[key]) for r in rows if r.get(key) is not None)
  return np.array([s for s, _ in found], float), np.array([v for _, v in found], float)


def _rolling(values: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
  """Centred mean over `window` steps, and the half-width of its 95 % interval."""
  means, halves = [], []
  for i in range(len(values)):
    near = values[max(i - window // 2, 0) : i + window // 2 + 1]
    means.append(near.mean())
    halves.append(1.96 * near.std(ddof=1) / np.sqrt(len(near)) if len(near) > 1 else 0.0)
  return np.array(means), np.array(halves)


def _short(number: float) -> str:
  for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
    if number >= size:
      return f"{number / size:.3g}{suffix}"
  return f"{number:.0f}"


def _tokens_axis(axes, steps: np.ndarray, tokens: np.ndarray) -> None:
  top = axes.twiny()
  top.set_xlim(axes.get_xlim())
  ticks = [x for x in axes.get_xticks() if steps[0] <= x <= steps[-1]]
  top.set_xticks(ticks, [_short(np.interp(x, steps, tokens)) for x in ticks])
  top.set_xlabel("generated tokens")


def curve(
  rows: Iterable[Mapping[str, Any]] | str | Path,
  path: str | Path,
  *,
  title: str = "",
  train_key: str = "reward/mean",
  eval_key: str = "eval/accuracy",
  tokens_key: str = "budget/generated_tokens",
) -> None:
  """Draws a PNG: training reward (points, rolling mean with its 95 % band) and held-out accuracy with its intervals.

  Args:
    rows: rows of metrics.jsonl, or its path. The interval of `eval_key` is read from `eval_key` + "_low" and "_high".
    path: the PNG to write.
  """
  rows = read_rows(rows) if isinstance(rows, (str, Path)) else list(rows)
  figure = Figure(figsize=(7.5, 4.2), dpi=150, layout="constrained")
  FigureCanvasAgg(figure)
  axes = figure.subplots()
  steps, reward = _series(rows, train_key)
  if len(steps):
    mean, half = _rolling(reward, max(len(reward) // 15, 3))
    axes.plot(steps, reward, ".", color=TRAIN, alpha=0.25, markersize=4)
    axes.fill_between(steps, mean - half, mean + half, color=TRAIN, alpha=0.2, linewidth=0)
    axes.plot(steps, mean, color=TRAIN, label="training reward (rolling mean)")
  at, accuracy = _series(rows, eval_key)
  if len(at):
    low, high = _series(rows, f"{eval_key}_low")[1], _series(rows, f"{eval_key}_high")[1]
    errors = np.maximum([accuracy - low, high - accuracy], 0) if len(low) == len(high) == len(at) else None
    axes.errorbar(at, accuracy, errors, fmt="o-", color=EVAL, capsize=3, label="held-out accuracy (95 % interval)")
  if not len(steps) and not len(at):
    raise ValueError(f"curve: no row has {train_key!r} or {eval_key!r}")
  axes.set(xlabel="step", title=title)
  axes.grid(alpha=0.3)
  axes.legend(loc="best", frameon=False)
  token_steps, tokens = _series(rows, tokens_key)
  if len(token_steps) > 1:
    _tokens_axis(axes, token_steps, tokens)
  figure.savefig(path)
