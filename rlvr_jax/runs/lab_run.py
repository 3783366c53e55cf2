"""A whole laboratory run: every stage a scan over iterations, mapped over lanes; between scans the host looks.

A lane is one seed, with its own value of every swept number. Lanes never meet, so each is what it would be alone.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlvr_jax.core import PyTree
from rlvr_jax.runs.arena import make_arena
from rlvr_jax.runs.laboratory import Evaluated, check_swept, init_params, make_model, make_stages
from rlvr_jax.runs.settings import plain, resolve_stages
from rlvr_jax.train import TrainState

SPENT = ("generated_tokens", "update_tokens", "scored_tokens")


class Point(NamedTuple):
  """One evaluation; a number per lane."""

  iteration: int  # since the run began
  stage: int
  accuracy: np.ndarray  # Float["s"] held-out, mean over completions
  spent: Mapping[str, np.ndarray]  # Int["s"] of SPENT
  secs: float  # of the scans so far


class LabResult(NamedTuple):
  seeds: np.ndarray  # Int["s"]
  values: Mapping[str, np.ndarray]  # swept path -> Float["s"]
  points: tuple[Point, ...]
  final: Evaluated  # [s p k]
  params: PyTree  # every leaf [s ...]
  compile_secs: float
  run_secs: float  # of the scans alone


class Lanes(NamedTuple):
  """Everything that a run carries; every leaf has a leading axis of lanes."""

  state: TrainState
  spent: Mapping[str, Any]  # Int32["s"]
  stopped: Any  # Bool["s"]  by the stage's stop rule
  saved: Mapping[str, PyTree]  # parameters that stages saved by name, for views


def lane_sharding(num_lanes: int) -> NamedSharding | None:
  """Lanes over all devices, where they divide."""
  devices = jax.devices()
  if len(devices) == 1 or num_lanes % len(devices):
    return None
  return NamedSharding(Mesh(np.array(devices), ("lanes",)), PartitionSpec("lanes"))


@contextlib.contextmanager
def _named(paths: Sequence[str]) -> Iterator[None]:
  """Says which swept path it was that a builder wanted as a Python number."""
  try:
    yield
  except jax.errors.JAXTypeError as error:
    if not paths:
      raise
    raise ValueError(f"{' or '.join(map(repr, paths))} cannot be swept: a part needs it as a Python number") from error


class LabRun:
  """A config over lanes, with its compiled pieces.

  Args:
    seeds:         one lane each.
    values:        swept config path -> one number per lane.
    budget_tokens: a lane stops once it has generated this many tokens, all stages together.
    sharded:       whether to spread lanes over the devices there are.
  """

  def __init__(
    self,
    config: Mapping[str, Any],
    seeds: Sequence[int],
    values: Mapping[str, Sequence[float]] | None = None,
    budget_tokens: int | None = None,
    sharded: bool = True,
  ):
    self.config = plain(config)
    if "task" not in self.config:
      raise ValueError(f"config needs 'task'; it has {sorted(self.config)}")
    if not len(seeds):
      raise ValueError("seeds must have at least one, for one lane")
    self.seeds = jnp.asarray(np.asarray(seeds, np.uint32))
    self.values = {path: jnp.asarray(v, jnp.float32) for path, v in (values or {}).items()}
    for path, lane_values in self.values.items():
      if len(lane_values) != len(self.seeds):
        raise ValueError(f"{path!r} needs a value for each of {len(self.seeds)} lanes, got {len(lane_values)}")
    if budget_tokens is not None and budget_tokens < 1:
      raise ValueError(f"budget_tokens must be >= 1, got {budget_tokens}")
    self.budget = budget_tokens
    self.stage_configs = resolve_stages(self.config)
    self.arena = make_arena(self.config["task"])
    self.model = make_model(self.config, self.arena.task)
    self.stages = make_stages(self.config, self.arena, self.model)  # whatever is wrong is wrong here
    self._check_sweep()
    self.sharding = lane_sharding(len(self.seeds)) if sharded else None
    self.run_keys = jax.vmap(jax.random.key)(self.seeds)
    self.compile_secs = self.run_secs = 0.0
    self._compiled: dict[Any, Callable] = {}

  def _check_sweep(self) -> None:
    """Builds every stage with every lane's numbers, and with traced ones."""
    for path, lane_values in self.values.items():
      check_swept(self.config, path)
      build = lambda value, path=path: make_stages(self.config, self.arena, self.model, {path: value}) and 0
      with _named([path]):
        jax.eval_shape(build, jnp.zeros(()))
      for value in dict.fromkeys(lane_values.tolist()):
        build(value)

  def _place(self, tree):
    return tree if self.sharding is None else jax.device_put(tree, self.sharding)

  def call(self, name: Any, fn: Callable, *args, donate: tuple[int, ...] = (), timed: bool = False):
    """`fn` mapped over lanes and compiled once per name; compiling and running are timed apart."""
    started = time.perf_counter()
    if name not in self._compiled:
      with _named(list(self.values)):
        lowered = jax.jit(jax.vmap(fn), donate_argnums=donate).lower(*args)
      self._compiled[name] = lowered.compile()
      self.compile_secs += time.perf_counter() - started
      started = time.perf_counter()
    out = self._compiled[name](*args)
    if timed:
      jax.block_until_ready(out)
      self.run_secs += time.perf_counter() - started
    return out

  def stage_of(self, index: int, values: Mapping[str, Any]):
    return make_stages(self.config, self.arena, self.model, values)[index] if values else self.stages[index]

  def start(self) -> Lanes:
    params = self.call("init", lambda seed: init_params(self.model, seed), self._place(self.seeds))
    return self.enter(0, None, params)

  def enter(self, index: int, before: Lanes | None, params: PyTree | None = None) -> Lanes:
    """The lanes at the start of a stage: parameters so far (or new ones), everything else fresh."""
    if self.stage_configs[index].get("restart") and before is not None:
      params = self.call("init", lambda seed: init_params(self.model, seed), self._place(self.seeds))
    num = len(self.seeds)
    zero = {name: jnp.zeros(num, jnp.int32) for name in SPENT}
    spent, saved = (zero, {}) if before is None else (before.spent, before.saved)
    params = before.state.params if params is None else params
    step = jnp.zeros(num, jnp.int32) if before is None else before.state.step

    def make(params, seed, step, values, saved):
      params = jax.tree.map(jnp.copy, params)  # the stage donates its own, others may still want these
      return self.stage_of(index, values).enter(params, seed, step, saved)

    state = self.call(("enter", index), make, params, self.seeds, step, self.values, saved)
    return self._place(Lanes(state, spent, jnp.zeros(num, bool), saved))

  def chunk(self, index: int, lanes: Lanes, num_iterations: int):
    """`num_iterations` of a stage in one dispatch; metrics are [s i], NaN where a lane stood still."""
    stops = self.budget is not None or self.stage_configs[index].get("stop")

    def one(state, spent, stopped, values):
      stage = self.stage_of(index, values)

      def body(carry, _):
        state, spent = carry
        new, metrics = stage.iterate(state)
        add = {name: metrics[f"budget/{name}"].total.astype(jnp.int32) for name in SPENT}
        live = ~stopped
        if self.budget is not None:
          live &= spent["generated_tokens"] < self.budget
        means = {name: jnp.where(stat.weight > 0, stat.mean(), jnp.nan) for name, stat in metrics.items()}
        if stops:
          new = jax.tree.map(lambda a, b: jnp.where(live, a, b), new, state)
          add = {name: jnp.where(live, x, 0) for name, x in add.items()}
          means = {name: jnp.where(live, x, jnp.nan) for name, x in means.items()}
        return (new, {name: spent[name] + add[name] for name in SPENT}), means

      return jax.lax.scan(body, (state, spent), None, length=num_iterations)

    name = ("chunk", index, num_iterations)
    (state, spent), metrics = self.call(
      name, one, lanes.state, lanes.spent, lanes.stopped, self.values, donate=(0,), timed=True
    )
    return lanes._replace(state=state, spent=spent), metrics

  def evaluate(self, params: PyTree) -> Evaluated:
    """Held-out completions of every lane, as the last stage samples them (or as config.eval.rollout says)."""

    def one(params, key, values):
      return self.stage_of(-1, values).evaluate(params, key)

    return self.call("evaluate", one, params, self._place(self.run_keys), self.values)

  def over(self, lanes: Lanes) -> np.ndarray:
    """Bool["s"]: lanes whose budget is spent."""
    if self.budget is None:
      return np.zeros(len(self.seeds), bool)
    return np.asarray(lanes.spent["generated_tokens"]) >= self.budget
