"""From a policy to a verified rollout for text tasks: the host verifies between sampling and update.

The same parts as `runs.collect`, with the host between them: plain batches, dynamic sampling, screening, replay.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from rlvr_jax.core import Rollout, check_keys, check_number
from rlvr_jax.rollouts import Refilled, informative_groups, merge_groups, settle
from rlvr_jax.rollouts.refill import empty_groups
from rlvr_jax.runs.collect import REPLAY, SCREEN, select_key
from rlvr_jax.runs.verify import Scored, joined
from rlvr_jax.selection import replay


class Seen(NamedTuple):
  """What the host knows of a step: every completion that was sampled for it, over all rounds."""

  step: int
  prompt_id: Any  # Int["p"]   completions of a prompt stand together
  scored: Scored | None
  extra: Mapping[str, float]  # metrics of how the batch came to be


class Refill(NamedTuple):
  """config.refill of a text task."""

  num_rounds: int
  on_short: str = "mask"
  tolerance: float = 1e-6
  metric: str | None = None  # reward component, raw; None: the one called accuracy


class Functions(NamedTuple):
  """The jitted pieces, built once per stage."""

  propose: Callable | None
  observe: Callable | None
  take: Callable | None
  merge: Callable | None
  settle: Callable | None
  mix: Callable | None
  store: Callable | None
  buffer_init: Callable | None
  select_init: Callable
  sample_screen: Callable | None


def make_functions(config: Mapping[str, Any], select: Any, screen_sampler: Callable | None, metric: str) -> Functions:
  """Raises ValueError for settings that exclude each other or are out of range."""
  spec = config.get("refill")
  refill = None
  if spec:
    check_keys("config.refill", spec, Refill._fields)
    refill = Refill(**spec)
    check_number("config.refill.num_rounds", refill.num_rounds, minimum=1)
    check_keys("config.refill.on_short", [refill.on_short], ("mask", "keep"))
    if config.get("prompts", {}).get("buckets"):
      raise ValueError("config.refill merges rounds, so all prompts need one width: leave config.prompts.buckets out")
  screens = hasattr(select, "take")
  if screens and refill:
    raise ValueError("config.refill and a selection that screens are two ways to one end; use one of them")
  buffer, component = None, metric
  if config.get("replay"):
    options = dict(config["replay"])
    component = options.pop("metric", metric)
    buffer = replay(group_size=config["rollout"]["group_size"], **options)
  counted = (refill.metric or metric) if refill else metric

  def merge(kept, count, new):
    return merge_groups(kept, count, new, informative_groups(new.rewards[counted], new, refill.tolerance))

  def mix(rollout, state, run_key, step):
    key = jax.random.fold_in(jax.random.fold_in(run_key, REPLAY), step)
    return buffer.mix(rollout, state, rollout.rewards[component], key, step)

  def propose(state, run_key, step, index_of_round):
    return select.propose(state, select_key(run_key, step, index_of_round))

  return Functions(
    propose=jax.jit(propose) if select is not None else None,
    observe=jax.jit(select.observe) if select is not None else None,
    take=jax.jit(select.take) if screens else None,
    merge=jax.jit(merge) if refill else None,
    settle=jax.jit(lambda kept, count: settle(kept, count, refill.on_short)) if refill else None,
    mix=jax.jit(mix) if buffer is not None else None,
    store=jax.jit(lambda state, r: buffer.add(state, r, r.rewards[component])) if buffer is not None else None,
    buffer_init=buffer.init if buffer is not None else None,
    select_init=select.init if select is not None else dict,
    sample_screen=jax.jit(screen_sampler) if screens else None,
  )


def init_state(functions: Functions, abstract: Callable[[], Rollout]) -> Any:
  """What `TrainState.selection` holds at the start of a stage; `abstract` gives the shapes of its rollouts."""
  state = dict(prompts=functions.select_init())
  if functions.buffer_init is not None:
    state["buffer"] = functions.buffer_init(abstract())
  return state


_fold_in = jax.jit(jax.random.fold_in)
_empty = jax.jit(lambda rollout: empty_groups(rollout, rollout.num_groups))


class Collector:
  """One step's sampling and verification, round after round.

  Args:
    play: `(state, batch, key, sampler) -> (rollout, scored)`: samples one batch and verifies it.
    put:  a host value onto the devices.
  """

  def __init__(self, stage: Any, run_key: Any, step: int, play: Callable, put: Callable):
    self.stage, self.functions, self.run_key, self.step = stage, stage.functions, run_key, step
    self.play_batch, self.put = play, put
    self.played: list[tuple[Any, Scored]] = []

  def _key(self, data: int):
    return _fold_in(self.run_key, self.put(np.uint32(data)))

  def _play(self, state, batch, key, sampler=None) -> tuple[Rollout, Scored]:
    rollout, scored = self.play_batch(state, batch, key, sampler or self.stage.sample)
    self.played.append((batch, scored))
    return rollout, scored

  def _next(self, state, index_of_round: int):
    """The next batch of prompts, their rows where a selection chose them, and the state."""
    if self.functions.propose is None:
      return next(self.stage.loader), None, state
    where = self.put(np.int32(self.step)), self.put(np.int32(index_of_round))
    index, prompts = self.functions.propose(state.selection["prompts"], self.run_key, *where)
    return self.stage.loader.at(jax.device_get(index)), index, self._with_prompts(state, prompts)

  def _with_prompts(self, state, prompts):
    return state.replace(selection=dict(state.selection) | dict(prompts=prompts))

  def _observe(self, state, index, scored: Scored):
    if index is None:
      return state
    judged = ~np.isnan(scored.metric)
    of_prompt = lambda x: self.put(x.reshape(index.shape[0], -1).sum(axis=1).astype(np.float32))
    correct, counts = of_prompt(np.where(judged, scored.metric, 0.0)), of_prompt(judged)
    return self._with_prompts(state, self.functions.observe(state.selection["prompts"], index, correct, counts))

  def round(self, state, index_of_round: int, key, sampler=None):
    batch, index, state = self._next(state, index_of_round)
    rollout, scored = self._play(state, batch, key, sampler)
    return rollout, self._observe(state, index, scored)

  def refilled(self, state):
    """Rounds until every group is informative, or the rounds run out."""
    spec = Refill(**self.stage.config["refill"])
    kept, count, dropped = None, self.put(np.int32(0)), 0
    for index_of_round in range(spec.num_rounds):
      new, state = self.round(state, index_of_round, self._key(index_of_round))
      if kept is None:
        kept = _empty(new)
      kept, count, lost = self.functions.merge(kept, count, new)
      dropped += int(jax.device_get(lost))
      if int(jax.device_get(count)) == new.num_groups:
        break
    found, rounds = int(jax.device_get(count)), index_of_round + 1
    done = Refilled(rounds, rounds * new.num_groups, found, dropped, new.num_groups - found)
    return self.functions.settle(kept, count), state, {f"refill/{k}": float(v) for k, v in done._asdict().items()}

  def screened(self, state):
    """A few completions of every candidate, then whole groups of those that passed and wait longest."""
    _, state = self.round(state, 0, self._key(SCREEN), self.functions.sample_screen)
    index, prompts = self.functions.take(state.selection["prompts"])
    state, chosen = self._with_prompts(state, prompts), jax.device_get(index)
    batch = self.stage.loader.at(chosen)
    batch = batch._replace(valid_mask=batch.valid_mask & (chosen >= 0)[:, None])  # filler where too few wait
    rollout, _ = self._play(state, batch, self.run_key)
    waiting = jax.device_get((prompts.size, prompts.num_dropped))
    return rollout, state, {"screen/waiting": float(waiting[0]), "screen/lost": float(waiting[1])}

  def replayed(self, rollout, state):
    """Fresh groups without signal give way to stored ones; the fresh rollout is stored after that."""
    buffer = state.selection["buffer"]
    mixed, replaced = self.functions.mix(rollout, buffer, self.run_key, self.put(np.int32(self.step)))
    buffer = self.functions.store(buffer, rollout)
    state = state.replace(selection=dict(state.selection) | dict(buffer=buffer))
    found = jax.device_get((replaced, buffer.size))
    return mixed, state, {"replay/groups": float(found[0].sum()), "replay/stored": float(found[1])}

  def collect(self, state) -> tuple[Rollout, Any, Seen]:
    """A rollout to train on, the state whose selection has heard of it, and what the host saw."""
    if self.functions.take is not None:
      rollout, state, extra = self.screened(state)
    elif self.functions.merge is not None:
      rollout, state, extra = self.refilled(state)
    else:
      (rollout, state), extra = self.round(state, 0, self.run_key), {}
    if self.functions.mix is not None:
      rollout, state, more = self.replayed(rollout, state)
      extra = extra | more
    return rollout, state, self.seen(extra)

  def seen(self, extra: Mapping[str, float]) -> Seen:
    """Rows of several rounds may differ in completions per prompt; each then counts as a prompt of its own."""
    sizes = {len(scored.samples) // len(batch.prompt_id) for batch, scored in self.played}
    ids = [np.asarray(batch.prompt_id) for batch, _ in self.played]
    if len(sizes) > 1:
      ids = [np.repeat(i, len(s.samples) // len(i)) for i, (_, s) in zip(ids, self.played)]
    return Seen(self.step, np.concatenate(ids), joined([scored for _, scored in self.played]), extra)
