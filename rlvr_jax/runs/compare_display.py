"""What a person sees of a comparison: a bar over all cells with the time left, and the table at the end."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rlvr_jax.runs.display import PLAIN_SECS, PLAIN_WIDTH, duration


class CompareDisplay:
  """A live bar on a terminal, plain lines elsewhere.

  Args: budget_tokens: of one cell, by which the share of a cell under way is known.
  """

  def __init__(self, budget_tokens: int, console: Console | None = None):
    self.console = console or Console(highlight=False)
    self.plain = not self.console.is_terminal
    if self.plain and console is None:
      self.console.width = PLAIN_WIDTH
    self._budget, self._spent, self._cell = budget_tokens, 0.0, ""
    self._started, self._last = time.monotonic(), 0.0
    self._begun = None  # cells already finished when this began do not tell how fast the rest will be
    self._bar = Progress(
      TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeElapsedColumn(),
      TextColumn("{task.fields[left]}"), console=self.console,
    )  # fmt: skip
    self._task = self._bar.add_task("", total=1.0, left="")

  def __enter__(self) -> "CompareDisplay":
    if not self.plain:
      self._bar.start()
    return self

  def __exit__(self, *exception) -> None:
    if not self.plain:
      self._bar.stop()

  def update(self, done: int, total: int, cell: str, row: Mapping[str, float]) -> None:
    """See `runs.compare.compare`."""
    if cell != self._cell:
      self._cell, self._spent = cell, 0.0
    self._spent = row.get("spent", self._spent)
    share = (done + min(self._spent / self._budget, 1.0)) / total
    self._begun = share if self._begun is None else self._begun
    now = time.monotonic()
    gained = share - self._begun
    left = f"{duration((now - self._started) / gained * (1 - share))} left" if gained > 0 and share < 1 else ""
    text = f"{min(done + 1, total)}/{total} {cell}" + (f" accuracy {row['accuracy']:.1%}" if "accuracy" in row else "")
    self._bar.update(self._task, completed=share, description=text, left=left)
    if self.plain and (now - self._last > PLAIN_SECS or done == total):
      self.console.print(f"{text} | {share:.0%} | {left}", soft_wrap=True)
      self._last = now

  def summary(self, rows: Sequence[Any], workdir: str) -> None:
    table = Table(title="held-out accuracy at the end, over training seeds", title_style="bold")
    for name in ("task", "config", "accuracy", "difference", "p (Holm)", "verdict"):
      table.add_column(name, justify="left" if name in ("task", "config", "verdict") else "right")
    task = None
    for row in rows:
      if task is not None and row.task != task:
        table.add_section()
      task, c, a = row.task, row.comparison, row.accuracy
      change = "baseline" if c is None else f"{100 * c.difference:+.1f} [{100 * c.low:+.1f}, {100 * c.high:+.1f}]"
      p = "" if row.p_adjusted is None else f"{row.p_adjusted:.2g}"
      accuracy = f"{a.value:.1%} [{a.low:.1%}, {a.high:.1%}]"
      table.add_row(row.task, row.config, accuracy, change, p, row.verdict)
    self.console.print(table)
    self.console.print(f"report.md, curves.png and report.json are in {workdir}")
