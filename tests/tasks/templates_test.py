"""Golden token sequences of both templates, and their errors."""

import pytest

from rlvr_jax.tasks.templates import chat, plain

MESSAGES = [dict(role="user", content="a"), dict(role="assistant", content="b"), dict(role="user", content="c")]


def tokens(tokenizer, ids):
  return tokenizer.convert_ids_to_tokens(ids)


def test_chat_is_the_template_up_to_the_assistant(tokenizer):
  ids = chat()(tokenizer, "1+2")
  assert tokens(tokenizer, ids) == [
    "<|im_start|>", *"user\n1+2", "<|im_end|>", "\n", "<|im_start|>", *"assistant\n",
  ]  # fmt: skip
  whole = tokenizer.apply_chat_template([dict(role="user", content="1+2")], add_generation_prompt=True)
  assert ids == whole["input_ids"]


def test_chat_system_and_suffix(tokenizer):
  ids = chat(system="be h", suffix="\nhint")(tokenizer, "1+2")
  assert tokenizer.decode(ids) == (
    "<|im_start|>system\nbe h<|im_end|>\n<|im_start|>user\n1+2\nhint<|im_end|>\n<|im_start|>assistant\n"
  )
  assert tokenizer.decode(chat(system="")(tokenizer, "1")).startswith("<|im_start|>system\n<|im_end|>\n")


def test_chat_takes_messages_and_leaves_them_alone(tokenizer):
  text = tokenizer.decode(chat(suffix="x")(tokenizer, MESSAGES))
  assert text.endswith("<|im_start|>user\ncx<|im_end|>\n<|im_start|>assistant\n") and text.count("<|im_start|>") == 4
  assert MESSAGES[-1]["content"] == "c"


def test_chat_passes_options(make_tokenizer):
  tokenizer = make_tokenizer(chat_template="{% if think is defined and not think %}x{% endif %}a")
  assert tokenizer.decode(chat(options=dict(think=False))(tokenizer, "1")) == "xa"
  assert tokenizer.decode(chat()(tokenizer, "1")) == "a"


def test_chat_gives_one_bos(make_tokenizer):
  """The template writes BOS and the tokenizer would add another one, and an EOS."""
  tokenizer = make_tokenizer(adds_bos=True, chat_template="{{ bos_token }}{{ messages[0].content }}=")
  assert tokens(tokenizer, chat()(tokenizer, "12")) == ["<s>", "1", "2", "="]
  twice = make_tokenizer(chat_template="{{ bos_token }}{{ bos_token }}a")
  with pytest.raises(ValueError, match="two BOS"):
    chat()(twice, "1")


def test_chat_errors(make_tokenizer, tokenizer):
  with pytest.raises(ValueError, match="use 'plain'"):
    chat()(make_tokenizer(chat_template=None), "1")
  with pytest.raises(ValueError, match="system message of its own"):
    chat(system="a")(tokenizer, [dict(role="system", content="b"), dict(role="user", content="c")])
  with pytest.raises(ValueError, match="must be the user's, got role 'assistant'"):
    chat()(tokenizer, MESSAGES[:2])


def test_plain_adds_what_the_tokenizer_adds_in_front_and_never_eos(make_tokenizer, tokenizer):
  assert tokens(tokenizer, plain()(tokenizer, "1+2")) == ["1", "+", "2"]
  adding = make_tokenizer(adds_bos=True)
  assert tokens(adding, plain()(adding, "1+2")) == ["<s>", "1", "+", "2"]
  assert tokens(adding, plain("<s>{prompt}")(adding, "1")) == ["<s>", "1"]


def test_plain_format_and_system(tokenizer):
  assert tokenizer.decode(plain("q {prompt} \\boxed{}", system="sys")(tokenizer, "1")) == "sys\n\nq 1 \\boxed{}"


def test_plain_errors(tokenizer):
  with pytest.raises(ValueError, match="needs '{prompt}' in format, got 'Q:'"):
    plain("Q:")
  with pytest.raises(ValueError, match="use 'chat'"):
    plain()(tokenizer, MESSAGES)
