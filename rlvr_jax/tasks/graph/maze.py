"""Find a way through a maze: moves in a grid with walls, from a start to a goal.

  prompt      S.#./..../.##./...G/     rows from the top, each closed by `/`; `#` wall, `.` free, `S` start, `G` goal
  completion  DDDRRR                   up, down, left, right, then the stop token

Right if the walk never leaves the grid, never enters a wall and ends on the goal, which it may have crossed before.
Every maze can be solved: the start is drawn among the cells from which the goal is reached.
"""

from collections import deque
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from rlvr_jax.core import check_number
from rlvr_jax.tasks.graph import tokens as tk
from rlvr_jax.tasks.graph.types import GraphTask, GraphVerdict, draw_split

SYMBOLS, PAD, STOP = tk.vocabulary("UDLR#.SG/")
WALL, FREE, START, GOAL, ROW = (SYMBOLS.index(symbol) for symbol in "#.SG/")  # tokens 0..3 are the moves
DELTAS = ((-1, 0), (1, 0), (0, -1), (0, 1))  # (row, column) of U, D, L, R


class Maze(NamedTuple):
  walls: Any  # Bool["s s"]
  start: Any  # Int["2"]   row and column
  goal: Any  # Int["2"]
  distance: Any  # Int["s s"] moves from each cell to the goal; s * s where there is no way


def maze(
  *,
  size: int = 4,
  wall_fraction: float = 0.3,
  shortest: bool = False,
  num_train: int = 4096,
  num_eval: int = 256,
  seed: int = 0,
) -> GraphTask:
  """Mazes of `size` by `size` cells. Difficulty: moves on a shortest way.

  The demonstration is the shortest way that is first in the order U, D, L, R. Two different walks share an
  `answer_id` with probability 2**-31: it is a hash of the moves. `max_new_tokens` holds every walk that visits no
  cell twice.

  Args:
    wall_fraction: chance that a cell is a wall; one neighbour of the goal is always free.
    shortest:      only a shortest way is right.

  Raises: ValueError for numbers out of range.
  """
  tk.check_size("size", size, 3)
  check_number("wall_fraction", wall_fraction, minimum=0.0, maximum=0.7)
  tk.check_splits("maze", size**2 * 2 ** (size**2 - 2), num_train, num_eval)

  def draw(key):
    return _draw(key, size, wall_fraction)

  def verify(facts: Maze, tokens: Int[Array, "a"], mask: Bool[Array, "a"]) -> GraphVerdict:
    return _verify(facts, tokens, mask, shortest)

  def host_verify(prompt: str, completion: str) -> float:
    return _host_verify(prompt, completion, shortest)

  return GraphTask(
    name="maze",
    symbols=SYMBOLS,
    pad_id=PAD,
    stop_id=STOP,
    prompt_tokens=size * (size + 1),
    max_new_tokens=size * size,
    num_train=num_train,
    num_eval=num_eval,
    problem=lambda prompt_id: draw_split(seed, prompt_id, draw, _prompt),
    prompt=_prompt,
    verify=verify,
    demonstration=_demonstration,
    difficulty=lambda facts: facts.distance[tuple(facts.start)].astype(jnp.float32),
    host_verify=host_verify,
  )


