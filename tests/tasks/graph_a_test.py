"""Sums, remainders, countdown and sorting: the graph verifier against its host twin and against cases by hand."""

import functools
import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.tasks.graph import types as graph
from rlvr_jax.tasks.graph.countdown import Countdown, countdown
from rlvr_jax.tasks.graph.modular import ModularSum, modular_sum
from rlvr_jax.tasks.graph.sorting import Sorting, sorting
from rlvr_jax.tasks.graph.sums import Chain, chain_sum
from rlvr_jax.tasks.graph.tokens import check_size
from rlvr_jax.tasks.types import EVAL_ID

NUM_TRAIN, NUM_EVAL = 2000, 500  # problems looked at
NUM_STRINGS = 10_000
TASKS = {
  "chain": (chain_sum, dict()),
  "chain of 2 to 4, answer only": (chain_sum, dict(num_terms=4, min_terms=2, num_digits=2, scratchpad=False)),
  "modular": (modular_sum, dict(num_terms=4, min_terms=2, num_digits=2)),
  "countdown": (countdown, dict()),
  "countdown of some of 4": (countdown, dict(num_numbers=4, max_number=12, use_all=False)),
  "sorting": (sorting, dict(min_length=3)),
}
PROMPTS = {
  chain_sum: r"[0-9]{1,2}([+-][0-9]{1,2}){1,3}=",
  modular_sum: r"\([0-9]{1,2}(\+[0-9]{1,2}){1,3}\)%11=",
  countdown: r"[0-9]{1,2}(,[0-9]{1,2}){2,3}:[0-9]{1,2}=",
  sorting: r"[0-9]{3,5}=",
}


class Problems:
  """Problems of a task: their facts, prompts and demonstrations, and its verifier over a batch, compiled once."""

  def __init__(self, builder, kwargs):
    self.builder, self.task = builder, builder(**kwargs)
    self.ids = jnp.concatenate([jnp.arange(NUM_TRAIN), EVAL_ID + jnp.arange(NUM_EVAL)])
    make = jax.jit(jax.vmap(self._make))
    self.facts, prompt, demonstration, self.difficulty = make(self.ids)
    self.prompt_text = [graph.to_text(self.task, *row) for row in zip(*map(np.asarray, prompt))]
    self.shown = [tokens[mask].tolist() for tokens, mask in zip(*map(np.asarray, demonstration))]
    self.shown_text = [self.text(row) for row in self.shown]
    self._verify = jax.jit(jax.vmap(self.task.verify))

  def _make(self, prompt_id):
    facts = self.task.problem(prompt_id)
    return facts, self.task.prompt(facts), self.task.demonstration(facts), self.task.difficulty(facts)

  def verify(self, index, tokens, mask):
    facts = jax.tree.map(lambda x: x[np.asarray(index)], self.facts)
    return jax.tree.map(np.asarray, self._verify(facts, tokens, mask))

  def text(self, row):
    return graph.to_text(self.task, row, [True] * len(row))

  def ended(self, row):
    return row[-1:] == [self.task.stop_id] and row.count(self.task.stop_id) == 1


@functools.cache
def drawn(name):
  return Problems(*TASKS[name])


@pytest.fixture(scope="module", params=TASKS)
def problems(request):
  return drawn(request.param)


@pytest.fixture(scope="module")
def strings(problems):
  """Problem of each string, and the strings: demonstrations, demonstrations with edits, and random tokens."""
  rng, task = np.random.default_rng(0), problems.task
  index, rows = rng.integers(len(problems.ids), size=NUM_STRINGS), []
  for i in range(NUM_STRINGS):
    row = list(problems.shown[index[i]])
    if i % 4 == 0:
      row = rng.integers(len(task.symbols), size=rng.integers(task.max_new_tokens)).tolist()
      row += [task.stop_id] * bool(rng.random() < 0.9)
    elif i % 4 < 3:
      for _ in range(rng.integers(1, 4)):
        edit(row, rng, len(task.symbols))
    rows.append(row[: task.max_new_tokens + 4])
  return index, rows


def edit(row, rng, num_symbols):
  """Changes, puts in, takes out or swaps one token, in place."""
  kind = rng.integers(4)
  at, other = rng.integers(max(len(row), 1), size=2)
  if kind == 0 or not row:
    row.insert(at, rng.integers(num_symbols))
  elif kind == 1:
    row[at] = rng.integers(num_symbols)
  elif kind == 2:
    del row[at]
  else:
    row[at], row[other] = row[other], row[at]


