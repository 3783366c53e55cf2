"""From a policy to a verified rollout, in one graph: plain batches, dynamic sampling, screening, replay."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import rlvr_jax.rewards.graph as components_room
import rlvr_jax.selection as selection_room
from rlvr_jax.core import PyTree, Rollout, Stat, build, check_keys
from rlvr_jax.rollouts import PromptArrays, refill
from rlvr_jax.runs.arena import Arena

SELECT, SCREEN, REPLAY = 0x53454C, 0x534352, 0x524550  # folded into the run key: no two uses share a key


class Collect(NamedTuple):
  """How batches come to be. The state is that of the selection and of the buffers; it is `TrainState.selection`."""

  init: Callable[[PyTree], PyTree]  # params -> state
  play: Callable  # (params, state, run key, step) -> (rollout, state, metrics)


def select_key(run_key, step, index_of_round):
  return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(run_key, SELECT), step), index_of_round)


def make_play(config: Mapping[str, Any], arena: Arena, model: Any, select: Any) -> Collect:
  """Samples and verifies batches as the config says.

  config.refill:    rounds until every group is informative.
  config.selection: where it screens (`selection.speed_rl`), two samplings an iteration, the first of
                    config.screen.group_size completions a prompt.
  config.replay:    stored groups stand in for fresh ones that teach nothing.
  """
  rounds = _Rounds(config, arena, model, select)
  if hasattr(select, "take"):
    if config.get("refill"):
      raise ValueError("config.refill and a selection that screens are two ways to one end; use one of them")
    screen = config.get("screen") or {}
    check_keys("config.screen", screen, ("group_size",))
    play = rounds.screened(screen.get("group_size", 4))
  elif config.get("screen"):
    raise ValueError("config.screen goes with a selection that screens, such as speed_rl")
  elif config.get("refill"):
    play = rounds.refilled(config["refill"])
  else:
    play = rounds.plain
  collect = Collect(lambda params: select.init(), play)
  return _with_replay(collect, config) if config.get("replay") else collect


def _make_rewards(specs) -> dict[str, tuple[float, Callable]]:
  rewards = {}
  for spec in specs:
    spec = dict(spec)
    weight, label = spec.pop("weight", 1.0), spec.pop("label", spec.get("name"))
    if label in rewards:
      raise ValueError(f"config.rewards: {label!r} stands twice; give one of them another label")
    rewards[label] = weight, build(components_room, spec)
  if not rewards:
    raise ValueError("config.rewards must have at least one component")
  return rewards


def seen(rollout: Rollout, generated, extra: Mapping[str, Any] | None = None) -> dict[str, Stat]:
  """What a person wants to know of the rollout that trains, and the tokens that it took."""
  rows, one = rollout.row_mask, jnp.ones(())
  return {f"reward/{name}": Stat.over(x, rows) for name, x in rollout.rewards.items()} | {
    "reward/mean": Stat.over(rollout.reward, rows),
    "length/mean": Stat.over(jnp.sum(rollout.action_mask, axis=1), rows),
    "truncated": Stat.over(rollout.truncated, rows),
    "budget/generated_tokens": Stat(generated, one),
    **{name: Stat(jnp.asarray(x, jnp.float32), one) for name, x in (extra or {}).items()},
  }


def _num_actions(rollout: Rollout):
  return jnp.sum(rollout.action_mask, dtype=jnp.float32)


class _Rounds:
  """The ways to fill a batch; each is `(params, state, run_key, step) -> (rollout, state, metrics)`."""

  def __init__(self, config, arena: Arena, model: Any, select: Any):
    self.arena, self.select, self.size = arena, select, config["rollout"]["group_size"]
    self.rewards = _make_rewards(config["rewards"])
    self.sample = arena.make_sampler(config["rollout"], model)
    self.sampler_of = lambda size: arena.make_sampler(dict(config["rollout"]) | dict(group_size=size), model)

  def judge(self, rollout: Rollout) -> Rollout:
    """With its reward, every component, and "correct" and "parsable" whether they count or not."""
    verdict = self.arena.verify(rollout)
    parts = {name: part(verdict, rollout) for name, (_, part) in self.rewards.items()}
    reward = sum(jnp.asarray(weight, jnp.float32) * parts[name] for name, (weight, _) in self.rewards.items())
    always = {"correct": verdict.correct.astype(jnp.float32), "parsable": verdict.parsable.astype(jnp.float32)}
    return rollout.replace(reward=reward, rewards=always | parts, answer_id=verdict.answer_id)

  def answered(self, sample, params, index, run_key, step) -> Rollout:
    index = index.astype(jnp.int32)
    tokens, mask = self.arena.prompts(jnp.maximum(index, 0))
    return self.judge(sample(params, PromptArrays(tokens, mask & (index >= 0)[:, None], index), run_key, step))

  def observe(self, state, index, rollout: Rollout):
    counts = rollout.row_mask.astype(jnp.float32)
    of_prompt = lambda x: jnp.sum(x.reshape(index.shape[0], -1), axis=1)
    return self.select.observe(state, index, of_prompt(counts * rollout.rewards["correct"]), of_prompt(counts))

  def one(self, params, state, run_key, step, index_of_round):
    index, state = self.select.propose(state, select_key(run_key, step, index_of_round))
    rollout = self.answered(self.sample, params, index, run_key, step)
    return rollout, self.observe(state, index, rollout)

  def plain(self, params, state, run_key, step):
    rollout, state = self.one(params, state, run_key, step, 0)
    return rollout, state, seen(rollout, _num_actions(rollout))

  def refilled(self, spec: Mapping[str, Any]) -> Callable:
    """DAPO's dynamic sampling on the raw metric `spec["metric"]`, at most `num_rounds` rounds."""
    spec = dict(spec)
    metric = spec.pop("metric", "correct")
    check_keys("config.refill", spec, ("num_rounds", "on_short", "tolerance"))
    check_keys("config.refill.metric", [metric], ("correct", "parsable", *self.rewards))

    def one(params, key, step, index_of_round, carry):
      state, generated = carry
      rollout, state = self.one(params, state, key, step, index_of_round)
      return rollout, rollout.rewards[metric], (state, generated + _num_actions(rollout))

    run = refill(one, **spec)

    def play(params, state, run_key, step):
      rollout, (state, generated), stats = run(params, run_key, step, (state, jnp.zeros(())))
      return rollout, state, seen(rollout, generated, {f"refill/{k}": x for k, x in stats._asdict().items()})

    return play

  def screened(self, num_init: int) -> Callable:
    """SPEED-RL: a few completions of every candidate, then whole groups of those that passed and wait longest."""
    screen = self.sampler_of(num_init)

    def play(params, state, run_key, step):
      index, state = self.select.propose(state, select_key(run_key, step, 0))
      tried = self.answered(screen, params, index, jax.random.fold_in(run_key, SCREEN), step)
      state = self.observe(state, index, tried)
      index, state = self.select.take(state)
      rollout = self.answered(self.sample, params, index, run_key, step)
      generated = _num_actions(tried) + _num_actions(rollout)
      return rollout, state, seen(rollout, generated, {"screen/waiting": state.size, "screen/lost": state.num_dropped})

    return play


