"""The sampler of turns against the training forward pass, a plain-Python replay, and `groups`."""

import functools
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.core import positions, token_statistics
from rlvr_jax.models import Decoder, tiny_config
from rlvr_jax.rollouts.groups import PromptArrays, groups
from rlvr_jax.rollouts.turns import turns
from rlvr_jax.tasks.graph.types import to_text
from rlvr_jax.tasks.worlds.requests import requests

VOCAB, PAD, STOPS, GROUP, TURNS, ACTION, OBSERVATION = 13, 0, (1, 7), 4, 3, 3, 3
LENGTHS = (4, 1, 3, 2)
MODEL = Decoder(
  tiny_config(VOCAB, width=16, num_layers=1, num_heads=2, num_kv_heads=1, mlp_width=32, tie_embeddings=False)
)


class Step(NamedTuple):
  state: Any
  observation: Any
  mask: Any
  reward: Any
  done: Any


def reset(prompt_id):
  return dict(total=prompt_id % 5)


def world_step(prompt_id, state, tokens, mask):
  """Adds up the tokens said, stop included. Rewards each turn; done on a multiple of 3, which ends a row early."""
  said = jnp.sum(jnp.where(mask, tokens, 0))
  total = state["total"] + said
  observation = jnp.stack([2 + total % 5, 9, jnp.sum(mask)])
  seen = jnp.stack([total % 2 == 0, False, True])  # a gap within, and at times in front
  return Step(dict(total=total), observation, seen & (total % 7 != 0), (said % 4).astype(jnp.float32), total % 3 == 0)


def twin(prompt_id, actions):
  """The same in plain Python: observations, rewards and whether it is done, after each of `actions`."""
  total, answers = prompt_id % 5, []
  for action in actions:
    total += sum(action)
    seen = [] if total % 7 == 0 else [2 + total % 5] * (total % 2 == 0) + [len(action)]
    answers.append((seen, sum(action) % 4, total % 3 == 0))
  return answers


@functools.cache
def _params():
  params = MODEL.init(jax.random.key(0))
  return params | dict(head=dict(weight=params["head"]["weight"] * 1.5))


@functools.cache
def _sampler(**changes):
  settings = dict(
    world_step=world_step, world_reset=reset, stop_ids=STOPS, pad_id=PAD, group_size=GROUP, max_turns=TURNS,
    action_tokens=ACTION, observation_tokens=OBSERVATION, temperature=0.8, entropy=True,
  )  # fmt: skip
  return turns(MODEL, **settings | changes)


def _prompts(rows=range(4), side="left", width=4):
  """Row i always has the same tokens, whatever the batch; row -1 is filler."""
  tokens, valid = np.full((len(rows), width), 5, np.int32), np.zeros((len(rows), width), bool)
  for out, row in enumerate(rows):
    length = LENGTHS[row] if row >= 0 else 0
    at = slice(width - length, None) if side == "left" else slice(0, length)
    tokens[out, at] = np.random.default_rng(max(row, 0)).integers(2, VOCAB, length)
    valid[out, at] = True
  return PromptArrays(jnp.asarray(tokens), jnp.asarray(valid), jnp.asarray(100 + np.asarray(rows), jnp.int32))


_sample_jit = jax.jit(lambda params, prompts, key, step: _sampler()(params, prompts, key, step))


@functools.cache
def _base():
  return jax.tree.map(np.asarray, _sample_jit(_params(), _prompts(), jax.random.key(1), 4))


def _by_row(rollout):
  """{(prompt_id, index in group): the row's arrays after the prompt}"""
  first, seen, found = rollout.first_action, {}, {}
  per_token = (rollout.tokens, rollout.valid_mask, rollout.turn_id, rollout.behaviour_log_probs,
               rollout.stats["turn.reward"])  # fmt: skip
  for i, prompt_id in enumerate(np.asarray(rollout.prompt_id)):
    index = seen[prompt_id] = seen.get(prompt_id, -1) + 1
    found[int(prompt_id), index] = [np.asarray(x)[i, first:] for x in per_token] + [np.asarray(rollout.reward)[i]]
  return found


def _assert_same(some, among):
  among = _by_row(among)
  for name, arrays in _by_row(some).items():
    for one, other in zip(arrays, among[name]):
      np.testing.assert_allclose(one, other, atol=1e-5)


