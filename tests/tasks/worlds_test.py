"""Worlds against plain-Python twins on random actions; plans, splits, and what a prompt may say."""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.tasks.graph.types import to_text
from rlvr_jax.tasks.types import EVAL_ID
from rlvr_jax.tasks.worlds import words
from rlvr_jax.tasks.worlds.guess_number import guess_number
from rlvr_jax.tasks.worlds.key_door import key_door
from rlvr_jax.tasks.worlds.key_value import key_value
from rlvr_jax.tasks.worlds.requests import requests


class KeyDoorTwin:
  """What a twin is: text in, text out. `act(None)` is an action that is not whole. `shortest` counts turns."""

  def __init__(self, facts, world):
    self.size = facts.walls.shape[0]
    self.walls = {(i, j) for i, j in np.argwhere(facts.walls)}
    self.at, self.key, self.door = (divmod(int(x), self.size) for x in (facts.start, facts.key, facts.door))
    self.holds = self.done = False
    self.shows = world.prompt_tokens == 13

  def near(self, at):
    return {name: (at[0] + i, at[1] + j) for name, i, j in (("N", -1, 0), ("E", 0, 1), ("S", 1, 0), ("W", 0, -1))}

  def free(self, at):
    return 0 <= at[0] < self.size and 0 <= at[1] < self.size and at not in self.walls

  def view(self):
    text = ("K" if self.holds else "-") + f"{self.at[0]}{self.at[1]}"
    for at in self.near(self.at).values():
      text += (
        "#" if not self.free(at) else "d" if at == self.door else "k" if at == self.key and not self.holds else "."
      )
    return text

  def prompt(self):
    goals = f"k{self.key[0]}{self.key[1]}d{self.door[0]}{self.door[1]}"
    return (goals if self.shows else "") + self.view()

  def act(self, action):
    if action not in ("N", "E", "S", "W"):
      return "?", 0
    target = self.near(self.at)[action]
    if self.free(target):
      self.at = target
    self.holds |= self.at == self.key
    self.done = self.holds and self.at == self.door
    return self.view(), float(self.done)

  def ways(self, start, goal):
    depth, ring, seen = 0, {start}, {start}
    while goal not in ring:
      ring = {b for a in ring for b in self.near(a).values() if self.free(b)} - seen
      seen |= ring
      depth += 1
    return depth

  def shortest(self):
    return self.ways(self.at, self.key) + self.ways(self.key, self.door)


class GuessNumberTwin:
  def __init__(self, facts, world):
    self.low, self.high, self.number = map(int, facts)
    self.limit, self.done = 10 ** (world.action_tokens - 1) if world.action_tokens < 3 else 16, False

  def prompt(self):
    return f"{self.low}-{self.high}"

  def act(self, action):
    if action is None or not re.fullmatch(r"\d{1,2}", action) or int(action) >= self.limit:
      return "?", 0
    self.done = int(action) == self.number
    return ("=" if self.done else "<" if self.number < int(action) else ">"), float(self.done)

  def shortest(self):
    """Guesses of a bisection that rounds down."""
    low, high = self.low, self.high
    for count in itertools.count(1):
      guess = (low + high) // 2
      if guess == self.number:
        return count
      low, high = (guess + 1, high) if guess < self.number else (low, guess - 1)


class KeyValueTwin:
  def __init__(self, facts, world):
    letters = ["abcdefghijklmnopqrstuvwxyz"[i] for i in facts.chain]
    self.start, self.table = letters[0], dict(zip(letters, letters[1:] + letters[:1]))
    self.hops, self.done = world.max_turns - 3, False

  def prompt(self):
    return "".join(sorted(self.table)) + ":" + self.start

  def act(self, action):
    if action is not None and re.fullmatch("=[a-z]", action) and action[1] in self.table:
      self.done, value = True, self.start
      for _ in range(self.hops):
        value = self.table[value]
      return "", float(value == action[1])
    return self.table.get(action, "?"), 0

  def shortest(self):
    return self.hops + 1


class RequestsTwin:
  def __init__(self, facts, world):
    signs = [s for s in world.symbols if s in "+-*"]
    self.sums = [f"{a}{signs[o]}{b}" for a, b, o in zip(facts.left, facts.right, facts.operator)]
    self.answered, self.done, self.width = 0, False, world.action_tokens - 1

  def prompt(self):
    return ";".join(self.sums) + ";1"

  def act(self, action):
    legal = action is not None and re.fullmatch(rf"\d{{1,{self.width}}}", action)
    reward = (int(action) == eval(self.sums[self.answered])) / len(self.sums) if legal else 0
    self.answered += 1
    self.done = self.answered == len(self.sums)
    return ("" if self.done else f"{'' if legal else '?'}{self.answered + 1}"), reward

  def shortest(self):
    return len(self.sums)


