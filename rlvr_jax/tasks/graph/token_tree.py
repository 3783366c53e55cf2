"""A tree of tokens small enough to enumerate: every completion is a leaf with a known reward.

  prompt      A                        which tree
  completion  0210                     `depth` branches; token i is branch i, for i < branching

Every expectation over completions is then a finite sum: `token_tree_exact` has them, as oracles of estimators.

There is no stop token to emit: completions have a fixed length, so the verifier reads the first `depth` action tokens
and what follows them is not read. `stop_id` is a legal id that ends nothing a reward depends on; among the first
`depth` tokens it makes the completion unparsable, as any id that is not a branch. The sampler counts completions as
truncated (they end at the length limit), so do not mask truncated rows here.

Held-out ids name trees of their own, which have nothing in common with the train trees: no policy can do better there
than by chance. Evaluate on train ids to see what was learnt. Train trees depend on the seed, held-out ones do not.
"""

import random
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from rlvr_jax.tasks.graph import tokens as tk
from rlvr_jax.tasks.graph.types import GraphTask, GraphVerdict
from rlvr_jax.tasks.types import EVAL_ID, derived_seed

TREES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAX_LEAVES = 2**16


class Tree(NamedTuple):
  tree: Any  # Int[""]           train trees come first
  rewards: Any  # Float["leaves"]  in the order of the completions read as numbers in base `branching`


def token_tree(
  *, branching: int = 3, depth: int = 4, num_right: int | None = 8, num_prompts: int = 1, seed: int = 0
) -> GraphTask:
  """`num_prompts` train trees and as many held-out ones; ids go round the trees of their side.

  Demonstration: the first leaf with the highest reward, which is 1. Difficulty: 1 - mean reward of a uniform policy,
  the same for every tree. `answer_id` is the number of the leaf.

  Args:
    num_right: leaves that earn 1, at random places, the others earn 0; None: all leaves differ, in steps of
               1 / (leaves - 1) from 0 to 1, so that rewards are graded.

  Raises: ValueError for numbers out of range.
  """
  tk.check_size("branching", branching, 2, len(tk.DIGITS))
  tk.check_size("depth", depth, 1, 16)
  tk.check_size("num_prompts", num_prompts, 1, len(TREES) // 2)
  leaves = branching**depth
  tk.check_size("branching**depth", leaves, 2, MAX_LEAVES)
  if num_right is not None:
    tk.check_size("num_right", num_right, 1, leaves - 1)
  shape = (branching, depth, num_right)
  tables = [_table(shape, "train", seed, tree) for tree in range(num_prompts)]
  tables += [_table(shape, "eval", tree) for tree in range(num_prompts)]
  rewards = jnp.array(tables, jnp.float32)
  symbols, pad_id, stop_id = tk.vocabulary(tk.DIGITS[:branching] + TREES[: 2 * num_prompts])
  places = jnp.array([branching**place for place in reversed(range(depth))])

  def problem(prompt_id: Int[Array, ""]) -> Tree:
    held_out = prompt_id >= EVAL_ID
    tree = jnp.where(held_out, num_prompts + (prompt_id - EVAL_ID) % num_prompts, prompt_id % num_prompts)
    return Tree(tree, rewards[tree])

  def verify(facts: Tree, tokens: Int[Array, "a"], mask: Bool[Array, "a"]) -> GraphVerdict:
    place = jnp.cumsum(mask) - 1
    read = mask & (place < depth)
    parsable = (jnp.sum(read) == depth) & jnp.all((tokens >= 0) & (tokens < branching) | ~read)
    leaf = jnp.sum(jnp.where(read & parsable, tokens * places[jnp.clip(place, 0, depth - 1)], 0))
    correct = jnp.where(parsable, facts.rewards[leaf], 0.0)
    return GraphVerdict(correct, parsable, jnp.where(parsable, leaf, -1))

  def demonstration(facts: Tree):
    return jnp.argmax(facts.rewards) // places % branching, jnp.ones(depth, bool)

  def host_verify(prompt: str, completion: str) -> float:
    text, legal = completion[:depth], tk.DIGITS[:branching]
    if len(text) < depth or any(symbol not in legal for symbol in text):
      return 0.0
    return tables[TREES.index(prompt)][int(text, branching)]

  return GraphTask(
    name="token_tree",
    symbols=symbols,
    pad_id=pad_id,
    stop_id=stop_id,
    prompt_tokens=1,
    max_new_tokens=depth,
    num_train=num_prompts,
    num_eval=num_prompts,
    problem=problem,
    prompt=lambda facts: (branching + facts.tree[None], jnp.ones(1, bool)),
    verify=verify,
    demonstration=demonstration,
    difficulty=lambda facts: 1.0 - jnp.mean(facts.rewards),
    host_verify=host_verify,
  )


def _table(shape: tuple, *stream) -> list[float]:
  """Rewards of the leaves of one tree."""
  branching, depth, num_right = shape
  leaves = branching**depth
  graded = [leaf / (leaves - 1) for leaf in range(leaves)]
  rewards = graded if num_right is None else [1.0] * num_right + [0.0] * (leaves - num_right)
  random.Random(derived_seed("token_tree", *shape, *stream)).shuffle(rewards)
  return rewards
