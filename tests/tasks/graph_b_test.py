"""Mazes, token trees, filler chains, multiple choice: graph and host verifiers agree, problems are what they say."""

import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.tasks.graph import token_tree_exact as exact
from rlvr_jax.tasks.graph.choice import multiple_choice
from rlvr_jax.tasks.graph.filler import FillerChain, filler_chain
from rlvr_jax.tasks.graph.maze import maze
from rlvr_jax.tasks.graph.token_tree import token_tree
from rlvr_jax.tasks.graph.types import to_text
from rlvr_jax.tasks.types import EVAL_ID

NUM_PROBLEMS, PER_PROBLEM = 2000, 5  # half of the problems are held out; 10,000 completions
TASKS = {
  "maze": maze(),
  "maze_shortest": maze(size=3, shortest=True, seed=3),
  "filler": filler_chain(num_decisions=3, num_filler=2, modulus=5),
  "filler_strict": filler_chain(num_decisions=2, num_filler=2, strict=True),
  "choice": multiple_choice(),
  "open": multiple_choice(form="open", modulus=12, working=True),
  "tree": token_tree(num_prompts=3),
  "tree_graded": token_tree(branching=2, depth=3, num_right=None),
}
# What of a completion's text is the answer: equal answers have equal ids, others other ids.
ANSWERS = {
  "maze": str,
  "filler": lambda text: text[::3],
  "filler_strict": str,
  "choice": lambda text: text.rpartition(";")[2],
  "open": lambda text: int(text.rpartition(";")[2]),
  "tree": lambda text: text[:4],
  "tree_graded": lambda text: text[:3],
}
ANSWERS["maze_shortest"] = str


