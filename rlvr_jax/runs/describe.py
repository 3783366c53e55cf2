"""What a config would run: the composed method, shapes and memory, without running it."""

import io

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from rlvr_jax.runs.build import Experiment, Stage, abstract_rollout, build_experiment
from rlvr_jax.runs.lab_run import LabRun
from rlvr_jax.runs.laboratory import init_params
from rlvr_jax.runs.settings import plain

MIB = 2**20


def _memory(lowered) -> str:
  analysis = lowered.compile().memory_analysis()
  if analysis is None:
    return "unknown on this backend"
  return (
    f"{analysis.argument_size_in_bytes / MIB:.0f} MiB arguments + {analysis.temp_size_in_bytes / MIB:.0f} MiB "
    f"temporaries + {(analysis.output_size_in_bytes - analysis.alias_size_in_bytes) / MIB:.0f} MiB new outputs"
  )


def describe(config) -> str:
  """Builds and compiles everything, and tells what it is. Raises whatever a run would raise before its first step."""
  experiment = build_experiment(config)
  model, loaded = experiment.model, experiment.loaded
  out = io.StringIO()
  console = Console(file=out, width=120)
  table = Table(title="experiment", show_header=False)
  size = sum(np.size(x) for x in jax.tree.leaves(loaded.params))
  source, vocab_size = experiment.settings["model"].source, model.config.vocab_size
  table.add_row("model", f"{source}: {size / 1e6:.2f}M parameters, vocabulary {vocab_size}")
  table.add_row("compute", f"{model.dtype}, remat {model.remat}, mesh {dict(experiment.mesh.shape)}")
  table.add_row("stop ids, pad id", f"{loaded.generation.stop_ids}, {loaded.generation.pad_id}")
  with jax.set_mesh(experiment.mesh):
    for stage in experiment.stages:
      experts = {name: jax.eval_shape(model.init, jax.random.key(0)) for name, model in stage.experts.items()}
      init = lambda params, given, stage=stage: stage.train_step.init(params, experiment.seed, given)
      state = jax.eval_shape(init, loaded.params, experts)
      _stage_rows(table, experiment, stage, state)
  console.print(table)
  return out.getvalue()


def describe_lab(config) -> str:
  """What a laboratory config would run, built and checked; the model is small, so nothing is compiled."""
  run = LabRun(config, [int(plain(config).get("seed", 0))])
  out = io.StringIO()
  console = Console(file=out, width=120)
  table = Table(title="laboratory experiment", show_header=False)
  shapes = jax.eval_shape(lambda seed: init_params(run.model, seed), np.uint32(0))
  size = sum(np.prod(x.shape) for x in jax.tree.leaves(shapes))
  task = run.arena.task
  table.add_row("model", f"{size / 1e6:.2f}M parameters, vocabulary {len(task.symbols)}: {' '.join(task.symbols)}")
  table.add_row("task", f"{run.config['task']} ({task.num_train} train, {task.num_eval} held-out)")
  for stage in run.stages:
    table.add_section()
    table.add_row(f"stage {stage.kind}", f"{stage.settings['train'].num_steps} steps")
    names = () if stage.kind == "sft" else ("selection", "rollout", "rewards", "credit", "views", "critic")
    for name in (*names, "objective", "reduce", "optimiser"):
      if stage.config.get(name):
        table.add_row(name, str(stage.config[name]))
    table.add_row("needs", ", ".join(sorted(stage.method.needs)))
    rows = stage.settings["prompts"].per_step * (1 if stage.kind == "sft" else stage.config["rollout"]["group_size"])
    table.add_row("shapes", f"{rows} rows x ({task.prompt_tokens} + {run.arena.max_new_tokens}) tokens")
  console.print(table)
  return out.getvalue()


def _stage_rows(table: Table, experiment: Experiment, stage: Stage, state) -> None:
  config, train = stage.config, stage.settings["train"]
  table.add_section()
  table.add_row(f"stage {stage.kind}", f"steps {stage.start + 1}..{stage.end}")
  table.add_row("task", f"{config['task']} ({len(stage.task.train)} train, {len(stage.task.eval)} held-out)")
  names = () if stage.kind == "sft" else ("rollout", "rewards", "credit")
  for name in (*names, "objective", "reduce", "optimiser"):
    table.add_row(name, str(config[name]))
  table.add_row("needs", ", ".join(sorted(stage.train_step.needs)))
  if stage.kind == "sft":
    return
  arguments, rollout = abstract_rollout(stage, state.params)
  n, t = rollout.tokens.shape
  rows = n // (train.num_microbatches * train.num_minibatches)
  table.add_row("shapes", f"{n} rows x {t} tokens, {rollout.num_groups} groups; {rows} rows at once in the update")
  table.add_row("sampler memory", _memory(stage.sample.lower(state.params, *arguments)))
  table.add_row("train step memory", _memory(stage.step.lower(state, rollout)))