def padded(rows, width, pad_id):
  tokens, mask = np.full((len(rows), width), pad_id, np.int32), np.zeros((len(rows), width), bool)
  for i, row in enumerate(rows):
    tokens[i, : len(row)], mask[i, : len(row)] = row, True
  return tokens, mask


def test_graph_and_host_agree(problems, strings):
  index, rows = strings
  verdict = problems.verify(index, *padded(rows, problems.task.max_new_tokens + 4, problems.task.pad_id))
  host = problems.task.host_verify
  expected = [problems.ended(y) and host(problems.prompt_text[i], problems.text(y)) for i, y in zip(index, rows)]
  differ = np.flatnonzero(verdict.correct != expected)
  wrong = [(problems.prompt_text[index[j]], problems.text(rows[j])) for j in differ]
  assert not wrong, wrong[:5]
  assert sum(expected) >= 1000
  others = sum(e and problems.text(y) != problems.shown_text[i] for e, i, y in zip(expected, index, rows))
  assert others > 0 or problems.builder is sorting  # right in another way than the demonstration
  assert np.all(verdict.parsable[verdict.correct == 1])
  assert 0 < np.sum(verdict.parsable & (verdict.correct == 0))
  assert np.all((verdict.answer_id >= 0) == verdict.parsable) and np.all(verdict.answer_id >= -1)


def test_answer_ids_tell_answers_apart(problems, strings):
  index, rows = strings
  verdict = problems.verify(index, *padded(rows, problems.task.max_new_tokens + 4, problems.task.pad_id))
  ids = {}
  for row, parsable, answer_id in zip(rows, verdict.parsable, verdict.answer_id):
    if parsable:
      answer = problems.text(row)
      if problems.builder in (chain_sum, modular_sum):
        answer = int(answer.rpartition(";")[2])
      assert ids.setdefault(answer, answer_id) == answer_id
  assert len(set(ids.values())) == len(ids) > 5


def test_padding_and_width_change_nothing(problems, strings):
  index, rows = strings
  task, rng = problems.task, np.random.default_rng(1)
  width = task.max_new_tokens + 4
  plain = problems.verify(index, *padded(rows, width, task.pad_id))
  wide = problems.verify(index[:500], *padded(rows[:500], width + 7, task.stop_id))
  jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda x: x[:500], plain), wide)
  tokens = rng.integers(len(task.symbols), size=(NUM_STRINGS, width)).astype(np.int32)  # padding is anything
  mask = np.zeros((NUM_STRINGS, width), bool)
  for i, row in enumerate(rows):
    at = np.sort(rng.choice(width, len(row), replace=False))
    tokens[i, at], mask[i, at] = row, True
  jax.tree.map(np.testing.assert_array_equal, plain, problems.verify(index, tokens, mask))


def test_demonstrations_verify_and_fit(problems):
  task = problems.task
  tokens, mask = padded(problems.shown, task.max_new_tokens, task.pad_id)
  verdict = problems.verify(np.arange(len(problems.ids)), tokens, mask)
  assert np.all(verdict.correct == 1) and verdict.correct.dtype == np.float32
  assert all(map(problems.ended, problems.shown))
  texts = zip(problems.prompt_text, problems.shown_text)
  assert all(task.host_verify(*text) == 1.0 for text in texts)
  unstopped = [row[:-1] for row in problems.shown]
  verdict = problems.verify(np.arange(len(problems.ids)), *padded(unstopped, task.max_new_tokens, task.pad_id))
  assert not np.any(verdict.correct) and not np.any(verdict.parsable)


def test_prompts_read_as_documented(problems):
  assert all(re.fullmatch(PROMPTS[problems.builder], text) for text in problems.prompt_text)
  for prompt, shown in zip(problems.prompt_text, problems.shown_text):
    if problems.builder in (chain_sum, modular_sum):  # Python reads them alike, leading zeros there are none
      assert eval(prompt[:-1]) == int(shown.rpartition(";")[2])
    elif problems.builder is countdown:
      *numbers, target = re.findall("[0-9]+", prompt)
      assert eval(shown) == int(target)
      assert Counter(re.findall("[0-9]+", shown)) <= Counter(numbers)
    else:
      assert list(shown) == sorted(prompt[:-1])