def _with_replay(collect: Collect, config: Mapping[str, Any]) -> Collect:
  """Fresh groups without signal give way to stored ones; the fresh rollout is stored after that."""
  spec = dict(config["replay"])
  metric = spec.pop("metric", "correct")
  check_keys("config.replay.metric", [metric], ("correct", "parsable", *_make_rewards(config["rewards"])))
  buffer = build(selection_room, dict(name="replay") | spec, group_size=config["rollout"]["group_size"])

  def init(params):
    state = collect.init(params)
    key, step = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((), jnp.int32)
    rollout, _, _ = jax.eval_shape(collect.play, params, state, key, step)
    return dict(prompts=state, buffer=buffer.init(rollout))

  def play(params, state, run_key, step):
    fresh, prompts, metrics = collect.play(params, state["prompts"], run_key, step)
    key = jax.random.fold_in(jax.random.fold_in(run_key, REPLAY), step)
    mixed, replayed = buffer.mix(fresh, state["buffer"], fresh.rewards[metric], key, step)
    after = dict(prompts=prompts, buffer=buffer.add(state["buffer"], fresh, fresh.rewards[metric]))
    more = {"replay/groups": jnp.sum(replayed), "replay/stored": after["buffer"].size}
    return mixed, after, metrics | {name: Stat(x.astype(jnp.float32), jnp.ones(())) for name, x in more.items()}

  return Collect(init, play)
