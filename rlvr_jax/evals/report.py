"""Several configs compared over seeds and tasks: a Markdown table, learning curves as PNG, and JSON of everything.

Presentation only: curves in, files out. The first config of a task is its baseline; every other is compared with it,
paired by training seed, and Holm's correction covers all comparisons of the report.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rlvr_jax.evals.intervals import Interval
from rlvr_jax.evals.seeds import SeedComparison, holm, mean_over_seeds, paired_over_seeds, smallest_p_value

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D00", "#000000", "#E69F00")  # Okabe and Ito
STYLES = ("-", "--", ":")
BUDGET_SLACK = 0.05  # share by which budgets may differ before the report says so


class CurveData(NamedTuple):
  """Accuracy of one config on one task, `s` training seeds evaluated at `k` points; budgets are means over seeds.

  Budgets are cumulative. A seconds or update-token count that was not measured is NaN, and so is a missing evaluation
  other than the last.
  """

  tokens: Float[np.ndarray, "k"]  # generated, rising
  accuracy: Float[np.ndarray, "s k"]
  update_tokens: Float[np.ndarray, "k"]  # tokens through the backward pass
  seconds: Float[np.ndarray, "k"]
  seeds: Int[np.ndarray, "s"]  # ids by which configs are paired


Curves = Mapping[str, Mapping[str, CurveData]]  # task -> config -> curve


class ReportRow(NamedTuple):
  """One config on one task at its last evaluation. `comparison` and what follows from it are None for the baseline."""

  task: str
  config: str
  accuracy: Interval
  comparison: SeedComparison | None
  p_adjusted: float | None
  verdict: str
  generated_tokens: float
  update_tokens: float
  seconds: float


def _check_curve(where: str, data: CurveData) -> CurveData:
  data = CurveData(*(np.asarray(x, np.float64) for x in data[:4]), np.asarray(data.seeds))
  s, k = data.accuracy.shape if data.accuracy.ndim == 2 else (0, 0)
  shapes = [x.shape for x in data]
  if not s or not k or shapes != [(k,), (s, k), (k,), (k,), (s,)]:
    raise ValueError(f"{where}: need tokens [k], accuracy [s k], update_tokens [k], seconds [k], seeds [s]: {shapes}")
  if len(set(data.seeds.tolist())) < s:
    raise ValueError(f"{where}: seeds must be distinct, got {data.seeds.tolist()}")
  if not np.isfinite(data.tokens).all() or (np.diff(data.tokens) <= 0).any():
    raise ValueError(f"{where}: tokens must rise, got {data.tokens.tolist()}")
  if ((data.accuracy < 0) | (data.accuracy > 1)).any() or np.isnan(data.accuracy[:, -1]).any():
    raise ValueError(f"{where}: accuracy must lie in [0, 1], and the last must be there for every seed")
  order = np.argsort(data.seeds)
  return data._replace(accuracy=data.accuracy[order], seeds=data.seeds[order])


def _check(curves: Curves) -> Curves:
  if not curves or not all(curves.values()):
    raise ValueError("report: need at least one task, and one config on each")
  checked = {t: {c: _check_curve(f"{t}/{c}", data) for c, data in configs.items()} for t, configs in curves.items()}
  for task, configs in checked.items():
    baseline, *others = configs
    for config in others:
      first, second = configs[baseline].seeds.tolist(), configs[config].seeds.tolist()
      if first != second:
        raise ValueError(f"{task}: {baseline!r} has seeds {first} and {config!r} has {second}; they must be the same")
  return checked


def verdict(comparison: SeedComparison, p_adjusted: float, level: float = 0.95) -> str:
  if p_adjusted > 1 - level + 1e-12 or comparison.difference == 0:
    return "no difference shown"
  return "higher" if comparison.difference > 0 else "lower"


def compare_configs(curves: Curves, level: float = 0.95, method: str = "t", test: str = "sign_flip") -> list[ReportRow]:
  """One row per task and config, in the order given.

  Args:
    level:  of the intervals; a verdict other than "no difference shown" needs an adjusted p-value <= 1 - level.
    method: of the intervals, see `mean_over_seeds`.
    test:   see `paired_over_seeds`.

  Raises:
    ValueError: shapes disagree, an accuracy is outside [0, 1], or configs of a task have different seeds.
  """
  curves = _check(curves)
  found = {}
  for task, configs in curves.items():
    baseline, *others = configs
    for config in others:
      pair = configs[baseline].accuracy[:, -1], configs[config].accuracy[:, -1]
      found[task, config] = paired_over_seeds(*pair, level, method, test)
  adjusted = dict(zip(found, holm([c.p_value for c in found.values()]).tolist()))
  return [
    ReportRow(
      task=task,
      config=config,
      accuracy=mean_over_seeds(data.accuracy[:, -1], level, method),
      comparison=found.get((task, config)),
      p_adjusted=adjusted.get((task, config)),
      verdict=verdict(found[task, config], adjusted[task, config], level) if (task, config) in found else "baseline",
      generated_tokens=float(data.tokens[-1]),
      update_tokens=float(data.update_tokens[-1]),
      seconds=float(data.seconds[-1]),
    )
    for task, configs in curves.items()
    for config, data in configs.items()
  ]


def _short(number: float) -> str:
  if not math.isfinite(number):
    return "–"
  for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
    if number >= 0.9995 * size:
      return f"{number / size:.3g}{suffix}"
  return f"{number:.3g}"


def _ends(low: float, high: float, sign: str = "") -> str:
  return "[–]" if math.isnan(low) else f"[{low:{sign}.3f}, {high:{sign}.3f}]"


def _p(p: float | None) -> str:
  return "" if p is None else "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def _cells(row: ReportRow) -> list[str]:
  c = row.comparison
  return [
    row.task.replace("|", "\\|"),
    row.config.replace("|", "\\|"),
    f"{row.accuracy.value:.3f} {_ends(row.accuracy.low, row.accuracy.high)}",
    f"{c.difference:+.3f} {_ends(c.low, c.high, '+')}" if c else "",
    _p(c.p_value if c else None),
    _p(row.p_adjusted),
    row.verdict,
    *(_short(x) for x in (row.generated_tokens, row.update_tokens, row.seconds)),
  ]


def _notes(curves: Curves, rows: list[ReportRow], level: float, method: str, test: str) -> list[str]:
  percent, alpha = f"{100 * level:.4g} %", 1 - level
  counts = sorted({len(data.seeds) for configs in curves.values() for data in configs.values()})
  seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}, depending on the task"
  compared = [row for row in rows if row.comparison]
  intervals = dict(
    t=f"Student's {percent} interval over seeds, mean ± t sd / √n",
    bootstrap=f"bootstrap (BCa) {percent} interval over seeds, which is too narrow for few seeds",
  )
  tests = dict(sign_flip="sign-flip test over seeds", t="paired t test over seeds")
  lines = [
    f"Training seeds: n = {seeds}. They are the unit of replication; configs are paired by seed.",
    f"Brackets: {intervals[method]}. Of one seed there is none.",
    "Difference: config less baseline (the first config of each task), at the last evaluation of each.",
    f"p: {tests[test]}, two-sided. Adjusted: Holm's correction over all comparisons here ({len(compared)}).",
    f'Verdict: "higher" or "lower" where the adjusted p is at most {alpha:.4g}, otherwise "no difference shown", which '
    "does not say that there is none.",
  ]
  if test == "sign_flip" and compared:
    floor = min(1.0, smallest_p_value(counts[-1]) * len(compared))
    if floor > alpha + 1e-12:
      lines.append(
        f"**{counts[-1]} seeds are too few for a verdict**: the smallest p possible is "
        f"{smallest_p_value(counts[-1]):.4g}, or {floor:.4g} for the smallest of {len(compared)} when adjusted."
      )
  if any(np.ptp(data.accuracy[:, -1]) == 0 and len(data.seeds) > 1 for c in curves.values() for data in c.values()):
    lines.append(
      f"Where all seeds agree, the interval supposes that up to the {percent} Wilson bound of 0 in n of further seeds "
      "could lie anywhere in [0, 1]; the picture then shows no band."
    )
  lines.append("Budgets are means over seeds up to the last evaluation.")
  for task, configs in curves.items():
    spent = [float(data.tokens[-1]) for data in configs.values()]
    if max(spent) > min(spent) * (1 + BUDGET_SLACK):
      lines.append(f"**Budgets differ** on {task}: {_short(min(spent))} to {_short(max(spent))} generated tokens.")
  return lines


def to_markdown(curves: Curves, level: float = 0.95, method: str = "t", test: str = "sign_flip") -> str:
  rows = compare_configs(curves, level, method, test)
  head = [
    "task", "config", "final accuracy", "difference to baseline", "p", "p adjusted", "verdict", "generated tokens",
    "update tokens", "seconds",
  ]  # fmt: skip
  align = ["---"] * 2 + ["---:"] * 4 + ["---"] + ["---:"] * 3
  table = [f"| {' | '.join(cells)} |" for cells in (head, align, *(_cells(row) for row in rows))]
  notes = [f"- {line}" for line in _notes(_check(curves), rows, level, method, test)]
  return "\n".join([*table, "", *notes]) + "\n"


def _strict(value: Any) -> Any:
  """Plain values of JSON; what is not a finite number becomes None."""
  if hasattr(value, "_asdict"):
    value = value._asdict()
  if isinstance(value, Mapping):
    return {str(k): _strict(v) for k, v in value.items()}
  if isinstance(value, np.ndarray):
    value = value.tolist()
  if isinstance(value, (list, tuple)):
    return [_strict(v) for v in value]
  return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(curves: Curves, level: float = 0.95, method: str = "t", test: str = "sign_flip") -> dict[str, Any]:
  """Settings, rows and curves. Strict JSON: null for NaN."""
  rows = compare_configs(curves, level, method, test)
  settings = dict(level=level, interval=method, test=test, correction="holm")
  return _strict(dict(settings=settings, rows=rows, curves=_check(curves)))


def write_report(
  curves: Curves, folder: str | Path, level: float = 0.95, method: str = "t", test: str = "sign_flip", title: str = ""
) -> list[ReportRow]:
  """Writes report.md, curves.png and report.json to `folder`, which is made, and returns the rows of the table."""
  folder = Path(folder)
  options = dict(level=level, method=method, test=test)
  rows = compare_configs(curves, **options)
  folder.mkdir(parents=True, exist_ok=True)
  head = f"# {title}\n\n" if title else ""
  text = f"{head}{to_markdown(curves, **options)}\n![Learning curves](curves.png)\n"
  (folder / "report.md").write_text(text, encoding="utf-8")
  data = json.dumps(to_json(curves, **options), indent=1, allow_nan=False, ensure_ascii=False)
  (folder / "report.json").write_text(data + "\n", encoding="utf-8")
  plot_curves(curves, folder / "curves.png", level, method, title)
  return rows


def plot_curves(curves: Curves, path: str | Path, level: float = 0.95, method: str = "t", title: str = "") -> None:
  """PNG with one panel a task: mean accuracy over seeds with its interval as a band, over generated tokens.

  A missing evaluation is a gap. Where all seeds agree, as at a start that they share, the band has no width.
  """
  curves = _check(curves)
  columns = 2 if len(curves) == 4 else min(len(curves), 3)
  rows_of_panels = math.ceil(len(curves) / columns)
  figure = Figure(figsize=(5.6 * columns, 3.5 * rows_of_panels + 0.6), dpi=150, layout="constrained")
  FigureCanvasAgg(figure)
  figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
  panels = figure.subplots(rows_of_panels, columns, squeeze=False).ravel()
  names = list(dict.fromkeys(config for configs in curves.values() for config in configs))
  looks = {
    name: dict(color=COLOURS[i % len(COLOURS)], linestyle=STYLES[i // len(COLOURS) % len(STYLES)])
    for i, name in enumerate(names)
  }
  for axes, (task, configs) in zip(panels, curves.items()):
    _panel(axes, task, configs, looks, level, method)
  for axes in panels[len(curves) :]:
    axes.axis("off")
  handles = {}
  for axes in panels[: len(curves)]:
    handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels())}
  baselines = {next(iter(configs)) for configs in curves.values()}
  labels = [f"{name} (baseline)" if {name} == baselines else name for name in names]
  figure.legend(
    [handles[name] for name in names], labels, loc="outside lower center", ncols=min(len(names), 2 * columns + 1),
    frameon=False, fontsize=9, title=f"mean over seeds, band: {100 * level:.4g} % interval", title_fontsize=9,
  )  # fmt: skip
  if title:
    figure.suptitle(title, fontsize=12)
  figure.savefig(path, format="png", metadata={"Software": None})


def _panel(axes, task: str, configs: Mapping[str, CurveData], looks, level: float, method: str) -> None:
  for name, data in configs.items():
    # NaN where an evaluation is missing; no width where the seeds agree, as at a start that they share
    band = np.full((3, len(data.tokens)), np.nan)
    for i, values in enumerate(data.accuracy.T):
      if np.isfinite(values).all():
        band[:, i] = values[0] if np.ptp(values) == 0 else mean_over_seeds(values, level, method)
    if len(data.seeds) > 1:
      axes.fill_between(data.tokens, band[1], band[2], color=looks[name]["color"], alpha=0.15, linewidth=0)
    axes.plot(
      data.tokens, band[0], label=name, linewidth=1.8, marker="o" if len(data.tokens) < 20 else None, markersize=3,
      **looks[name],
    )  # fmt: skip
  seeds = len(next(iter(configs.values())).seeds)
  axes.set_title(f"{task} (n = {seeds} seed{'s' if seeds > 1 else ''})", fontsize=10)
  axes.set(xlabel="generated tokens", ylabel="held-out accuracy")
  axes.xaxis.set_major_formatter(lambda x, _: _short(x))
  axes.grid(alpha=0.25)
  axes.spines[["top", "right"]].set_visible(False)
  axes.margins(x=0.01)
  low, high = axes.get_ylim()
  axes.set_ylim(max(low, -0.02), min(high, 1.02))
  _label_ends(axes, configs, looks)


def _label_ends(axes, configs: Mapping[str, CurveData], looks, gap: float = 0.062) -> None:
  """Names at the right, as near to the ends of their curves as they can be without touching each other."""
  low, high = axes.get_ylim()
  ends = {name: float(data.accuracy[:, -1].mean()) for name, data in configs.items()}
  names = sorted(ends, key=ends.get)
  heights = spread_out([(ends[name] - low) / (high - low) for name in names], gap)
  for name, height in zip(names, heights):
    axes.annotate(
      name, (configs[name].tokens[-1], ends[name]), xytext=(1.04, height), textcoords="axes fraction", fontsize=8.5,
      color=looks[name]["color"], va="center", annotation_clip=False,
      arrowprops=dict(arrowstyle="-", color=looks[name]["color"], linewidth=0.7, alpha=0.6, shrinkA=1, shrinkB=1),
    )  # fmt: skip


def spread_out(heights: list[float], gap: float) -> list[float]:
  """Rising heights moved as little as possible (least squares) so that neighbours are at least `gap` apart."""
  pools = []  # of neighbours that touch: [mean of height - i * gap, count]
  for i, height in enumerate(heights):
    pools.append([height - i * gap, 1])
    while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
      value, count = pools.pop()
      pools[-1] = [(pools[-1][0] * pools[-1][1] + value * count) / (pools[-1][1] + count), pools[-1][1] + count]
  levels = [value for value, count in pools for _ in range(count)]
  return [value + i * gap for i, value in enumerate(levels)]