def ids_of(num: int) -> jax.Array:
  return jnp.concatenate([jnp.arange(num // 2), EVAL_ID + jnp.arange(num // 2)])


@functools.cache
def problems(name: str):
  """Facts, and as numpy arrays: prompts, demonstrations, difficulties."""
  task = TASKS[name]

  def of_id(prompt_id):
    facts = task.problem(prompt_id)
    return facts, task.prompt(facts), task.demonstration(facts), task.difficulty(facts)

  facts, *rest = jax.jit(jax.vmap(of_id))(ids_of(NUM_PROBLEMS))
  return facts, *jax.tree.map(np.asarray, rest)


@functools.cache
def completions(name: str) -> list[list[int]]:
  """Of each problem: its demonstration, two mutations of it, a random string, another problem's demonstration."""
  task, rng = TASKS[name], np.random.default_rng(0)
  tokens, mask = problems(name)[2]
  used = np.setdiff1d(np.unique(tokens[mask]), [task.stop_id])
  every = np.arange(len(task.symbols))
  rows = []
  for demonstration in (list(row[keep]) for row, keep in zip(tokens, mask)):
    rows.append(demonstration)
    for _ in range(2):
      row, place = list(demonstration), rng.integers(len(demonstration))
      row[place : place + rng.integers(2)] = rng.choice(used if rng.random() < 0.8 else every, rng.integers(3))
      rows.append(row)
    length = len(demonstration) - 1 if rng.random() < 0.7 else rng.integers(task.max_new_tokens + 2)
    rows.append([*rng.choice(used if rng.random() < 0.8 else every, length), *[task.stop_id] * (rng.random() < 0.9)])
    other = rng.integers(len(tokens))
    rows.append(list(tokens[other][mask[other]]))
  return rows


def laid_out(task, rows, width: int, rng) -> tuple[np.ndarray, np.ndarray]:
  """Rows in arrays, with gaps anywhere that hold any token, stop tokens too."""
  tokens = rng.integers(len(task.symbols), size=(len(rows), width))
  mask = np.zeros(tokens.shape, bool)
  for i, row in enumerate(rows):
    places = np.sort(rng.permutation(width)[: len(row)])
    tokens[i, places], mask[i, places] = row, True
  return tokens, mask


@functools.cache
def verdicts(name: str, extra_width: int = 6):
  task, rows = TASKS[name], completions(name)
  tokens, mask = laid_out(task, rows, max(map(len, rows)) + extra_width, np.random.default_rng(extra_width))
  facts = jax.tree.map(lambda x: jnp.repeat(x, PER_PROBLEM, axis=0), problems(name)[0])
  return jax.tree.map(np.asarray, jax.jit(jax.vmap(task.verify))(facts, tokens, mask))


def prompt_texts(name: str) -> list[str]:
  return [to_text(TASKS[name], tokens, mask) for tokens, mask in zip(*problems(name)[1])]


def completion_texts(name: str) -> list[str]:
  return [to_text(TASKS[name], row, [True] * len(row)) for row in completions(name)]


def judge(task, facts, texts: list[str]):
  """Verdicts of completions of one problem that stop."""
  rows = [[*map(task.symbols.index, text), task.stop_id] for text in texts]
  laid = laid_out(task, rows, max(map(len, rows)), np.random.default_rng(0))
  return jax.tree.map(np.asarray, jax.jit(jax.vmap(task.verify, (None, 0, 0)))(facts, *laid))


def ends(name: str, row: list[int]) -> bool:
  task = TASKS[name]
  if name.startswith("tree"):
    return task.stop_id not in row[: task.max_new_tokens]
  return row.count(task.stop_id) == 1 and row[-1] == task.stop_id


@pytest.mark.parametrize("name", TASKS)
def test_graph_and_host_verifiers_agree(name):
  task, verdict = TASKS[name], verdicts(name)
  prompts = [text for text in prompt_texts(name) for _ in range(PER_PROBLEM)]
  wanted = [
    task.host_verify(prompt, text) if ends(name, row) else 0.0
    for prompt, text, row in zip(prompts, completion_texts(name), completions(name))
  ]
  np.testing.assert_allclose(verdict.correct, wanted, atol=1e-6)
  assert verdict.correct.dtype == np.float32 and verdict.parsable.dtype == bool and verdict.answer_id.dtype == np.int32
  assert len(wanted) == 10_000
  assert sum(np.array(wanted) == 1.0) >= 1000 and sum(np.array(wanted) < 1.0) >= 1000
  others = np.arange(10_000) % PER_PROBLEM > 0
  assert sum(verdict.correct[others] == 1.0) > 40  # not only demonstrations are right
  assert sum(verdict.parsable & (verdict.correct < 1.0)) > 300


@pytest.mark.parametrize("name", TASKS)
def test_answers_and_their_ids_are_one_to_one(name):
  verdict, texts = verdicts(name), completion_texts(name)
  assert np.all((verdict.answer_id >= 0) == verdict.parsable)
  assert not np.any(verdict.correct[~verdict.parsable])
  for i in range(0, len(texts), PER_PROBLEM):
    rows = [j for j in range(i, i + PER_PROBLEM) if verdict.parsable[j]]
    answers = [ANSWERS[name](texts[j]) for j in rows]
    for (a, j), (b, k) in itertools.combinations(zip(answers, rows), 2):
      assert (a == b) == (verdict.answer_id[j] == verdict.answer_id[k])


@pytest.mark.parametrize("name", ["maze", "filler", "open", "tree"])
def test_width_and_padding_change_nothing(name):
  for one, other in zip(verdicts(name), verdicts(name, extra_width=0)):
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", TASKS)
def test_demonstrations_are_right_and_fit(name):
  task, (_, prompts, (tokens, mask), _) = TASKS[name], problems(name)
  assert np.all(verdicts(name).correct[::PER_PROBLEM] == 1.0)
  assert tokens.shape[1] == task.max_new_tokens == mask.shape[1]
  assert prompts[0].shape[1] == task.prompt_tokens
  assert tokens.dtype == np.int32 and mask.dtype == bool
  assert np.all(tokens[~mask] == task.pad_id) and np.all(prompts[0][~prompts[1]] == task.pad_id)
  stops = 0 if name.startswith("tree") else 1
  assert np.all(np.sum((tokens == task.stop_id) & mask, axis=1) == stops)


@pytest.mark.parametrize("name", TASKS)
def test_no_train_prompt_is_held_out(name):
  texts = prompt_texts(name)
  assert not set(texts[: NUM_PROBLEMS // 2]) & set(texts[NUM_PROBLEMS // 2 :])


@pytest.mark.parametrize("build", [maze, filler_chain, multiple_choice])
def test_held_out_problems_do_not_depend_on_the_seed(build):
  of_seed = jax.jit(lambda seed: jax.vmap(build(seed=seed).problem)(ids_of(16)))  # a seed may be swept
  one, other = (jax.tree.leaves(of_seed(seed)) for seed in (0, 1))
  assert not all(np.array_equal(a[:8], b[:8]) for a, b in zip(one, other))
  assert all(np.array_equal(a[8:], b[8:]) for a, b in zip(one, other))


def test_held_out_trees_do_not_depend_on_the_seed():
  one, other = (np.asarray(jax.vmap(token_tree(seed=seed).problem)(ids_of(2)).rewards) for seed in (0, 1))
  assert not np.array_equal(one[0], other[0])
  np.testing.assert_array_equal(one[1], other[1])


def test_the_smallest_mazes_have_both_splits():
  of_fraction = jax.jit(lambda fraction: jax.vmap(maze(size=3, wall_fraction=fraction).problem)(ids_of(200)))
  for wall_fraction in (0.0, 0.7):
    facts = of_fraction(wall_fraction)  # returns at all
    assert np.all(np.asarray(facts.start != facts.goal).any(axis=1))


def test_a_maze_reads_as_documented():
  _, _, (tokens, mask), difficulty = problems("maze")
  for prompt, moves, wanted in zip(prompt_texts("maze"), mask.sum(axis=1) - 1, difficulty):
    assert re.fullmatch(r"([#.SG]{4}/){4}", prompt) and prompt.count("S") == prompt.count("G") == 1
    assert moves == wanted >= 1
  walls = np.mean([prompt.count("#") for prompt in prompt_texts("maze")]) / 16
  assert 0.2 < walls < 0.3  # 0.3, less the goal and its free neighbour


def test_a_maze_by_hand():
  # S.#/.##/..G/ : DDRR is shortest; DUDDRR is longer; RRDD enters a wall; RLDDRR comes back; UDDDRR leaves the grid.
  task, short = maze(size=3), maze(size=3, shortest=True)
  cells = np.array([list(row) for row in ("S.#", ".##", "..G")])
  facts = jax.tree.map(lambda x: x[0], problems("maze_shortest")[0])._replace(
    walls=jnp.array(cells == "#"),
    start=jnp.array([0, 0]),
    goal=jnp.array([2, 2]),
    distance=jnp.array([[4, 5, 9], [3, 9, 9], [2, 1, 0]]),
  )
  assert to_text(task, *task.prompt(facts)) == "S.#/.##/..G/"
  assert to_text(task, *task.demonstration(facts)) == "DDRR"
  walks = ["DDRR", "DUDDRR", "RLDDRR", "DDRRLR", "RRDD", "UDDDRR", "DDR", "", "DDRRL"]
  for t, wanted in ((task, [1, 1, 1, 1, 0, 0, 0, 0, 0]), (short, [1, 0, 0, 0, 0, 0, 0, 0, 0])):
    verdict = judge(t, facts, walks)
    assert list(verdict.correct) == wanted
    assert list(verdict.parsable) == [walk != "" for walk in walks]
    assert [t.host_verify("S.#/.##/..G/", walk) for walk in walks] == wanted


def test_a_filler_chain_reads_as_documented():
  facts, _, (tokens, mask), difficulty = problems("filler")
  task = TASKS["filler"]
  assert set("".join(prompt_texts("filler"))) == set("01234wxyz=")
  for i, prompt in enumerate(prompt_texts("filler")):
    asked = re.fullmatch(r"(\d)(\d)([wxyz])" * 3 + "=", prompt).groups()
    pairs = list(zip(map(int, asked[::3]), map(int, asked[1::3]), asked[2::3]))
    assert to_text(task, tokens[i], mask[i]) == "".join(f"{(a + b) % 5}{letter * 2}" for a, b, letter in pairs)
    assert difficulty[i] == sum(a + b >= 5 for a, b, _ in pairs)
  bare = filler_chain(num_decisions=3, num_filler=0, modulus=5)
  same, first = jax.jit(lambda ids: (jax.vmap(bare.problem)(ids), bare.demonstration(bare.problem(0))))(ids_of(20))
  np.testing.assert_array_equal(same.digits[:10], facts.digits[:10])  # a sweep of num_filler asks the same questions
  assert to_text(bare, *map(np.asarray, first)) == to_text(task, tokens[0], mask[0])[::3]


def test_filler_counts_only_if_strict():
  text, other = "1xx5ww", "1xy5ww"  # the second has a wrong letter, the third a digit for a letter
  loose, strict = (filler_chain(num_decisions=2, num_filler=2, strict=strict) for strict in (False, True))
  facts = FillerChain(jnp.array([[3, 8], [0, 5]]), jnp.array([1, 0]), jnp.array([1, 5]))
  for task, wanted in ((loose, [1, 1, 0]), (strict, [1, 0, 0])):
    verdict = judge(task, facts, [text, other, "1x15ww"])
    assert list(verdict.correct) == wanted
    assert list(verdict.parsable) == [True, True, False]
    assert (verdict.answer_id[0] == verdict.answer_id[1]) == (task is loose)
    assert [task.host_verify("38x05w=", row) for row in (text, other, "1x15ww")] == wanted


@pytest.mark.parametrize("error", ["forgot_last", "off_by_one"])
def test_choices_hold_the_answer_the_error_and_two_others(error):
  task = multiple_choice(error=error, num_terms=2, modulus=12)
  facts = jax.jit(jax.vmap(task.problem))(ids_of(600))
  for terms, answer, options, right, wrong in zip(*map(np.asarray, facts)):
    assert answer == sum(terms) % 12 == options[right]
    assert options[wrong] == (terms[0] if error == "forgot_last" else (answer + 1) % 12)
    assert len(set(options)) == 4 and all(0 <= option < 12 for option in options) and right != wrong
  for where in (facts.right, facts.error):
    assert np.all(np.bincount(where, minlength=4) > 100)  # 150 each, give or take 11
  others = np.bincount(np.asarray((facts.options - facts.answer[:, None]) % 12).ravel(), minlength=12)
  assert np.all(others[2:] > 60)  # every other number is drawn


def test_both_forms_ask_the_same_question():
  task = multiple_choice(form="open")
  facts = jax.jit(jax.vmap(task.problem))(ids_of(NUM_PROBLEMS))
  for one, other in zip(facts, problems("choice")[0]):
    np.testing.assert_array_equal(one, other)
  facts = jax.tree.map(lambda x: jnp.concatenate([x[:32], x[1000:1032]]), facts)
  texts = prompt_texts("choice")[:32] + prompt_texts("choice")[1000:1032]
  for tokens, mask, text in zip(*map(np.asarray, jax.jit(jax.vmap(task.prompt))(facts)), texts):
    asked = to_text(task, tokens, mask)
    assert re.fullmatch(r"\d+\+\d+\+\d+=", asked)
    assert re.fullmatch(re.escape(asked[:-1]) + r":A\d+B\d+C\d+D\d+=", text)
  assert task.symbols == TASKS["choice"].symbols


@pytest.mark.parametrize(
  "form, working, wanted", [("open", False, "97"), ("open", True, "42;97"), ("choice", True, "42;97;C")]
)
def test_working_shows_the_running_totals(form, working, wanted):
  task = multiple_choice(form=form, working=working)
  facts = jax.tree.map(lambda x: x[0], problems("choice")[0])
  facts = facts._replace(terms=jnp.array([37, 5, 55]), answer=jnp.array(97), right=jnp.array(2))
  tokens, mask = map(np.asarray, jax.jit(task.demonstration)(facts))
  assert to_text(task, tokens, mask) == wanted and tokens.shape == (task.max_new_tokens,)


def test_trees_have_their_rewards():
  facts = problems("tree")[0]
  texts = prompt_texts("tree")
  assert texts[:4] == list("ABCA") and texts[1000:1004] == list("DEFD")
  assert len({tuple(row) for row in np.asarray(facts.rewards)}) == 6
  assert np.all(np.sum(np.asarray(facts.rewards), axis=1) == 8)
  graded = np.asarray(problems("tree_graded")[0].rewards[0])
  np.testing.assert_allclose(np.sort(graded), np.arange(8) / 7, atol=1e-6)
  for name, prompt_id, branching in (("tree", 1, 3), ("tree_graded", 0, 2)):
    task = TASKS[name]
    leaves = ["".join(leaf) for leaf in itertools.product("012"[:branching], repeat=task.max_new_tokens)]
    wanted = [task.host_verify(texts[prompt_id], leaf) for leaf in leaves]
    np.testing.assert_allclose(exact.leaf_rewards(task, prompt_id, branching), wanted, atol=1e-6)
    np.testing.assert_allclose(task.problem(jnp.int32(prompt_id)).rewards, wanted, atol=1e-6)


@pytest.mark.parametrize(
  "build, message",
  [
    (lambda: maze(size=2), "size must be .* got 2"),
    (lambda: maze(wall_fraction=0.8), "wall_fraction must be .* got 0.8"),
    (lambda: maze(num_train=0), "num_train must be .* got 0"),
    (lambda: filler_chain(num_decisions=0), "num_decisions must be .* got 0"),
    (lambda: filler_chain(num_filler=-1), "num_filler must be .* got -1"),
    (lambda: filler_chain(modulus=11), "modulus must be .* got 11"),
    (lambda: filler_chain(num_decisions=1, modulus=4), "filler_chain needs 100 different problems"),
    (lambda: multiple_choice(form="opne"), "form must be .* got 'opne'; did you mean 'open'"),
    (lambda: multiple_choice(error="off_by_on"), "error must be .* did you mean 'off_by_one'"),
    (lambda: multiple_choice(num_terms=1), "num_terms must be .* got 1"),
    (lambda: multiple_choice(modulus=3), "modulus must be .* got 3"),
    (lambda: multiple_choice(num_terms=2, modulus=9), "multiple_choice needs 100 different problems"),
    (lambda: token_tree(branching=11), "branching must be .* got 11"),
    (lambda: token_tree(depth=0), "depth must be .* got 0"),
    (lambda: token_tree(branching=10, depth=5), r"branching\*\*depth must be .* got 100000"),
    (lambda: token_tree(branching=2, depth=3), "num_right must be .* got 8"),
    (lambda: token_tree(num_prompts=14), "num_prompts must be .* got 14"),
    (lambda: exact.expected_reward(jnp.zeros((5, 3)), jnp.zeros(9)), "branching 3 cannot have 5 rows"),
    (lambda: exact.policy_of_leaves(jnp.zeros(8), 3), "branching 3 .* got 8"),
    (lambda: exact.pass_at_k(jnp.zeros((4, 3)), jnp.zeros(9), 0), "k must be .* got 0"),
    (lambda: exact.optimal_policy(jnp.zeros((4, 3)), jnp.zeros(9), 0.0), "beta must be .* got 0"),
  ],
)
def test_bad_arguments_are_named(build, message):
  with pytest.raises(ValueError, match=message):
    build()


# Exact functions against loops over completions in float64. Nodes are named by the branches that lead to them.
SHAPES = [(3, 2), (2, 3)]


def brute(logits, branching: int, depth: int):
  """Nodes in their order, and a function from a completion to its probability."""
  nodes = [node for level in range(depth) for node in itertools.product(range(branching), repeat=level)]

  def branch_prob(node, branch):
    weights = [math.exp(x) for x in logits[nodes.index(node)]]
    return weights[branch] / sum(weights)

  def prob(leaf):
    return math.prod(branch_prob(leaf[:i], leaf[i]) for i in range(len(leaf)))

  return nodes, prob, list(itertools.product(range(branching), repeat=depth))


def example(branching: int, depth: int, seed: int = 0):
  rng = np.random.default_rng(seed)
  return rng.normal(size=(exact.num_nodes(branching, depth), branching)), rng.random(branching**depth)


@pytest.mark.parametrize("shape", SHAPES)
def test_probabilities_and_values(shape):
  logits, rewards = example(*shape)
  nodes, prob, leaves = brute(logits, *shape)
  np.testing.assert_array_equal(exact.leaf_tokens(*shape), leaves)
  np.testing.assert_allclose(exact.leaf_log_probs(jnp.array(logits)), [math.log(prob(y)) for y in leaves], rtol=1e-5)
  below = lambda node: [(prob(y), r) for y, r in zip(leaves, rewards) if y[: len(node)] == node]
  value = lambda node: sum(p * r for p, r in below(node)) / sum(p for p, _ in below(node))
  args = jnp.array(logits), jnp.array(rewards)
  np.testing.assert_allclose(exact.visit_probs(args[0]), [sum(p for p, _ in below(s)) for s in nodes], rtol=1e-5)
  np.testing.assert_allclose(exact.node_values(*args), [value(s) for s in nodes], rtol=1e-5)
  wanted = [[value((*s, a)) for a in range(shape[0])] for s in nodes]
  np.testing.assert_allclose(exact.action_values(*args), wanted, rtol=1e-5)
  np.testing.assert_allclose(exact.expected_reward(*args), value(()), rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_policy_gradient(shape):
  logits, rewards = example(*shape, seed=1)

  def expected(x):
    _, prob, leaves = brute(x, *shape)
    return sum(prob(y) * r for y, r in zip(leaves, rewards))

  wanted, h = np.zeros_like(logits), 1e-5
  for where in np.ndindex(*logits.shape):
    step = np.zeros_like(logits)
    step[where] = h
    wanted[where] = (expected(logits + step) - expected(logits - step)) / (2 * h)
  args = jnp.array(logits), jnp.array(rewards)
  np.testing.assert_allclose(exact.policy_gradient(*args), wanted, atol=1e-6)
  # The policy gradient theorem: visits times pi (Q - V).
  advantage = exact.action_values(*args) - exact.node_values(*args)[:, None]
  theorem = exact.visit_probs(args[0])[:, None] * jax.nn.softmax(args[0]) * advantage
  np.testing.assert_allclose(theorem, wanted, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_the_optimum_of_the_regularised_reward(shape, beta):
  logits, rewards = example(*shape, seed=2)
  nodes, prob, leaves = brute(logits, *shape)
  weights = [prob(y) * math.exp(r / beta) for y, r in zip(leaves, rewards)]
  reference, r = jnp.array(logits), jnp.array(rewards)
  best = exact.optimal_policy(reference, r, beta)
  np.testing.assert_allclose(jnp.exp(exact.leaf_log_probs(best)), np.array(weights) / sum(weights), rtol=1e-4)
  reached = exact.regularised_reward(best, reference, r, beta)
  np.testing.assert_allclose(reached, beta * math.log(sum(weights)), rtol=1e-5)
  slope = jax.grad(exact.regularised_reward)(best, reference, r, beta)
  np.testing.assert_allclose(slope, np.zeros_like(logits), atol=1e-6)
  other = jnp.array(example(*shape, seed=3)[0])
  assert exact.regularised_reward(other, reference, r, beta) < reached
  _, other_prob, _ = brute(np.asarray(other, np.float64), *shape)
  kl = sum(other_prob(y) * math.log(other_prob(y) / prob(y)) for y in leaves)
  np.testing.assert_allclose(exact.sequence_kl(other, reference), kl, rtol=1e-4)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_pass_at_k_over_all_samples(k):
  logits, rewards = example(3, 2, seed=4)
  rewards = np.where(rewards > 0.7, 1.0, 0.5 * rewards)
  _, prob, leaves = brute(logits, 3, 2)
  probs = [prob(y) for y in leaves]
  wanted = sum(
    math.prod(probs[i] for i in sample)
    for sample in itertools.product(range(9), repeat=k)
    if any(rewards[i] == 1.0 for i in sample)
  )
  np.testing.assert_allclose(exact.pass_at_k(jnp.array(logits), jnp.array(rewards), k), wanted, rtol=1e-5)


def test_impossible_branches_and_leaves_make_no_nan():
  logits = jnp.array(example(2, 3)[0]).at[2, 0].set(-jnp.inf)
  rewards = jnp.array(example(2, 3)[1])
  for fn in (exact.expected_reward, lambda x, r: exact.sequence_kl(x, logits), lambda x, r: exact.pass_at_k(x, r, 2)):
    assert np.isfinite(fn(logits, rewards)) and np.all(np.isfinite(jax.grad(fn)(logits, rewards)))
  one_leaf = jnp.full(8, -jnp.inf).at[5].set(0.0)
  policy = exact.policy_of_leaves(one_leaf, 2)
  np.testing.assert_array_equal(jnp.exp(exact.leaf_log_probs(policy)), np.eye(8)[5])
  assert not np.any(np.isnan(policy))
