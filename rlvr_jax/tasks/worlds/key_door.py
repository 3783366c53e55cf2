"""A grid in which the agent fetches a key and takes it to a door.

  action:       one of N E S W, then stop
  observation:  K or - (has the key), row, column, then what is N, E, S and W of it: # . k d; or ? for no legal action
  prompt:       k row column d row column (unless show_goals=False), then the opening observation
  reward:       1 on reaching the door with the key, which ends it; else 0

Walls and the edge stop a move; a turn passes all the same. Stepping on the key takes it. Without it the door is floor.

Args: walls are never in the prompt, only seen from next to them. show_goals=False hides key and door until seen, so
  that they must be searched. Only problems that can be solved in `max_turns` are drawn; None is 4 * size.
Ref:  after Minigrid's DoorKey, Chevalier-Boisvert et al., arXiv:2306.13831.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from rlvr_jax.core import check_number
from rlvr_jax.tasks.graph.types import draw_split
from rlvr_jax.tasks.worlds import words
from rlvr_jax.tasks.worlds.types import World, WorldStep

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # N E S W, as (row, column)
FAR = 10_000  # more than any distance


class KeyDoorFacts(NamedTuple):
  """Cells are row * size + column."""

  start: Any  # Int[""]
  key: Any  # Int[""]
  door: Any  # Int[""]
  walls: Any  # Bool["size size"]


class KeyDoorState(NamedTuple):
  cell: Any  # Int[""]
  has_key: Any  # Bool[""]
  done: Any  # Bool[""]


def key_door(
  size: int = 4,
  num_walls: int = 0,
  show_goals: bool = True,
  max_turns: int | None = None,
  num_train: int = 4096,
  num_eval: int = 256,
  seed: int = 0,
) -> World:
  """Raises: ValueError for a size outside [3, 10], walls on more than a quarter of it, or fewer than 2 turns."""
  max_turns = 4 * size if max_turns is None else max_turns
  check_number("key_door: size", size, minimum=3, maximum=10)
  check_number("key_door: num_walls", num_walls, minimum=0, maximum=size * size // 4)
  check_number("key_door: max_turns", max_turns, minimum=2)
  words.check_counts("key_door", num_train, num_eval)
  symbols = (*words.SPECIAL, *words.DIGITS[:size], *"NESW", *"#.kd", *"K-", "?")
  row_id, north_id, wall_id = (symbols.index(s) for s in "0N#")
  place = lambda cell: (row_id + cell // size, row_id + cell % size)

  def draw(key):
    return _draw(key, size, num_walls, max_turns)

  def view(facts, state):
    around = [wall_id + _seen(facts, state, *_neighbour(state.cell, move, size)) for move in MOVES]
    has_key = symbols.index("-") - state.has_key.astype(jnp.int32)
    return words.join(has_key, *place(state.cell), *around)

  def prompt(facts):
    goals = ("k", facts.key), ("d", facts.door)
    shown = [t for name, cell in goals for t in (symbols.index(name), *place(cell))] if show_goals else []
    return words.join(*shown, view(facts, reset(facts)))

  def reset(facts):
    return KeyDoorState(facts.start, jnp.zeros((), bool), jnp.zeros((), bool))

  def step(facts, state, tokens, mask):
    content, length, whole = words.read_action(tokens, mask, 1)
    move = content[0] - north_id
    legal = whole & (length == 1) & (move >= 0) & (move < 4)
    row, column, inside = _neighbour(state.cell, jnp.asarray(MOVES)[jnp.clip(move, 0, 3)], size)
    moves = legal & inside & ~facts.walls[row, column] & ~state.done
    cell = jnp.where(moves, row * size + column, state.cell)
    has_key = state.has_key | (cell == facts.key)
    arrives = ~state.done & has_key & (cell == facts.door)
    after = KeyDoorState(cell, has_key, state.done | arrives)
    observation = words.where(legal, view(facts, after), words.join(symbols.index("?")))
    return WorldStep(after, *words.say_if(~state.done, observation), arrives.astype(jnp.float32), after.done)

  def plan(facts, state):
    field = distances(facts.walls, jnp.where(state.has_key, facts.door, facts.key))
    ahead = [_neighbour(state.cell, move, size) for move in MOVES]
    distance = jnp.stack([jnp.where(inside, field[row, column], FAR) for row, column, inside in ahead])
    return words.say_if(~state.done, words.join(north_id + jnp.argmin(distance), words.STOP_ID))

  def hint(facts):
    def advance(state, _):
      tokens, mask = plan(facts, state)
      return step(facts, state, tokens, mask).state, (tokens[0], mask[0])

    return jax.lax.scan(advance, reset(facts), None, length=max_turns)[1]

  words.check_split("key_door", draw, prompt, dict(size=size, num_walls=num_walls, show_goals=show_goals))
  return World(
    name="key_door", symbols=symbols, pad_id=words.PAD_ID, stop_id=words.STOP_ID,
    prompt_tokens=7 + 6 * show_goals, max_turns=max_turns, action_tokens=2, observation_tokens=7,
    num_train=num_train, num_eval=num_eval,
    problem=lambda prompt_id: draw_split(seed, prompt_id, draw, prompt),
    prompt=prompt, reset=reset, step=step, plan=plan, hint=hint,
  )  # fmt: skip


def _draw(key, size, num_walls, max_turns) -> KeyDoorFacts:
  """The first of many shuffled grids that can be solved within `max_turns`."""

  def shuffled(carry):
    count, _ = carry
    cells = jax.lax.top_k(jax.random.uniform(jax.random.fold_in(key, count), (size * size,)), 3 + num_walls)[1]
    walls = jnp.zeros((size * size,), bool).at[cells[3:]].set(True).reshape(size, size)
    return count + 1, KeyDoorFacts(cells[0], cells[1], cells[2], walls)

  def too_long(carry):
    facts = carry[1]
    to_key, to_door = (distances(facts.walls, goal).ravel() for goal in (facts.key, facts.door))
    return to_key[facts.start] + to_door[facts.key] > max_turns

  first = shuffled((jnp.int32(0), None))
  always_solvable = num_walls == 0 and max_turns >= 4 * (size - 1)
  return first[1] if always_solvable else jax.lax.while_loop(too_long, shuffled, first)[1]


def distances(walls: Bool[Array, "size size"], target: Int[Array, ""]) -> Int[Array, "size size"]:
  """Moves from each cell to `target`, walls in the way; `FAR` or more where there is no way."""
  size = walls.shape[0]
  at_target = (jnp.arange(size * size) == target).reshape(size, size)

  def relax(_, field):
    padded = jnp.pad(field, 1, constant_values=FAR)
    around = [padded[1 + i : 1 + i + size, 1 + j : 1 + j + size] for i, j in MOVES]
    nearest = jnp.minimum(jnp.minimum(around[0], around[1]), jnp.minimum(around[2], around[3]))
    return jnp.where(walls, FAR, jnp.minimum(field, jnp.minimum(nearest + 1, FAR)))

  return jax.lax.fori_loop(0, size * size, relax, jnp.where(at_target, 0, FAR))


def _neighbour(cell, move, size):
  """Row and column of the cell after a move, kept on the grid, and whether it is on it."""
  row, column = cell // size + move[0], cell % size + move[1]
  inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
  return jnp.clip(row, 0, size - 1), jnp.clip(column, 0, size - 1), inside


def _seen(facts, state, row, column, inside):
  """What a neighbour looks like: 0 wall, 1 floor, 2 the key while it lies there, 3 the door."""
  cell = row * facts.walls.shape[0] + column
  floor = jnp.where(cell == facts.door, 3, jnp.where((cell == facts.key) & ~state.has_key, 2, 1))
  return jnp.where(inside & ~facts.walls[row, column], floor, 0)
