"""Few decisions between much filler: a chain whose every token but D is copied from the prompt.

  prompt      37x12y=                  two digits and a letter for each of the D decisions
  completion  0xxxx3yyyy               the digits' sum modulo `modulus`, then the letter `num_filler` times; then stop

Right if all decisions are: the reward comes at the end, and a discount per token takes the more of it the longer the
filler, though the decisions stay the same. Action token j is a decision where j % (1 + num_filler) == 0.

Ref: InfoPPO, arXiv:2609.24380: filler of low entropy between decisions, num_filler swept from 0 to 50.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from rlvr_jax.tasks.graph import tokens as tk
from rlvr_jax.tasks.graph.types import GraphTask, GraphVerdict, draw_split

LETTERS = "wxyz"
SYMBOLS, PAD, STOP = tk.vocabulary(tk.DIGITS + LETTERS + "=")
LETTER, EQUALS = (SYMBOLS.index(symbol) for symbol in "w=")


class FillerChain(NamedTuple):
  digits: Any  # Int["D 2"]
  letter: Any  # Int["D"]   in [0, 4)
  decision: Any  # Int["D"]   the right digit


def filler_chain(
  *,
  num_decisions: int = 4,
  num_filler: int = 8,
  modulus: int = 10,
  strict: bool = False,
  num_train: int = 4096,
  num_eval: int = 256,
  seed: int = 0,
) -> GraphTask:
  """The problems do not depend on `num_filler` or `strict`. Difficulty: how many of the sums wrap round.

  The length must be exact, with a digit at every decision and letters between them. Two answers share an `answer_id`
  with probability 2**-31: it is a hash of the tokens that count.

  Args:
    num_filler: filler tokens after each decision.
    modulus:    of the sums; digits are below it.
    strict:     a wrong letter makes the completion wrong; otherwise any letter will do and only decisions count.

  Raises: ValueError for numbers out of range, or when there are too few different problems.
  """
  tk.check_size("num_decisions", num_decisions, 1)
  tk.check_size("num_filler", num_filler, 0)
  tk.check_size("modulus", modulus, 2, 10)
  tk.check_splits("filler_chain", (modulus**2 * len(LETTERS)) ** num_decisions, num_train, num_eval)

  def draw(key):
    digits, letter = tk.draw_integers(key, (2 * num_decisions, modulus), (num_decisions, len(LETTERS)))
    digits = digits.reshape(num_decisions, 2)
    return FillerChain(digits, letter, jnp.sum(digits, axis=1) % modulus)

  def verify(facts: FillerChain, tokens: Int[Array, "a"], mask: Bool[Array, "a"]) -> GraphVerdict:
    return _verify(facts, tokens, mask, num_filler, strict)

  def host_verify(prompt: str, completion: str) -> float:
    return _host_verify(prompt, completion, num_filler, modulus, strict)

  return GraphTask(
    name="filler_chain",
    symbols=SYMBOLS,
    pad_id=PAD,
    stop_id=STOP,
    prompt_tokens=3 * num_decisions + 1,
    max_new_tokens=num_decisions * (1 + num_filler) + 1,
    num_train=num_train,
    num_eval=num_eval,
    problem=lambda prompt_id: draw_split(seed, prompt_id, draw, _prompt),
    prompt=_prompt,
    verify=verify,
    demonstration=lambda facts: _demonstration(facts, num_filler),
    difficulty=lambda facts: jnp.sum(jnp.sum(facts.digits, axis=1) >= modulus, dtype=jnp.float32),
    host_verify=host_verify,
  )


def _prompt(facts: FillerChain):
  rows = jnp.concatenate([facts.digits, LETTER + facts.letter[:, None]], axis=1)
  tokens = jnp.append(rows.reshape(-1), EQUALS)
  return tokens, jnp.ones(tokens.shape, bool)


def _demonstration(facts: FillerChain, num_filler: int):
  filler = jnp.repeat(LETTER + facts.letter[:, None], num_filler, axis=1)
  tokens = jnp.append(jnp.concatenate([facts.decision[:, None], filler], axis=1).reshape(-1), STOP)
  return tokens, jnp.ones(tokens.shape, bool)


def _verify(facts: FillerChain, tokens, mask, num_filler: int, strict: bool) -> GraphVerdict:
  wanted = _demonstration(facts, num_filler)[0][:-1]
  inside, ended = tk.body(tokens, mask, STOP)
  place = jnp.cumsum(inside) - 1  # of each token among those inside
  decides = inside & (place % (1 + num_filler) == 0)
  is_digit = (tokens >= 0) & (tokens < 10)
  is_letter = (tokens >= LETTER) & (tokens < LETTER + len(LETTERS))
  legal = jnp.where(decides, is_digit, is_letter)
  parsable = ended & (jnp.sum(inside) == len(wanted)) & jnp.all(legal | ~inside)
  counts = inside if strict else decides
  right = parsable & jnp.all((tokens == wanted[jnp.clip(place, 0, len(wanted) - 1)]) | ~counts)
  answer_id = jnp.where(parsable, tk.sequence_id(tokens, counts), -1)
  return GraphVerdict(right.astype(jnp.float32), parsable, answer_id)


def _host_verify(prompt: str, completion: str, num_filler: int, modulus: int, strict: bool) -> float:
  asked = [prompt[i : i + 3] for i in range(0, len(prompt) - 1, 3)]
  if len(completion) != len(asked) * (1 + num_filler):
    return 0.0
  given = [completion[i : i + 1 + num_filler] for i in range(0, len(completion), 1 + num_filler)]
  for (first, second, letter), block in zip(asked, given):
    if block[0] != str((int(first) + int(second)) % modulus):
      return 0.0
    if any(symbol != letter if strict else symbol not in LETTERS for symbol in block[1:]):
      return 0.0
  return 1.0
