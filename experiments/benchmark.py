"""Speed, measured: `python -m experiments.benchmark --suite=laboratory [--output=FILE.jsonl]`

laboratory: iterations per second of GRPO on a graph task, as one program, as the same program over several seeds, and
            as a host loop that verifies in Python between two programs. Ways are timed in turn, round after round;
            the table has medians and ranges. Ratios under 1.3 are ties: machines are noisy.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import app, flags

SUITES = ("laboratory",)
SUITE = flags.DEFINE_enum("suite", "laboratory", SUITES, "What to measure.")
SECONDS = flags.DEFINE_float("seconds", 5.0, "Of each way in each round.", lower_bound=0.01)
ROUNDS = flags.DEFINE_integer("rounds", 3, "How often each way is timed.", lower_bound=1)
SEEDS = flags.DEFINE_integer("seeds", 16, "Lanes of the mapped program.", lower_bound=1)
SIZES = flags.DEFINE_list("sizes", ["micro", "tiny"], "Which sizes.")
OUTPUT = flags.DEFINE_string("output", None, "Append one JSON line per row here.")


class Size(NamedTuple):
  """`num_prompts` x `group_size` rows of `prompt` + `completion` tokens."""

  model: dict[str, int]
  num_terms: int  # of a chain of sums, whose prompt has two tokens a term
  num_prompts: int
  group_size: int
  completion: int


LABORATORY = dict(
  micro=Size(dict(width=64, num_layers=2, num_heads=2, num_kv_heads=2, mlp_width=192), 4, 8, 8, 16),
  tiny=Size(dict(width=128, num_layers=4, num_heads=4, num_kv_heads=2, mlp_width=384), 8, 32, 16, 32),
)


class Way(NamedTuple):
  """One way to do the same work: `run()` does `iterations` of it and returns when they are done."""

  name: str
  iterations: int
  lanes: int
  run: Callable[[], None]


def config_of(size: Size) -> dict[str, Any]:
  return dict(
    model=dict(source="tiny", sizes=size.model), task=dict(name="chain_sum", num_terms=size.num_terms),
    prompts=dict(per_step=size.num_prompts),
    rollout=dict(name="groups", group_size=size.group_size, max_new_tokens=size.completion),
    rewards=[dict(name="correct")], credit=[dict(name="group_normalise"), dict(name="spread_over_tokens")],
    objective=[dict(name="clipped_surrogate")], reduce=dict(name="token_mean"),
    optimiser=dict(name="adamw", learning_rate=1e-4), train=dict(report_entropy=False), eval=dict(num_prompts=8),
  )  # fmt: skip


def one_program(config, seeds: int, iterations: int) -> tuple[Way, Any]:
  """`iterations` scanned in one dispatch, over lanes of seeds."""
  from rlvr_jax.runs import LabRun

  lab = LabRun(config, range(seeds))
  held = [lab.start()]

  def run():
    held[0], _ = lab.chunk(0, held[0], iterations)

  return Way("one program" if seeds == 1 else f"one program, {seeds} seeds", iterations, seeds, run), lab


def host_loop(lab, config) -> Way:
  """Two programs an iteration, and the task's Python verifier between them."""
  from rlvr_jax.rollouts import PromptArrays
  from rlvr_jax.tasks.graph.types import to_text

  task, arena, stage = lab.arena.task, lab.arena, lab.stages[0]
  sample = jax.jit(arena.make_sampler(config["rollout"], lab.model))
  prompts = jax.jit(arena.prompts)
  step = jax.jit(stage.method.step, donate_argnums=0)
  state = jax.jit(lambda: stage.enter(lab.model.init(jax.random.key(0)), 0))()
  held, rng, size = [state], np.random.default_rng(0), config["rollout"]["group_size"]

  def run():
    state = held[0]
    index = rng.choice(task.num_train, config["prompts"]["per_step"], replace=False).astype(np.int32)
    tokens, mask = prompts(index)
    rollout = sample(state.params, PromptArrays(tokens, mask, index), jax.random.key(0), state.step)
    found = jax.device_get((rollout.tokens, rollout.action_mask, rollout.truncated, tokens, mask))
    rows, actions, truncated, tokens, mask = found
    reward = np.zeros(len(rows), np.float32)
    for i in range(len(rows)):
      if not truncated[i]:
        question = to_text(task, tokens[i // size], mask[i // size])
        reward[i] = task.host_verify(question, to_text(task, rows[i], actions[i]))
    rollout = rollout.replace(reward=jax.device_put(reward))
    state, metrics = step(state, rollout)
    jax.device_get(metrics["loss"].total)
    held[0] = state

  return Way("host loop", 1, 1, run)


def timed(way: Way, seconds: float) -> float:
  """Iterations per second and lane-iterations of one way, over at least `seconds`."""
  started, done = time.perf_counter(), 0
  while (spent := time.perf_counter() - started) < seconds or not done:
    way.run()
    done += way.iterations
  return done * way.lanes / spent


def laboratory(say: Callable[[dict[str, Any]], None]) -> None:
  for name in SIZES.value:
    if name not in LABORATORY:
      raise app.UsageError(f"--sizes: there is no {name!r}, only {sorted(LABORATORY)}")
    size = LABORATORY[name]
    config = config_of(size)
    iterations = 50 if name == "micro" else 5
    alone, lab = one_program(config, 1, iterations)
    many, _ = one_program(config, SEEDS.value, max(1, iterations // SEEDS.value))
    ways, rates = [alone, many, host_loop(lab, config)], {}
    for way in ways:
      way.run()  # compiles
    for _ in range(ROUNDS.value):
      for way in ways:
        rates.setdefault(way.name, []).append(timed(way, SECONDS.value))
    base = statistics.median(rates["host loop"])
    rows = size.num_prompts * size.group_size
    params = sum(x.size for x in jax.tree.leaves(jax.eval_shape(lab.model.init, jax.random.key(0))))
    for way in ways:
      values = rates[way.name]
      say(
        dict(
          suite="laboratory",
          size=name,
          parameters=params,
          rows=rows,
          prompt_tokens=lab.arena.task.prompt_tokens,
          completion_tokens=size.completion,
          way=way.name,
          iterations_per_sec=statistics.median(values),
          low=min(values),
          high=max(values),
          ratio=statistics.median(values) / base,
          rounds=len(values),
          device=jax.devices()[0].device_kind,
          num_devices=len(jax.devices()),
          jax=jax.__version__,
        )  # fmt: skip
      )


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"unexpected arguments {argv[1:]}")
  from rich.console import Console
  from rich.table import Table

  found = []

  def say(row):
    found.append(row)
    if OUTPUT.value:
      with open(OUTPUT.value, "a", encoding="ascii") as f:
        f.write(json.dumps(row) + "\n")

  laboratory(say)
  table = Table(title=f"{SUITE.value} on {found[0]['num_devices']} x {found[0]['device']}, jax {found[0]['jax']}")
  for name in ("size", "shape", "way", "iterations/s (all lanes)", "range", "host loop ="):
    table.add_column(name, justify="left" if name in ("size", "shape", "way") else "right")
  for row in found:
    shape = f"{row['parameters'] / 1e6:.2f}M, {row['rows']} x ({row['prompt_tokens']} + {row['completion_tokens']})"
    span = f"{row['low']:.1f} .. {row['high']:.1f}"
    table.add_row(row["size"], shape, row["way"], f"{row['iterations_per_sec']:.1f}", span, f"x {row['ratio']:.2f}")
  console = Console()
  console.width = max(console.width, 110)
  console.print(table)


if __name__ == "__main__":
  app.run(main)