def test_splits_are_disjoint_and_problems_differ(problems):
  train, held_out = set(problems.prompt_text[:NUM_TRAIN]), set(problems.prompt_text[NUM_TRAIN:])
  assert not train & held_out
  assert len(train) > 700 and len(held_out) > 100


def test_problems_follow_from_id_and_seed():
  ids = jnp.array([0, 1, 2, 3, 4, 5, 2**30 - 1, EVAL_ID, EVAL_ID + 1, 2**31 - 1])
  draw = jax.jit(lambda seed, ids: graph.prompts(chain_sum(num_digits=3, seed=seed), ids)[0], static_argnums=0)
  one, other = draw(0, ids), draw(1, ids)
  np.testing.assert_array_equal(one, draw(0, ids[::-1])[::-1])  # whatever is drawn beside it
  np.testing.assert_array_equal(one[7:], other[7:])  # the held-out set is common
  assert np.all(np.any(one[:7] != other[:7], axis=1))


CHAIN = chain_sum(), Chain(jnp.array([3, 1, 9]), jnp.array([False, False, True]), jnp.ones(3, bool))  # 3+1-9 = -5
MODULAR = modular_sum(), ModularSum(jnp.array([7, 5, 9]), jnp.ones(3, bool))  # 21 % 11 = 10
SORTING = sorting(), Sorting(jnp.array([3, 1, 4, 1, 5]), jnp.ones(5, bool))
NUMBERS = jnp.array([3, 7, 2])
HAND = Countdown(NUMBERS, jnp.int32(13), NUMBERS, NUMBERS, NUMBERS > 0, NUMBERS > 0)
ALL, SOME = (countdown(), HAND), (countdown(use_all=False), HAND)

# task and problem, prompt, right ones, readable but wrong ones, unreadable ones
CASES = {
  "chain": (
    CHAIN, "3+1-9=",
    ["4;-5", "-5", "99;=;-5", ";-5", "<pad>;-5", "4;-05", "-000000005"],
    ["4;5", "5", "-5;4", "4;-55", "-0", "999999999"],
    ["", "4;", "-5;", "--5", "-", "4;5-", "4;+5", "4=-5", "-5=", "<pad>-5", "-5<pad>", "-0000000005", "4;4294967291"],
  ),
  "modular": (
    MODULAR, "(7+5+9)%11=",
    ["1;10", "10", "5;;10", "010"],
    ["10;1", "21", "1;0", "32"],
    ["", "10;", "+10", "(10)", "1;10%", "10=", "0000000010", "4294967306"],
  ),
  "sorting": (
    SORTING, "31415=",
    ["11345"],
    ["1345", "113455", "31415", "54311", "1", "11344", "113451"],
    ["", "11345=", "=", "1134<pad>5", "<pad>11345"],
  ),
  "countdown of all": (
    ALL, "3,7,2:13=",
    ["3*2+7", "7+2*3", "(2)*3+7", "7+(3*2)", "((((((((7))))))))+2*3"],
    ["7+3+2", "7*2-1", "7+3+3", "13", "7+2*3+0", "7+6", "7*(3-2)", "7+2*3*1", "999999999+1", "7-3*2", "(7-3)*2"],
    ["", "7+", "+7", "-7", "7++2", "(7", "7)", "()", "7()", "(7)2", "7(2)", "07+2*3", "00", "7+2*3=", "1000000000",
     "7,2", "(((((((((7)))))))))+2*3", "999999999+2", "99999*99999", "65536*65536+7+2*3", 
     "7+2*3+0*65536*65536+99999*99999", "1-(0-999999999)-1-1+9", "7+2*3<pad>", "<pad>7+2*3", "*7", "(+7)", "7+(2*)3"],
  ),
  "countdown of some": (
    SOME, "3,7,2:13=",
    ["3*2+7", "2*3+7"],
    ["7*2-1", "3+7+2", "13", "7"],
    ["7+2*3)", "(7+2*3"],
  ),
}  # fmt: skip
VERDICTS = [(1.0, True), (0.0, True), (0.0, False)]


