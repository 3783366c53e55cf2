"""Compares configs over seeds and tasks at equal budget:

`python -m experiments.compare --configs=grpo,rloo --tasks=sorting,modular_sum --seeds=8 --budget_tokens=100000
--workdir=runs/compare`

A config is a file, or the name of one in `configs/lab`. Writes report.md, curves.png and report.json; running the same
command again goes on where it was interrupted.
"""

import os
from pathlib import Path

from absl import app, flags, logging

CONFIGS = flags.DEFINE_list("configs", ["grpo", "rloo"], "Files, or names in configs/lab; the first is the baseline.")
TASKS = flags.DEFINE_list("tasks", ["sorting"], "Handed to each config's get_config.")
SEEDS = flags.DEFINE_integer("seeds", 8, "How many training seeds, from 0.", lower_bound=1)
BUDGET = flags.DEFINE_integer("budget_tokens", 100_000, "Generated tokens of one run.", lower_bound=1)
WORKDIR = flags.DEFINE_string("workdir", "runs/compare", "Where cells and the report go.")
SWEEP = flags.DEFINE_string("sweep", None, "One config path and its values: optimiser.learning_rate=1e-4,3e-4.")
SET = flags.DEFINE_multi_string("set", [], "A config path and its value, for every config: train.num_epochs=2.")


def config_path(name: str) -> str:
  path = Path(name)
  return name if path.suffix == ".py" else str(Path("configs") / "lab" / f"{name}.py")


def assignment(text: str) -> tuple[str, str]:
  path, equals, value = text.partition("=")
  if not equals or not path or not value:
    raise app.UsageError(f"expected path=value, got {text!r}")
  return path, value


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"unexpected arguments {argv[1:]}")
  logging.set_verbosity(logging.WARNING)  # orbax tells every file it writes
  flags_of_xla = os.environ.get("XLA_FLAGS", "")
  if "host_platform_device_count" not in flags_of_xla:  # lanes are spread over devices: one a core
    os.environ["XLA_FLAGS"] = f"{flags_of_xla} --xla_force_host_platform_device_count={os.cpu_count()}"
  from ast import literal_eval

  import jax

  # Cells share programs, such as the evaluation of a task, and so does a comparison that goes on.
  jax.config.update("jax_compilation_cache_dir", str(Path(WORKDIR.value).absolute() / "programs"))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)

  from rlvr_jax.runs.compare import compare
  from rlvr_jax.runs.compare_display import CompareDisplay

  sweep = dict([assignment(SWEEP.value)]) if SWEEP.value else {}
  sweep = {path: [float(v) for v in values.split(",")] for path, values in sweep.items()}
  changes = {path: literal_eval(value) for path, value in map(assignment, SET.value)}
  with CompareDisplay(BUDGET.value) as display:
    rows = compare(
      [config_path(c) for c in CONFIGS.value], TASKS.value, seeds=range(SEEDS.value), budget_tokens=BUDGET.value,
      workdir=WORKDIR.value, sweep=sweep, changes=changes, on_progress=display.update,
    )  # fmt: skip
  display.summary(rows, WORKDIR.value)


if __name__ == "__main__":
  app.run(main)