SIZES = dict(num_train=96, num_eval=32)
WORLDS = {
  "key_door": (functools.partial(key_door, num_walls=3, **SIZES), KeyDoorTwin, "NESW"),
  "key_door_hidden": (functools.partial(key_door, show_goals=False, **SIZES), KeyDoorTwin, "NESW"),
  "guess_number": (functools.partial(guess_number, **SIZES), GuessNumberTwin, "0123456789"),
  "key_value": (functools.partial(key_value, **SIZES), KeyValueTwin, "abcdefghijklmnopqrstuvwxyz="),
  "requests": (functools.partial(requests, operators="+-*", **SIZES), RequestsTwin, "0123456789"),
}
every_world = pytest.mark.parametrize("name", WORLDS)


@functools.cache
def _made(name):
  """A world, the ids of all its problems, their facts, and their prompts as text."""
  world = WORLDS[name][0]()
  ids = np.r_[np.arange(world.num_train), EVAL_ID + np.arange(world.num_eval)]
  problem = lambda i: (facts := world.problem(i), world.prompt(facts))
  facts, (tokens, mask) = jax.jit(jax.vmap(problem))(ids)
  assert tokens.shape == mask.shape == (128, world.prompt_tokens)
  prompts = [to_text(world, t, m) for t, m in zip(np.asarray(tokens), np.asarray(mask))]
  return world, jax.tree.map(np.asarray, facts), prompts


def _twins(name):
  world, facts, _ = _made(name)
  rows = [type(facts)(*row) for row in zip(*facts)]
  return [WORLDS[name][1](row, world) for row in rows]


def _random_actions(world, alphabet, rng, num_turns):
  """Half noise over all symbols with a mask of any kind, half one or two sensible symbols and a stop."""
  shape = (128, num_turns, world.action_tokens)
  tokens = rng.integers(0, len(world.symbols), shape)
  mask = np.arange(shape[2])[None, None] < rng.integers(0, shape[2] + 1, shape[:2])[..., None]
  mask = np.where(rng.random(shape[:2])[..., None] < 0.2, rng.random(shape) < 0.5, mask)
  for i, j in np.argwhere(rng.random(shape[:2]) < 0.6):
    text = "".join(rng.choice(list(alphabet), rng.integers(1, shape[2])))
    text = "=" + text[0] if "=" in alphabet and rng.random() < 0.4 else text
    tokens[i, j, : len(text) + 1] = [world.symbols.index(s) for s in text] + [world.stop_id]
    mask[i, j] = np.arange(shape[2]) <= len(text)
  return tokens.astype(np.int32), mask


def _said(world, tokens, mask):
  """The text of an action, or None where its last token is not its only stop token."""
  kept = [world.symbols[t] for t, m in zip(tokens, mask) if m]
  return "".join(kept[:-1]) if kept.count("<stop>") == 1 and kept[-1] == "<stop>" else None


@functools.cache
def _played(name):
  """Steps of every problem under random actions for long enough to outlive the end, as arrays [128 turns ...]."""
  world, facts, _ = _made(name)
  actions = _random_actions(world, WORLDS[name][2], np.random.default_rng(0), 24)

  def play(facts, actions):
    def step(state, action):
      found = world.step(facts, state, *action)
      return found.state, found

    return jax.lax.scan(step, world.reset(facts), actions)[1]

  return actions, jax.tree.map(np.asarray, jax.jit(jax.vmap(play))(facts, actions))


@every_world
def test_random_actions_do_what_they_do_in_the_twin(name):
  world, _, prompts = _made(name)
  (tokens, mask), found = _played(name)
  assert found.observation.shape == found.mask.shape == (128, 24, world.observation_tokens)
  assert found.reward.dtype == np.float32
  live, legal, ended = 0, 0, 0
  for i, twin in enumerate(_twins(name)):
    assert prompts[i] == twin.prompt()
    for t in range(24):
      if twin.done:  # absorbing: whatever is said, nothing happens
        assert not found.mask[i, t].any() and found.reward[i, t] == 0 and found.done[i, t]
        for leaf in jax.tree.leaves(found.state):
          np.testing.assert_array_equal(leaf[i, t], leaf[i, t - 1])
        continue
      action = _said(world, tokens[i, t], mask[i, t])
      observation, reward = twin.act(action)
      assert to_text(world, found.observation[i, t], found.mask[i, t]) == observation, (i, t, action)
      assert found.reward[i, t] == pytest.approx(reward) and found.done[i, t] == twin.done
      live, legal, ended = live + 1, legal + ("?" not in observation), ended + twin.done
  assert legal > 100 and live - legal > 30 and ended > 4


def test_more_than_two_thousand_random_actions_were_played():
  assert all(_played(name)[0][0].shape[0] * 24 >= 2000 for name in WORLDS)


@functools.cache
def _planned(name):
  """What the plan says in every turn of every problem, and what comes of it; and the hint."""
  world, facts, _ = _made(name)

  def play(facts):
    def step(state, _):
      action = world.plan(facts, state)
      found = world.step(facts, state, *action)
      return found.state, (action, found.reward, found.done)

    return jax.lax.scan(step, world.reset(facts), None, length=world.max_turns)[1], world.hint(facts)

  return jax.tree.map(np.asarray, jax.jit(jax.vmap(play))(facts))