@pytest.mark.parametrize("name", CASES)
def test_cases_by_hand(name):
  (task, facts), prompt, *groups = CASES[name]
  assert graph.to_text(task, *task.prompt(facts)) == prompt
  wanted = [(text, *verdict) for texts, verdict in zip(groups, VERDICTS) for text in texts]
  rows = [[task.symbols.index(c) for c in re.findall("<pad>|.", text)] + [task.stop_id] for text, *_ in wanted]
  verdict = jax.jit(jax.vmap(lambda y, m: task.verify(facts, y, m)))(*padded(rows, 40, task.pad_id))
  texts = [text for text, *_ in wanted]
  assert list(zip(texts, verdict.correct.tolist(), verdict.parsable.tolist())) == wanted
  assert [task.host_verify(prompt, text) for text in texts] == [correct for _, correct, _ in wanted]


def test_a_stop_token_ends_a_completion_once_and_last():
  task, facts = CHAIN
  minus, five, stop = task.symbols.index("-"), 5, task.stop_id
  rows = [[minus, five, stop], [minus, five], [minus, five, stop, stop], [stop, minus, five], [minus, stop, five, stop]]
  verdict = jax.vmap(lambda y, m: task.verify(facts, y, m))(*padded(rows, 6, task.pad_id))
  assert verdict.correct.tolist() == [1, 0, 0, 0, 0] and verdict.parsable.tolist() == [True] + [False] * 4


@pytest.mark.parametrize(
  "name, knob, harder",
  [("chain", dict(num_digits=2), True), ("modular", dict(modulus=101), True),
   ("countdown", dict(operators="+-"), False), ("sorting", dict(num_symbols=4), False)],
)  # fmt: skip
def test_difficulty_rises_with_a_knob(name, knob, harder):
  builder, kwargs = TASKS[name]
  task = builder(**kwargs | knob)
  difficulty = jax.jit(jax.vmap(lambda i: task.difficulty(task.problem(i))))(jnp.arange(NUM_TRAIN))
  gap = float(jnp.mean(difficulty) - jnp.mean(drawn(name).difficulty[:NUM_TRAIN]))
  assert gap > 0.3 if harder else gap < -0.3


@pytest.mark.parametrize("name", [name for name in TASKS if name not in ("chain", "countdown")])
def test_difficulty_rises_with_size_within_a_task(name):
  problems = drawn(name)
  counted = problems.shown_text if problems.builder is countdown else [p.split("%")[0] for p in problems.prompt_text]
  pattern = "[0-9]" if problems.builder is sorting else "[0-9]+"
  size = np.array([len(re.findall(pattern, text)) for text in counted])
  means = [np.mean(np.asarray(problems.difficulty)[size == n]) for n in np.unique(size)]
  assert len(means) == 3 and means == sorted(means)


@pytest.mark.parametrize(
  "builder, kwargs, message",
  [
    (chain_sum, dict(num_terms=1), "num_terms"),
    (chain_sum, dict(min_terms=4), "min_terms"),
    (chain_sum, dict(num_digits=0), "num_digits"),
    (chain_sum, dict(num_digits=8, num_terms=20), "num_digits"),
    (chain_sum, dict(operators="*"), "operators"),
    (chain_sum, dict(num_train=0), "num_train"),
    (chain_sum, dict(num_eval=2**30 + 1), "num_eval"),
    (modular_sum, dict(modulus=1), "modulus"),
    (modular_sum, dict(num_terms=True), "num_terms"),
    (countdown, dict(num_numbers=1), "num_numbers"),
    (countdown, dict(max_number=1), "max_number"),
    (countdown, dict(max_target=8), "max_target"),
    (countdown, dict(operators="+/"), "operators"),
    (countdown, dict(operators="++"), "operators"),
    (countdown, dict(operators="+*"), "max_target >= 729"),
    (countdown, dict(num_numbers=2), "100 different problems"),
    (sorting, dict(num_symbols=37), "num_symbols"),
    (sorting, dict(min_length=6), "min_length"),
    (sorting, dict(length=2, num_symbols=9), "100 different problems"),
  ],
)
def test_build_errors(builder, kwargs, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    builder(**kwargs)


@pytest.mark.parametrize("value", [2.5, True, "3", 1, 5])
def test_sizes_are_whole_numbers_in_range(value):
  with pytest.raises(ValueError, match=r"width must be a whole number in \[2, 4\], got"):
    check_size("width", value, 2, 4)