def test_log_probs_equal_those_of_the_train_step():
  rollout = _base()
  hidden = MODEL.hidden(_params(), rollout.tokens, positions(jnp.asarray(rollout.valid_mask)), rollout.valid_mask)
  want = dict(temperature=0.8, want=("log_probs", "entropy"))
  trained = token_statistics(hidden, MODEL.head(_params()), rollout.tokens, **want)
  mask = rollout.action_mask
  assert mask.sum() > 40 and 0 < rollout.truncated.sum() < 16
  np.testing.assert_allclose(rollout.behaviour_log_probs[mask], trained["log_probs"][mask], atol=1e-4)
  np.testing.assert_allclose(rollout.stats["behaviour.entropy"][mask], trained["entropy"][mask], atol=1e-4)
  assert not rollout.behaviour_log_probs[~mask].any() and not rollout.stats["behaviour.entropy"][~mask].any()


def test_a_replay_of_every_row_gives_its_observations_and_rewards():
  """And each column is where the layout says: actions and observations by turns without a gap, then padding."""
  rollout = _base()
  first = rollout.first_action
  assert first == 4 and rollout.tokens.shape == (16, first + TURNS * (ACTION + OBSERVATION))
  num_turns = set()
  for i, row in enumerate(zip(rollout.tokens, rollout.valid_mask, rollout.turn_id, rollout.stats["turn.reward"])):
    tokens, valid, turn_id, reward = (x[first:].tolist() for x in row)
    actions = [[s for s, k in zip(tokens, turn_id) if k == t] for t in range(TURNS) if t in turn_id]
    for action in actions:  # up to the first stop, or all columns
      assert not set(action[:-1]) & set(STOPS) and (action[-1] in STOPS or len(action) == ACTION)
    answers = twin(100 + i // GROUP, actions)
    assert [done for *_, done in answers] == [False] * (len(actions) - 1) + [not rollout.truncated[i]]
    assert len(actions) == TURNS or not rollout.truncated[i]
    expected = []  # (token, valid, turn_id, reward) of each column
    for t, (action, (seen, earned, _)) in enumerate(zip(actions, answers)):
      expected += [(s, True, t, earned * (c == len(action) - 1)) for c, s in enumerate(action)]
      expected += [(s, True, -1, 0) for s in seen]
    expected += [(PAD, False, -1, 0)] * (len(tokens) - len(expected))
    assert list(zip(tokens, valid, turn_id, reward)) == expected
    assert rollout.action_mask[i, first:].tolist() == [k >= 0 for k in turn_id]
    assert rollout.reward[i] == rollout.rewards["world"][i] == sum(earned for _, earned, _ in answers)
    num_turns.add(len(actions))
  assert num_turns == {1, 2, 3}
  assert not rollout.action_mask[:, :first].any() and (rollout.turn_id[:, :first] == -1).all()
  np.testing.assert_array_equal(rollout.group_id, np.repeat(np.arange(4), GROUP))
  assert rollout.num_groups == 4 and rollout.row_mask.all() and (rollout.policy_version == 4).all()


@pytest.mark.parametrize("changes", [dict(rows=(2, 0, 3, 1)), dict(rows=(1, 3, -1, 0)), dict(side="right")], ids=str)
def test_the_rest_of_the_batch_does_not_matter(changes):
  rollout = _sample_jit(_params(), _prompts(**changes), jax.random.key(1), 4)
  if -1 in changes.get("rows", ()):
    filler = np.asarray(rollout.prompt_id) == 99
    np.testing.assert_array_equal(rollout.row_mask, ~filler)
    for x in (rollout.valid_mask, rollout.action_mask, rollout.reward, rollout.truncated):
      assert not np.asarray(x)[filler].any()
    rollout = rollout.replace(**{
      name: getattr(rollout, name)[~filler]
      for name in ("tokens", "valid_mask", "turn_id", "behaviour_log_probs", "reward", "prompt_id")
    }, stats={name: x[~filler] for name, x in rollout.stats.items()})  # fmt: skip
  _assert_same(rollout, _base())


def test_seeds_may_be_mapped_over():
  """Two models, two keys, one program; each as by itself."""
  params = jax.tree.map(lambda x: jnp.stack([x * 1.2, x]), _params())
  keys = jnp.stack([jax.random.key(7), jax.random.key(1)])
  both = jax.jit(jax.vmap(_sampler(), (0, None, 0, None)))(params, _prompts(), keys, 4)
  _assert_same(jax.tree.map(lambda x: x[1], both), _base())
  assert (np.asarray(both.tokens[0]) != _base().tokens).any()


def test_one_turn_is_groups_token_for_token():
  settings = dict(stop_ids=STOPS, pad_id=PAD, group_size=GROUP, temperature=0.8)
  expected = jax.jit(groups(MODEL, max_new_tokens=5, **settings))(_params(), _prompts(), jax.random.key(3), 2)

  def once(prompt_id, state, tokens, mask):
    return Step(state, jnp.zeros(0, int), jnp.zeros(0, bool), 1.0, True)

  world = dict(world_step=once, max_turns=1, action_tokens=5, observation_tokens=0, entropy=False)
  found = jax.jit(_sampler(**world))(_params(), _prompts(), jax.random.key(3), 2)
  assert 1 < np.asarray(found.action_mask).sum(1).min() or len(set(np.asarray(found.action_mask).sum(1))) > 2
  for name in ("tokens", "valid_mask", "action_mask", "prompt_id", "group_id", "row_mask", "policy_version"):
    np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
  np.testing.assert_allclose(found.behaviour_log_probs, expected.behaviour_log_probs, atol=1e-5)
  np.testing.assert_array_equal(found.reward, np.ones(16))


def test_sums_answered_by_a_model_earn_what_the_text_says():
  """A world of the library, its transcripts read as text."""
  world = requests(k=2, limit=4, operators="+", num_train=64, num_eval=8)
  model = Decoder(tiny_config(len(world.symbols), width=16, num_layers=1, num_heads=2, num_kv_heads=1, mlp_width=32))

  def step(i, carry, tokens, mask):
    found = world.step(*carry, tokens, mask)
    return found._replace(state=(carry[0], found.state))

  sampler = turns(
    model,
    world_step=step,
    world_reset=lambda i: (facts := world.problem(i), world.reset(facts)),
    stop_ids=(world.stop_id,),
    pad_id=world.pad_id,
    group_size=128,
    **{name: getattr(world, name) for name in ("max_turns", "action_tokens", "observation_tokens")},
  )

  @jax.jit
  def sample(params, ids):
    tokens, mask = jax.vmap(lambda i: world.prompt(world.problem(i)))(ids)
    return sampler(params, PromptArrays(tokens, mask, ids), jax.random.key(0), 0)

  rollout = jax.tree.map(np.asarray, sample(model.init(jax.random.key(0)), jnp.arange(8)))
  assert not rollout.truncated.any() and rollout.reward.any()
  for i in range(rollout.tokens.shape[0]):
    row, valid = rollout.tokens[i], rollout.valid_mask[i]
    sums = to_text(world, row[: rollout.first_action], valid[: rollout.first_action]).split(";")[:2]
    right = 0
    for t, text in enumerate(sums):
      said = [world.symbols[s] for s in row[rollout.turn_id[i] == t]]
      number = re.fullmatch(r"(\d)<stop>", "".join(said))
      right += number is not None and int(number[1]) == eval(text)
    assert rollout.reward[i] == right / 2


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(group_size=0), "group_size must be >= 1, got 0"),
    (dict(max_turns=0), "max_turns must be >= 1, got 0"),
    (dict(action_tokens=0), "action_tokens must be >= 1, got 0"),
    (dict(observation_tokens=-1), "observation_tokens must be >= 0, got -1"),
    (dict(observation_tokens=2), r"observation_tokens=2, got \(\(3,\), \(3,\)\)"),
    (dict(temperature=-1.0), "temperature must be finite and >= 0"),
    (dict(stop_ids=(-2,)), "must be >= 0, got -2"),
    (dict(stop_ids=(VOCAB,)), "below the vocabulary size 13"),
  ],
)
def test_settings_out_of_range_are_named(changes, message):
  with pytest.raises(ValueError, match=message):
    jax.eval_shape(_sampler(**changes), _params(), _prompts(), jax.random.key(0), 0)
