"""A character tokenizer with a ChatML template, made on the spot."""

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rlvr_jax.tasks import Example

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>"]
CHARACTERS = "0123456789+-=; \nabcdefghijklmnopqrstuvwxyzH.{}\\"
CHATML = (
  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def make_tokenizer():
  def make(adds_bos: bool = False, chat_template: str | None = CHATML):
    vocab = {token: i for i, token in enumerate(SPECIAL + list(CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    if adds_bos:
      tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", vocab["<s>"]), ("</s>", vocab["</s>"])]
      )
    fast = PreTrainedTokenizerFast(
      tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    fast.chat_template = chat_template
    return fast

  return make


@pytest.fixture
def tokenizer(make_tokenizer):
  return make_tokenizer()


@pytest.fixture
def make_examples():
  """Prompts "0=", "1=", ... with ids from 100 on."""

  def make(num: int):
    return tuple(Example(100 + i, f"{i}=", str(i), f"{i};", {}) for i in range(num))

  return make
