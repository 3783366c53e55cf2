"""Given numbers to be joined into a target: `3,7,2:13=` is answered by `3*2+7`, `7+2*3`, `(2)*3+7` or others.

A completion is read in one pass by a stack machine. A level of brackets is `sum + product`: the terms that are
complete, and the signed term being read. A number or closed bracket multiplies the product; `+` and `-` move it into
the sum and start another; brackets push and pop a level. So `*` binds closer and `-` is read from the left.
"""

import functools
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from rlvr_jax.tasks.graph import tokens as tk
from rlvr_jax.tasks.graph.types import GraphTask, GraphVerdict, draw_split

SYMBOLS = tk.DIGITS + "+-*(),:="
PLUS, MINUS, TIMES, OPEN, CLOSE, COMMA, COLON, EQUALS = (SYMBOLS.index(c) for c in "+-*(),:=")
OPERATORS = "+-*"
LIMIT = 10**9  # of the size of any partial result; twice as much still fits int32
MAX_DEPTH = 8  # of brackets


class Countdown(NamedTuple):
  shown: Int[Array, "m"]  # the numbers as the prompt lists them
  target: Int[Array, ""]
  numbers: Int[Array, "m"]  # in the order in which the demonstration joins them; it leaves out the last ones
  operator: Int[Array, "m"]  # token that joins a number to what is there before; the first has none
  in_front: Bool[Array, "m"]  # whether the number is the left operand
  used: Bool[Array, "m"]


def countdown(
  *,
  num_numbers: int = 3,
  max_number: int = 9,
  operators: str = "+-*",
  use_all: bool = True,
  max_target: int = 99,
  num_train: int = 4096,
  num_eval: int = 256,
  seed: int = 0,
) -> GraphTask:
  """`num_numbers` numbers in [1, max_number] and a target in [0, max_target] that some of them make.

  A completion is an expression of given numbers, `+`, `-`, `*` and brackets, and then stops. It is right if its value
  is the target and each number is used at most as often as given, or exactly so with `use_all`; any solution counts.
  It cannot be read if it has a leading zero, a sign, a number of more than 9 digits, brackets deeper than 8 or a
  partial result beyond 10^9. Answers are equal if their tokens are.

  The target is the value of the demonstration, which joins one number at a time, on either side, by an operator that
  keeps the value in range. The difficulty of a problem is the length of its demonstration in tokens, plus the number
  of its products and of the numbers that it leaves out. Ids repeat problems once there are more ids than problems.

  Args:
    operators: that demonstrations use, of "+-*"; without "-" no sum or product may exceed `max_target`.
    use_all:   solutions have to use every number; else demonstrations use between two and all of them.
    seed:      of the train problems.

  Raises ValueError for arguments out of range or with too few different problems.
  """
  _check(num_numbers, max_number, operators, max_target)
  tk.check_splits("countdown", max_number**num_numbers, num_train, num_eval)
  symbols, pad_id, stop_id = tk.vocabulary(SYMBOLS)
  num_digits, target_digits = len(str(max_number)), len(str(max_target))
  prompt_tokens = num_numbers * (num_digits + 1) + target_digits + 1
  max_new_tokens = num_numbers * (num_digits + 1) + 2 * (num_numbers - 2)
  places = jnp.arange(num_numbers)

  def draw(key: Key[Array, ""]) -> Countdown:
    m = num_numbers
    parts = (m, max_number), (1, m - 1), (m, 2), (3 * m, 2**30), (m, 2**30)
    number, count, side, noise, order = tk.draw_integers(key, *parts)
    numbers, used = number + 1, places < (m if use_all else count + 2)

    def put(value, step):
      return _put(value, *step, operators, max_target)

    steps = (numbers, side == 1, noise.reshape(m, 3), used)
    target, (operator, in_front) = jax.lax.scan(put, numbers[0], jax.tree.map(lambda x: x[1:], steps))
    operator, in_front = jnp.pad(operator, (1, 0)), jnp.pad(in_front, (1, 0))
    return Countdown(numbers[jnp.argsort(order)], target, numbers, operator, in_front, used)

  def prompt(facts: Countdown):
    numbers = tk.number_list(facts.shown, jnp.full(num_numbers, COMMA), places >= 0, num_digits)
    target = tk.number_tokens(facts.target, target_digits)
    return tk.join([numbers, tk.literal(COLON), target, tk.literal(EQUALS)], prompt_tokens, pad_id)

  def demonstration(facts: Countdown):
    return tk.join([*_expression(facts, num_digits), tk.literal(stop_id)], max_new_tokens, pad_id)

  def verify(facts: Countdown, completion: Int[Array, "a"], mask: Bool[Array, "a"]) -> GraphVerdict:
    inside, ended = tk.body(completion, mask, stop_id)
    value, valid, unused, given = evaluate(completion, mask, stop_id, facts.shown)
    parsable = ended & valid
    correct = parsable & given & (value == facts.target) & ~(use_all & jnp.any(unused))
    answer_id = jnp.where(parsable, tk.sequence_id(completion, inside), -1)
    return GraphVerdict(correct.astype(jnp.float32), parsable, answer_id)

  def difficulty(facts: Countdown):
    num_products = jnp.sum(facts.used & (facts.operator == TIMES))
    return (jnp.sum(demonstration(facts)[1]) - 1 + num_products + jnp.sum(~facts.used)).astype(jnp.float32)

  return GraphTask(
    "countdown", symbols, pad_id, stop_id, prompt_tokens, max_new_tokens, num_train, num_eval,
    lambda prompt_id: draw_split(seed, prompt_id, draw, prompt),
    prompt, verify, demonstration, difficulty, functools.partial(host_verify, use_all=use_all),
  )  # fmt: skip