def _draw(key, size: int, wall_fraction) -> Maze:
  num_cells = size * size
  uniform = jax.random.uniform(key, (2 * num_cells + 2,))  # one draw for all: random bits are slow to compile
  walls = uniform[:num_cells].reshape(size, size) < wall_fraction
  goal = jnp.stack(jnp.divmod((uniform[-1] * num_cells).astype(jnp.int32), size))
  delta = jnp.array(DELTAS)[(uniform[-2] * 4).astype(jnp.int32)]
  beside = goal + delta
  beside = jnp.where(jnp.all((beside >= 0) & (beside < size)), beside, goal - delta)
  walls = walls.at[tuple(goal)].set(False).at[tuple(beside)].set(False)
  distance = _distances(walls, goal)
  solvable = (distance > 0) & (distance < num_cells)
  start = jnp.argmax(jnp.where(solvable.reshape(-1), uniform[num_cells:-2], -1.0))
  return Maze(walls, jnp.stack([start // size, start % size]), goal, distance)


def _beside(distance):
  """Int["4 s s"]: the distance of the neighbour that each move leads to."""
  size = distance.shape[0]
  padded = jnp.pad(distance, 1, constant_values=size * size)
  return jnp.stack([padded[1 + row : 1 + row + size, 1 + col : 1 + col + size] for row, col in DELTAS])


def _distances(walls, goal):
  """Breadth-first search as relaxations of the whole grid, until nothing changes."""
  far = walls.size

  def relax(carry):
    before, _ = carry
    after = jnp.where(walls, far, jnp.minimum(before, jnp.min(_beside(before), axis=0) + 1))
    return after, jnp.any(after != before)

  first = jnp.full(walls.shape, far, jnp.int32).at[tuple(goal)].set(0)
  return jax.lax.while_loop(lambda carry: carry[1], relax, (first, jnp.bool_(True)))[0]


def _prompt(facts: Maze):
  cells = jnp.where(facts.walls, WALL, FREE).at[tuple(facts.start)].set(START).at[tuple(facts.goal)].set(GOAL)
  tokens = jnp.pad(cells, ((0, 0), (0, 1)), constant_values=ROW).reshape(-1)
  return tokens, jnp.ones(tokens.shape, bool)


def _demonstration(facts: Maze):
  size = facts.walls.shape[0]
  best = jnp.argmin(_beside(facts.distance), axis=0)
  deltas = jnp.array(DELTAS)

  def step(cell, _):
    move = best[tuple(cell)]
    return jnp.where(facts.distance[tuple(cell)] > 0, cell + deltas[move], cell), move

  _, moves = jax.lax.scan(step, facts.start, length=size * size)
  index, length = jnp.arange(size * size), facts.distance[tuple(facts.start)]
  tokens = jnp.where(index < length, moves, jnp.where(index == length, STOP, PAD))
  return tokens, index <= length


def _verify(facts: Maze, tokens, mask, shortest: bool) -> GraphVerdict:
  size = facts.walls.shape[0]
  inside, ended = tk.body(tokens, mask, STOP)
  is_move = inside & (tokens >= 0) & (tokens < 4)
  parsable = ended & jnp.any(inside) & jnp.all(is_move | ~inside)
  deltas = jnp.where(is_move[:, None], jnp.array(DELTAS)[jnp.clip(tokens, 0, 3)], 0)
  cells = facts.start[None] + jnp.cumsum(deltas, axis=0)
  on_grid = jnp.all((cells >= 0) & (cells < size), axis=1)
  row, column = jnp.clip(cells, 0, size - 1).T
  right = parsable & jnp.all(on_grid & ~facts.walls[row, column]) & jnp.all(cells[-1] == facts.goal)
  if shortest:
    right &= jnp.sum(inside) == facts.distance[tuple(facts.start)]
  answer_id = jnp.where(parsable, tk.sequence_id(tokens, inside), -1)
  return GraphVerdict(right.astype(jnp.float32), parsable, answer_id)


def _host_verify(prompt: str, completion: str, shortest: bool) -> float:
  cells = {(r, c): mark for r, row in enumerate(prompt.split("/")) for c, mark in enumerate(row) if mark != "#"}
  (start,) = (cell for cell, mark in cells.items() if mark == "S")
  (goal,) = (cell for cell, mark in cells.items() if mark == "G")
  steps = dict(U=(-1, 0), D=(1, 0), L=(0, -1), R=(0, 1))
  here = start
  for symbol in completion:
    if symbol not in steps:
      return 0.0
    here = (here[0] + steps[symbol][0], here[1] + steps[symbol][1])
    if here not in cells:
      return 0.0
  if here != goal:
    return 0.0
  return float(not shortest or len(completion) == _host_distance(cells, start, goal))


def _host_distance(cells, start, goal) -> int:
  queue, seen = deque([(start, 0)]), {start}
  while queue:
    (r, c), moves = queue.popleft()
    if (r, c) == goal:
      return moves
    for cell in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
      if cell in cells and cell not in seen:
        seen.add(cell)
        queue.append((cell, moves + 1))
  raise ValueError("the maze has no way from S to G")
