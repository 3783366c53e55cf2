"""What a graph task is: prompts, demonstrations and verdicts as array code, so that a whole run is one program.

Every function is of ONE problem or completion, from arrays to arrays of static shape; `prompts`, `demonstrations` and
`verify` map them over a batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from rlvr_jax.core import PyTree, Rollout
from rlvr_jax.tasks.types import EVAL_ID

EVAL_FRACTION = 0.125  # of all problems, by the hash of the prompt's tokens


class GraphVerdict(NamedTuple):
  """What a completion earns. `error` cannot happen: the verifier is a total function of the tokens."""

  correct: Any  # Float32[""] in [0, 1]
  parsable: Any  # Bool[""]     an answer could be read
  answer_id: Any  # Int32[""]    equal answers to a problem have equal ids, others other ids; -1: none could be read


class GraphTask(NamedTuple):
  """Problems numbered by `prompt_id`: train ones from 0, held-out ones from `EVAL_ID`.

  Which side a problem is on is decided by the hash of its prompt alone, so no train prompt is ever a held-out one.
  """

  name: str
  symbols: tuple[str, ...]  # text of each token id; one character each, but for the special ones
  pad_id: int
  stop_id: int  # ends every completion and counts as an action
  prompt_tokens: int  # l: width of a prompt
  max_new_tokens: int  # a: the longest sensible completion, its stop token included
  num_train: int
  num_eval: int
  problem: Callable[[Int[Array, ""]], PyTree]  # prompt_id -> facts
  prompt: Callable[[PyTree], tuple[Any, Any]]  # facts -> tokens Int["l"], mask Bool["l"]
  verify: Callable[[PyTree, Any, Any], GraphVerdict]  # facts, completion Int["a"], mask Bool["a"]; any width a
  demonstration: Callable[[PyTree], tuple[Any, Any]] | None  # facts -> Int["a"], Bool["a"], its stop token included
  difficulty: Callable[[PyTree], Any]  # facts -> Float[""]: more is harder; compares problems of one task
  host_verify: Callable[[str, str], float]  # (prompt, completion) as text -> correct; plain Python, an oracle


def draw_split(
  seed: int, prompt_id: Int[Array, ""], draw: Callable[[Key[Array, ""]], PyTree], prompt: Callable
) -> PyTree:
  """The facts of problem `prompt_id`: the first of its draws whose prompt's hash is on the id's side of the split.

  Held-out problems do not depend on `seed`, so runs that differ in it share their held-out set. Loops without end
  where a side has no problem at all; builders check that there are enough.
  """
  held_out = prompt_id >= EVAL_ID
  key = jax.random.fold_in(jax.random.key(jnp.where(held_out, 0, seed)), prompt_id)

  def again(carry):
    count, _, _ = carry
    facts = draw(jax.random.fold_in(key, count))
    return count + 1, facts, is_held_out(*prompt(facts)) != held_out

  # From zeros on the wrong side, so that the draw is traced and compiled once.
  nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(draw, key))
  return jax.lax.while_loop(lambda carry: carry[2], again, (jnp.int32(0), nothing, jnp.array(True)))[1]


def is_held_out(tokens: Int[Array, "l"], mask: Bool[Array, "l"], fraction: float = EVAL_FRACTION) -> Bool[Array, ""]:
  """Whether a prompt belongs to the held-out split, by a hash of its real tokens in order."""
  return hash_tokens(tokens, mask) < jnp.uint32(int(fraction * 2**32))


def hash_tokens(tokens: Int[Array, "t"], mask: Bool[Array, "t"]) -> Any:
  """UInt32[""] of the tokens where `mask`, in order; padding anywhere changes nothing."""

  def mix(state, token_and_mask):
    token, keep = token_and_mask
    x = (state ^ (token.astype(jnp.uint32) + jnp.uint32(0x9E3779B9))) * jnp.uint32(0x85EBCA6B)
    return jnp.where(keep, x ^ (x >> 15), state), None

  state, _ = jax.lax.scan(mix, jnp.uint32(2166136261), (tokens, mask))
  state = (state ^ (state >> 16)) * jnp.uint32(0xC2B2AE35)
  return state ^ (state >> 13)


def prompts(task: GraphTask, prompt_id: Int[Array, "p"]) -> tuple[Int[Array, "p l"], Bool[Array, "p l"]]:
  """Tokens and mask of each problem."""
  return jax.vmap(lambda i: task.prompt(task.problem(i)))(prompt_id)


def demonstrations(task: GraphTask, prompt_id: Int[Array, "p"]) -> tuple[Int[Array, "p a"], Bool[Array, "p a"]]:
  """A right completion of each problem, with its stop token. Raises ValueError where the task has none."""
  if task.demonstration is None:
    raise ValueError(f"task {task.name!r} has no demonstrations")
  return jax.vmap(lambda i: task.demonstration(task.problem(i)))(prompt_id)


def verify(task: GraphTask, rollout: Rollout) -> GraphVerdict:
  """A verdict for each row, of its action tokens alone: what is in the prompt or an observation earns nothing."""
  tokens, mask = rollout.tokens[:, rollout.first_action :], rollout.action_mask[:, rollout.first_action :]
  return jax.vmap(lambda i, y, m: task.verify(task.problem(i), y, m))(rollout.prompt_id, tokens, mask)


def to_text(task: Any, tokens: Any, mask: Any) -> str:
  """One row of tokens as text, its stop token left out. For the host: `tokens` and `mask` are concrete."""
  kept = [int(token) for token, keep in zip(tokens, mask) if keep]
  return "".join(task.symbols[token] for token in kept if token != task.stop_id)