def _check(num_numbers, max_number, operators, max_target):
  tk.check_size("num_numbers", num_numbers, 2, 16)
  tk.check_size("max_number", max_number, 2, 30_000)
  tk.check_size("max_target", max_target, max_number, 10**8)
  if not operators or set(operators) - set(OPERATORS) or len(set(operators)) != len(operators):
    raise ValueError(f"operators must be some of '+-*', each once, got {operators!r}")
  largest = max_number**num_numbers if "*" in operators else max_number * num_numbers
  if "-" not in operators and largest > max_target:
    raise ValueError(f"operators {operators!r} need max_target >= {largest}, the largest value, got {max_target}")


def _put(value, number, in_front, noise, used, operators, max_target):
  """The value after `number` is joined to it by one of the operators that keep it in range, drawn by `noise`.

  Of a difference the larger is the left operand, so that with "-" there always is such an operator.
  """
  results = jnp.array([value + number, jnp.abs(value - number), value * number])
  product_fits = (value > 0) & (number <= max_target // jnp.maximum(value, 1))  # a factor 0 would make others idle
  allowed = jnp.array([results[0] <= max_target, True, product_fits]) & jnp.array([o in operators for o in OPERATORS])
  choice = jnp.argmax(jnp.where(allowed, noise, -1))
  in_front = jnp.where(choice == 1, (number > value) | ((number == value) & in_front), in_front)
  return jnp.where(used, results[choice], value), (PLUS + choice, in_front)


def _expression(facts: Countdown, num_digits: int) -> list[tk.Piece]:
  """Pieces of the demonstration, with the brackets that it needs."""
  pieces = [tk.number_tokens(facts.numbers[0], num_digits)]
  is_sum = jnp.array(False)
  for i in range(1, len(facts.numbers)):
    operator, in_front, used = facts.operator[i], facts.in_front[i], facts.used[i]
    bracket = used & is_sum & ((operator == TIMES) | (in_front & (operator == MINUS)))
    tokens, mask = tk.number_tokens(facts.numbers[i], num_digits)
    front, back = used & in_front, used & ~in_front
    before = [(tokens, mask & front), tk.literal(operator, keep=front), tk.literal(OPEN, keep=bracket)]
    after = [tk.literal(CLOSE, keep=bracket), tk.literal(operator, keep=back), (tokens, mask & back)]
    pieces = [*before, *pieces, *after]
    is_sum = jnp.where(used, operator != TIMES, is_sum)
  return pieces


class Machine(NamedTuple):
  total: Any  # Int32[""]   terms of this level that are complete
  product: Any  # Int32[""]   signed term being read
  above: Any  # Int32["d 2"] total and product of the levels around it, nearest first
  depth: Any  # Int32[""]
  number: Any  # Int32[""]   being read
  num_digits: Any  # Int32[""]   of it; 0: none is being read
  wants: Any  # Bool[""]    a number or an open bracket has to come
  valid: Any  # Bool[""]    nothing has been out of place or beyond the limit
  unused: Any  # Bool["m"]   given numbers not used yet
  given: Any  # Bool[""]    every number so far was given and unused


def evaluate(
  tokens: Int[Array, "a"], mask: Bool[Array, "a"], stop_id: int, numbers: Int[Array, "m"]
) -> tuple[Any, Any, Any, Any]:
  """The value of an expression that ends with a stop token, whether it is one, which of `numbers` are unused, and
  whether it uses no others."""

  def step(machine: Machine, token_and_mask):
    token, keep = token_and_mask
    after = _read(_end_number(machine, (token < 0) | (token > 9), numbers), token, stop_id)
    return jax.tree.map(lambda new, old: jnp.where(keep, new, old), after, machine), None

  zero, true = jnp.int32(0), jnp.array(True)
  above = jnp.zeros((MAX_DEPTH, 2), jnp.int32)
  start = Machine(zero, jnp.int32(1), above, zero, zero, zero, true, true, jnp.ones(len(numbers), bool), true)
  end = jax.lax.scan(step, start, (tokens.astype(jnp.int32), mask))[0]
  return end.total, end.valid, end.unused, end.given


def _end_number(machine: Machine, now: Bool[Array, ""], numbers: Int[Array, "m"]) -> Machine:
  """Multiplies the number being read, if there is one, into the product."""
  now = now & (machine.num_digits > 0)
  product, fits = _times(machine.product, machine.number)
  same = machine.unused & (numbers == machine.number)
  first = same & (jnp.cumsum(same) == 1)
  return machine._replace(
    product=jnp.where(now, product, machine.product),
    number=jnp.where(now, 0, machine.number),
    num_digits=jnp.where(now, 0, machine.num_digits),
    wants=machine.wants & ~now,
    valid=machine.valid & (fits | ~now),
    unused=machine.unused & ~(first & now),
    given=machine.given & (jnp.any(same) | ~now),
  )


def _read(machine: Machine, token: Int[Array, ""], stop_id: int) -> Machine:
  """Takes in one token; numbers before it have ended."""
  digit, add, times = (token >= 0) & (token <= 9), (token == PLUS) | (token == MINUS), token == TIMES
  opens, closes, stops = token == OPEN, token == CLOSE, token == stop_id
  total, product, above, depth, number, num_digits, wants, valid, *_ = machine
  value = total + product
  closed, fits = _times(above[0, 1], value)
  goes_on = (num_digits < tk.MAX_DIGITS) & ((num_digits == 0) | (number > 0))  # no leading zero
  legal = (
    (digit & wants & goes_on) | ((add | times) & ~wants) | (opens & wants & (depth < MAX_DEPTH))
    | (closes & ~wants & (depth > 0) & fits) | (stops & ~wants & (depth == 0))
  )  # fmt: skip
  level = jnp.stack([total, product])[None, :]
  pushed, popped = jnp.concatenate([level, above[:-1]]), jnp.concatenate([above[1:], jnp.zeros_like(level)])
  return machine._replace(
    total=jnp.select([add | stops, opens, closes], [value, 0, above[0, 0]], total),
    product=jnp.select([add, opens, closes], [jnp.where(token == MINUS, -1, 1), 1, closed], product),
    above=jnp.where(opens, pushed, jnp.where(closes, popped, above)),
    depth=depth + opens - closes,
    number=jnp.where(digit, 10 * number + token, number),
    num_digits=num_digits + digit,
    wants=add | times | opens | (digit & wants),
    valid=valid & legal & (~(add | closes | stops) | (jnp.abs(value) <= LIMIT)),
  )


def _times(a: Int[Array, ""], b: Int[Array, ""]) -> tuple[Any, Any]:
  """The product, and whether it is within the limit; 0 where it is not."""
  fits = jnp.abs(a) <= LIMIT // jnp.maximum(jnp.abs(b), 1)
  return jnp.where(fits, a * b, 0), fits


def host_verify(prompt: str, completion: str, use_all: bool = True) -> float:
  """The same verdict from the texts of a problem and of a completion that stopped, by recursive descent."""
  *numbers, target = map(int, re.findall(r"[0-9]+", prompt))
  left = re.findall(r"[0-9]+|[^0-9]", completion) + ["end"]
  try:
    value = _host_sum(left, numbers, 0)
  except ValueError:
    return 0.0
  return float(left == ["end"] and value == target and not (use_all and numbers))


def _host_sum(left: list[str], numbers: list[int], depth: int) -> int:
  """The value of the longest sum that `left` begins with; takes it from there, and its numbers from `numbers`."""
  value = _host_product(left, numbers, depth)
  while left[0] in "+-":
    sign = 1 if left.pop(0) == "+" else -1
    value = _host_bounded(value + sign * _host_product(left, numbers, depth))
  return value


def _host_product(left: list[str], numbers: list[int], depth: int) -> int:
  value = _host_factor(left, numbers, depth)
  while left[0] == "*":
    left.pop(0)
    value = _host_bounded(value * _host_factor(left, numbers, depth))
  return value


def _host_factor(left: list[str], numbers: list[int], depth: int) -> int:
  token = left.pop(0)
  if token == "(" and depth < MAX_DEPTH:
    value = _host_sum(left, numbers, depth + 1)
    if left.pop(0) != ")":
      raise ValueError("a bracket is not closed")
    return value
  if not re.fullmatch(r"0|[1-9][0-9]{0,8}", token):
    raise ValueError(f"no number: {token}")
  numbers.remove(int(token))  # a ValueError where it is not there
  return int(token)


def _host_bounded(value: int) -> int:
  if abs(value) > LIMIT:
    raise ValueError(f"beyond the limit: {value}")
  return value
