"""What a person sees of a run: a live panel on a terminal, plain lines anywhere else, and the table at the end."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.color import Color
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.style import Style
from rich.table import Table
from rich.text import Text

from rlvr_jax.evals import Comparison, EvalResult, Interval

# Label, key in the step's scalars, format. A field a step does not have is shown as "-".
FIELDS = (
  ("loss", "loss", "{:.4f}"),
  ("reward", "reward/mean", "{:.3f}"),
  ("accuracy", "accuracy", "{:.1%}"),
  ("length", "length/mean", "{:.1f}"),
  ("entropy", "entropy", "{:.3f}"),
  ("tokens/s", "time/generated_tokens_per_sec", "{:,.0f}"),
)
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 24  # steps of history beside a field
RATE_STEPS = 50  # steps the time left is judged from
PLAIN_WIDTH = 120  # of the summary in a file or a pipe, which have no width of their own
PLAIN_SECS = 10.0  # between two plain lines of one long task
STYLES = {"info": "cyan", "warning": "bold yellow", "error": "bold red"}


def duration(secs: float) -> str:
  """12s, 3m12s, 1h02m."""
  whole = int(round(secs))
  if whole < 60:
    return f"{whole}s"
  if whole < 3600:
    return f"{whole // 60}m{whole % 60:02d}s"
  return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def spark(values: Sequence[float]) -> str:
  """History as one character per value, between the lowest and the highest; a space where it is not finite."""
  finite = [v for v in values if math.isfinite(v)]
  if not finite:
    return ""
  low, spread = min(finite), (max(finite) - min(finite)) or 1.0
  return "".join(
    SPARKS[min(int((v - low) / spread * len(SPARKS)), len(SPARKS) - 1)] if math.isfinite(v) else " " for v in values
  )


class Display:
  """A context manager; `update` once per step, `message` and `progress` whenever.

  Args:
    total_steps: the step at which the run ends.
    plain:       True for one line per step even on a terminal; None: whenever the output is not a terminal.
    console:     where to write; standard output by default.
    clock:       seconds; only for the time left.
  """

  def __init__(
    self,
    total_steps: int,
    title: str = "",
    plain: bool | None = None,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
  ):
    self.console = console or Console(highlight=False)
    if console is None and not self.console.is_terminal:
      self.console.width = PLAIN_WIDTH
    self.plain = not self.console.is_terminal if plain is None else plain
    self._total, self._title, self._clock = total_steps, title, clock
    self._history = {key: deque(maxlen=SPARK_WIDTH) for _, key, _ in FIELDS}
    self._step, self._scalars, self._phases = None, {}, {}
    self._seen: deque = deque(maxlen=RATE_STEPS + 1)  # (step, clock)
    self._bar = Progress(
      TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn(), console=self.console
    )
    self._steps_task = self._bar.add_task("steps", total=total_steps)
    self._live: Live | None = None

  def __enter__(self) -> "Display":
    if not self.plain:
      self._live = Live(get_renderable=self._render, console=self.console, refresh_per_second=4)
      self._live.start()
    return self

  def __exit__(self, *exception) -> None:
    if self._live is not None:
      self._live.stop()
      self._live = None

  def update(self, step: int, scalars: Mapping[str, float], phases: Mapping[str, float]) -> None:
    """Shows a finished step. `phases` are its wall-clock seconds by name."""
    self._step, self._scalars, self._phases = step, dict(scalars), dict(phases)
    self._seen.append((step, self._clock()))
    for key, values in self._history.items():
      if key in scalars:
        values.append(scalars[key])
    self._bar.update(self._steps_task, completed=step)
    if self._live is None:
      self._print(self._line())

  def message(self, text: str, level: str = "info") -> None:
    """One line above the panel. `level` is "info", "warning" or "error"."""
    if level not in STYLES:
      raise ValueError(f"message: level must be one of {sorted(STYLES)}, got {level!r}")
    self._print(f"{level}: {text}", STYLES[level])

  def progress(self, items: Iterable[Any], description: str, total: int | None = None) -> Iterator[Any]:
    """Goes through `items` and shows how far it is. `total` is needed only where `items` has no length."""
    total = len(items) if total is None and hasattr(items, "__len__") else total
    started = last = self._clock()
    task = self._bar.add_task(description, total=total)
    done = 0
    try:
      for item in items:
        yield item
        done += 1
        self._bar.update(task, completed=done)
        now = self._clock()
        if self._live is None and (now - last >= PLAIN_SECS or done == total):
          self._print(f"{description}: {done}/{total or '?'} ({duration(now - started)})")
          last = now
    finally:
      self._bar.remove_task(task)

  def summary(
    self,
    before: EvalResult | None,
    after: EvalResult,
    comparison: Comparison | None = None,
    extra: Mapping[str, Any] | None = None,
  ) -> None:
    """Ends the live panel and prints the held-out table, before -> after; `extra` are counts of the run."""
    self.__exit__()  # the table is the last thing on the screen
    self.console.print(summary_table(before, after, comparison, extra))

  def time_left(self) -> float | None:
    """Seconds, from the pace of the last steps; None before two steps are seen."""
    if len(self._seen) < 2 or self._seen[-1][0] == self._seen[0][0]:
      return None
    (first, since), (step, now) = self._seen[0], self._seen[-1]
    return (now - since) / (step - first) * (self._total - step)

  def _print(self, line: str, style: str | None = None) -> None:
    self.console.print(Text(line, style or ""), soft_wrap=True)

  def _left(self) -> str:
    left = self.time_left()
    return "-" if left is None else duration(left)

  def _values(self) -> list[tuple[str, str, str]]:
    """(label, value, history) of every field."""
    scalars = self._scalars  # the live panel is drawn from another thread
    return [
      (label, form.format(scalars[key]) if key in scalars else "-", spark(list(self._history[key])))
      for label, key, form in FIELDS
    ]

  def _line(self) -> str:
    parts = [f"step {self._step}/{self._total}"]
    parts += [f"{label} {value}" for label, value, _ in self._values()]
    parts += [f"left {self._left()}"]
    parts += [" ".join(f"{name} {secs:.2f}s" for name, secs in self._phases.items())]
    return " | ".join(p for p in parts if p)

  def _render(self) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(justify="right", style="bold")
    grid.add_column(style="green", width=SPARK_WIDTH, no_wrap=True)
    grid.add_column(style="dim")
    grid.add_column(justify="right")
    grid.add_column(justify="right", style="dim")
    secs = sum(self._phases.values())
    right = [(name, f"{t:.2f}s", f"{t / secs:.0%}" if secs else "") for name, t in self._phases.items()]
    right += [("step", f"{secs:.2f}s", ""), ("time left", self._left(), "")]
    left = self._values()
    blank = [("", "", "")]
    for i in range(max(len(left), len(right))):
      grid.add_row(*(left + blank * len(right))[i], *(right + blank * len(left))[i])
    return Panel(
      Group(grid, self._bar), title=Text(self._title), title_align="left", border_style="blue", padding=(0, 1)
    )


def _share(interval: Interval) -> str:
  return f"{interval.value:.1%} [{interval.low:.1%}, {interval.high:.1%}]"


def _rows(result: EvalResult) -> dict[str, tuple[float, str, str]]:
  """Row label -> (number, how it is written, unit of its change)."""
  k = result.num_samples
  rows = {"accuracy": (result.accuracy, _share(result.accuracy_interval), "share")}
  for number, interval in result.pass_at_k.items():
    if number > 1:
      rows[f"pass@{number}"] = (interval.value, _share(interval), "share")
  rows[f"avg@{k} score"] = (result.avg_at_k.value, _share(result.avg_at_k), "share")
  for name, interval in result.of_answers.items():
    if name.startswith("maj@"):
      rows[name] = (interval.value, _share(interval), "share")
  rows["length"] = (result.mean_length, f"{result.mean_length:.1f} tokens", "tokens")
  rows["truncated"] = (result.truncated_share, f"{result.truncated_share:.1%}", "share")
  rows["without verdict"] = (result.num_without_verdict, str(result.num_without_verdict), "samples")
  return rows


def _change(old: float, new: float, unit: str) -> str:
  return f"{100 * (new - old):+.1f} points" if unit == "share" else f"{new - old:+.{1 if unit == 'tokens' else 0}f}"


def summary_table(
  before: EvalResult | None,
  after: EvalResult,
  comparison: Comparison | None = None,
  extra: Mapping[str, Any] | None = None,
) -> Table:
  """Held-out measures with 95 % intervals, before -> after. The change of the accuracy is paired by prompt."""
  table = Table(title=f"held-out: {after.num_prompts} prompts x {after.num_samples} samples", title_style="bold")
  table.add_column("", no_wrap=True)
  for name in ("before", "after", "change"):
    table.add_column(name, justify="right")
  old = {} if before is None else _rows(before)
  for label, (value, written, unit) in _rows(after).items():
    change = _change(old[label][0], value, unit) if label in old else ""
    style = None
    if label == "accuracy" and comparison is not None:
      c = comparison
      change = f"{100 * c.difference:+.1f} points [{100 * c.low:+.1f}, {100 * c.high:+.1f}]\np = {c.p_value:.2g}"
      style = ("bold green" if c.low > 0 else "bold red") if c.excludes_zero() else "bold"
    table.add_row(label, old[label][1] if label in old else "-", written, Text(change, style or ""))
  notes = [
    f"{name} {value:,}" if isinstance(value, (int, float)) else f"{name} {value}"
    for name, value in (extra or {}).items()
  ]
  if comparison is not None and comparison.num_excluded:
    notes.append(f"{comparison.num_excluded} prompts without a verdict left out of the comparison")
  table.caption = "  ".join(notes) or None
  return table


def colour_tokens(tokens: Sequence[str], values: Sequence[float], scale: float | None = None) -> Text:
  """Tokens on a background of their value, for logs and notebooks: green above 0, red below, none at 0 or NaN.

  Args:
    values: one number per token, such as its advantage or log-prob.
    scale:  the magnitude of full colour; None: the largest there is.
  """
  if len(tokens) != len(values):
    raise ValueError(f"colour_tokens: {len(tokens)} tokens but {len(values)} values")
  finite = [abs(float(v)) for v in values if math.isfinite(v)]
  scale = scale or max(finite, default=0.0) or 1.0
  out = Text()
  for token, value in zip(tokens, values):
    shown = token.replace("\n", "↵\n") if isinstance(token, str) else str(token)
    strength = min(abs(float(value)) / scale, 1.0) if math.isfinite(value) else 0.0
    faded = int(255 - 175 * strength)
    red, green, blue = (
      (faded, 255 - int(50 * strength), faded) if value > 0 else (255 - int(20 * strength), faded, faded)
    )
    style = Style(color="black", bgcolor=Color.from_rgb(red, green, blue)) if strength > 0 else Style()
    out.append(shown, style)
  return out