@every_world
def test_the_plan_solves_every_problem_in_as_many_turns_as_are_needed(name):
  world, _, _ = _made(name)
  ((tokens, mask), reward, done), _ = _planned(name)
  assert tokens.shape == mask.shape and tokens.shape[2] <= world.action_tokens
  np.testing.assert_allclose(reward.sum(1), 1, rtol=1e-6)
  assert done[:, -1].all()
  for i, twin in enumerate(_twins(name)):
    needed = twin.shortest()
    assert mask[i].any(1).sum() == needed == np.argmax(done[i]) + 1
    rewards = [twin.act(_said(world, tokens[i, t], mask[i, t]))[1] for t in range(needed)]
    np.testing.assert_allclose(rewards, reward[i, :needed], rtol=1e-6)


@every_world
def test_hints(name):
  """Read by the twin: the way to go, the number, the chain, or the values."""
  world, _, _ = _made(name)
  _, (tokens, mask) = _planned(name)
  for i, twin in enumerate(_twins(name)):
    hint = to_text(world, tokens[i], mask[i])
    if isinstance(twin, KeyDoorTwin):
      assert len(hint) == twin.shortest() and [twin.act(move)[1] for move in hint][-1] == 1
    elif isinstance(twin, GuessNumberTwin):
      assert twin.act(hint) == ("=", 1)
    elif isinstance(twin, KeyValueTwin):
      assert all(twin.table[a] == b for a, b in zip(hint, hint[1:])) and twin.act("=" + hint[-1])[1] == 1
    else:
      assert [int(value) for value in hint.split(";")[:-1]] == [eval(text) for text in twin.sums]


@every_world
def test_no_train_prompt_is_held_out(name):
  world, facts, prompts = _made(name)
  train, held_out = set(prompts[: world.num_train]), set(prompts[world.num_train :])
  assert not train & held_out
  assert len(train) > 20 and len(held_out) > 4


def test_the_seed_moves_the_train_problems_alone():
  world, facts, _ = _made("guess_number")
  other = WORLDS["guess_number"][0](seed=1)
  ids = np.r_[np.arange(96), EVAL_ID + np.arange(32)]
  again = jax.jit(jax.vmap(other.problem))(ids)
  same = np.all([a == b for a, b in zip(facts, again)], axis=0)
  assert same[96:].all() and same[:96].sum() < 10


def test_what_is_a_number_and_what_is_not():
  zero, stop, gap = 2, words.STOP_ID, -1
  digit = lambda d: zero + d
  numbers = [(digit(7), stop), (digit(0), digit(7), stop), (gap, digit(7), stop), (digit(1), gap, digit(2), stop)]
  # nothing, only a stop, no stop, two stops, a stop too early, too many digits, symbols that are no digits
  others = [
    (), (stop,), (digit(7),), (digit(7), stop, stop), (stop, digit(7)), (digit(1), digit(2), digit(3), stop),
    (digit(10), stop), (0, stop),
  ]  # fmt: skip
  rows = jnp.asarray([[*row, *[gap] * (4 - len(row))] for row in numbers + others])
  read = lambda row: (words.read_number(row, row != gap, 2, zero), words.read_action(row, row != gap, 2)[2])
  number, whole = jax.jit(jax.vmap(read))(rows)
  assert number.tolist() == [7, 7, 7, 12] + [-1] * len(others)
  assert whole.tolist() == [True] * 4 + [False, True, False, False, False, True, True, True]


@pytest.mark.parametrize(
  "make, message",
  [
    (lambda: key_door(size=2), "key_door: size must be >= 3 and <= 10, got 2"),
    (lambda: key_door(num_walls=5), "num_walls must be >= 0 and <= 4, got 5"),
    (lambda: guess_number(limit=4), "guess_number: limit must be >= 8 and <= 1000, got 4"),
    (lambda: key_value(num_hops=8), "key_value: num_hops must be >= 1 and <= 7, got 8"),
    (lambda: key_value(max_turns=2), "key_value: max_turns must be >= 3, got 2"),
    (lambda: key_value(num_eval=0), "key_value: num_eval must be >= 1"),
    (lambda: requests(operators="+/"), r"operators must be some of \+-\*, each once, got '\+/'"),
  ],
)
def test_settings_out_of_range_are_named(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_a_split_without_problems_is_refused():
  prompt = lambda facts: (jnp.asarray([1, 2]), jnp.ones(2, bool))
  with pytest.raises(
    ValueError, match="maze: (0|1024) of 1024 drawn prompts are held out with {'size': 1}: there are too"
  ):
    words.check_split("maze", lambda key: None, prompt, dict(size=1))


def test_builders_work_while_something_is_traced():
  assert jax.eval_shape(lambda i: guess_number(**SIZES).problem(i), jnp.int32(3)).number.shape == ()
