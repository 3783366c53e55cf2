"""Tokenizers against SentencePiece itself, against hand-written splits, and through a save."""

import io
import logging
import random

import pytest
import sentencepiece

from rlvr_jax.models.load import load_tokenizer, tokenizer_fingerprint
from rlvr_jax.models.load import tokenizers as tok
from rlvr_jax.models.load.byte_pair import PRE_TOKENIZERS, byte_pair_tokenizer
from rlvr_jax.models.load.model import make_generation, stop_ids

TEXT = "the cat sat on the mat and the dog sat on the log while the rain ran down the lane again and again"
SAMPLES = [
  TEXT,
  "",
  " ",
  "  the  cat ",
  "cat\ndog\tlog",
  "the cat's 12 mats, 345!",
  "été ñandú",
  "中文 cat",
  "🙂 the",
  "▁the",
]
CHATML = (
  "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def sentencepiece_model(tmp_path, **kwargs):
  """Path of a model trained on one sentence, and SentencePiece's own processor of it."""
  out = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter([TEXT] * 50),
    model_writer=out,
    hard_vocab_limit=False,
    minloglevel=2,
    num_threads=1,
    **kwargs,
  )
  path = tmp_path / "spm.model"
  path.write_bytes(out.getvalue())
  return path, sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def byte_pair_metadata(pre="gpt-2", words=("the", " the"), **extra):
  """GGUF metadata of a tiny byte-level tokenizer: all bytes, merges that build `words`, then three special tokens."""
  from tokenizers import pre_tokenizers

  spell = lambda word: word.replace(" ", "Ġ")
  tokens, merges = sorted(pre_tokenizers.ByteLevel.alphabet()), []
  for word in map(spell, words):
    for end in range(2, len(word) + 1):
      if word[:end] not in tokens:
        tokens.append(word[:end])
        merges.append(f"{word[: end - 1]} {word[end - 1]}")
  special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
  first = len(tokens)
  return {
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens + special,
    "tokenizer.ggml.token_type": [1] * first + [3] * 3, "tokenizer.ggml.merges": merges,
    "tokenizer.ggml.unknown_token_id": first, "tokenizer.ggml.bos_token_id": first + 1,
    "tokenizer.ggml.eos_token_id": first + 2, "tokenizer.ggml.padding_token_id": first + 2,
    "tokenizer.chat_template": CHATML,
  } | {f"tokenizer.ggml.{k}": v for k, v in extra.items()}  # fmt: skip


def test_tiny_tokenizer_gives_back_every_text():
  tokenizer = load_tokenizer("tiny")
  alphabet = "\n" + "".join(map(chr, range(32, 127)))
  rng = random.Random(0)
  texts = [alphabet, "", " ", "  a  b ,. ' n't \n\n", "<pad> <eos></s>"]
  texts += ["".join(rng.choices(alphabet, k=rng.randrange(60))) for _ in range(100)]
  for text in texts:
    ids = tokenizer.encode(text)
    assert len(ids) == len(text) and tokenizer.decode(ids) == text
  assert len(tokenizer) == 104 and tokenizer.pad_token_id != tokenizer.eos_token_id
  assert max(tokenizer.get_vocab().values()) == 103


def test_tiny_tokenizer_drops_no_character():
  with pytest.raises(Exception, match="UNK"):
    load_tokenizer("tiny").encode("caf\N{LATIN SMALL LETTER E WITH ACUTE}")


@pytest.mark.parametrize("kwargs", [
  dict(model_type="bpe", vocab_size=320, byte_fallback=True),
  dict(model_type="bpe", vocab_size=60, normalization_rule_name="identity", remove_extra_whitespaces=False),
  dict(model_type="unigram", vocab_size=60),
  dict(model_type="unigram", vocab_size=330, byte_fallback=True, add_dummy_prefix=False),
], ids=["bpe-bytes", "bpe-identity", "unigram", "unigram-bytes"])  # fmt: skip
def test_sentencepiece_ids_are_those_of_sentencepiece(tmp_path, kwargs):
  path, processor = sentencepiece_model(tmp_path, pad_id=3, **kwargs)
  tokenizer = load_tokenizer(path)
  for text in SAMPLES:
    assert tokenizer.encode(text) == processor.encode(text), text
  assert tokenizer.decode(tokenizer.encode("the cat sat")) == "the cat sat"
  assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 3)


@pytest.mark.parametrize("prefix", [True, False])
def test_gguf_sentencepiece_is_the_same_vocabulary(tmp_path, prefix):
  _, processor = sentencepiece_model(
    tmp_path, model_type="bpe", vocab_size=330, byte_fallback=True, normalization_rule_name="identity",
    remove_extra_whitespaces=False, add_dummy_prefix=prefix,
  )  # fmt: skip
  size = processor.vocab_size()
  kinds = [2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 6 if processor.is_byte(i) else 1
           for i in range(size)]  # fmt: skip
  metadata = {
    "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": [processor.id_to_piece(i) for i in range(size)],
    "tokenizer.ggml.scores": [processor.get_score(i) for i in range(size)], "tokenizer.ggml.token_type": kinds,
    "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.add_space_prefix": prefix,
  }  # fmt: skip
  tokenizer = tok.gguf_tokenizer(metadata)
  for text in SAMPLES:
    assert tokenizer.encode(text, add_special_tokens=False) == processor.encode(text), text
    assert tokenizer.encode(text) == [1, *processor.encode(text)]  # llama.cpp adds bos unless the header says no
  assert tok.gguf_tokenizer(metadata | {"tokenizer.ggml.add_bos_token": False}).encode("cat") == processor.encode("cat")


@pytest.mark.parametrize("pre, expected", [
  ("gpt-2", ["I", "'ll", " add", " 12345", " +", " x", "\n", "\n", "ok"]),
  ("smollm", ["I", "'ll", " add", " ", "1", "2", "3", "4", "5", " +", " x", "\n", "\n", "ok"]),
  ("llama-bpe", ["I", "'ll", " add", " ", "123", "45", " +", " x", "\n\n", "ok"]),
  ("qwen2", ["I", "'ll", " add", " ", "1", "2", "3", "4", "5", " +", " x", "\n\n", "ok"]),
])  # fmt: skip
def test_pre_tokenizer_splits_as_the_model_was_trained(pre, expected):
  """Hand-split: GPT-2 keeps numbers whole, SmolLM and Qwen2 take digits singly, Llama 3 by threes; only the last two
  keep a run of newlines together."""
  tokenizer = byte_pair_tokenizer(byte_pair_metadata(pre))
  parts = tokenizer.pre_tokenizer.pre_tokenize_str("I'll add 12345 + x\n\nok")
  assert [part.replace("Ġ", " ").replace("Ċ", "\n") for part, _ in parts] == expected
  assert set(PRE_TOKENIZERS) == {"gpt-2", "smollm", "llama-bpe", "qwen2"}


def test_llama_bpe_takes_whole_words_without_merges():
  metadata = byte_pair_metadata("llama-bpe") | {"tokenizer.ggml.merges": []}
  assert tok.gguf_tokenizer(metadata).convert_ids_to_tokens(tok.gguf_tokenizer(metadata).encode("the"))[1:] == ["the"]
  metadata["tokenizer.ggml.pre"] = "qwen2"
  assert len(tok.gguf_tokenizer(metadata).encode("the")) == 3


def test_byte_level_roundtrip_special_tokens_and_template():
  tokenizer = tok.gguf_tokenizer(byte_pair_metadata("smollm"))
  for text in [s for s in SAMPLES if s] + ["  n't , .\n"]:
    assert tokenizer.decode(tokenizer.encode(text)) == text
  prompt = tokenizer.apply_chat_template([dict(role="user", content="the")], tokenize=False, add_generation_prompt=True)
  assert prompt == "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n"
  ids = tokenizer.encode(prompt)
  assert ids[0] == tokenizer.bos_token_id and ids.count(tokenizer.bos_token_id) == 2  # none doubled, none added
  assert tok.end_of_turn(tokenizer) == tokenizer.eos_token_id
  assert "<|im" not in tokenizer.decode(ids, skip_special_tokens=True)


def test_added_bos_and_eos_follow_the_header():
  plain = tok.gguf_tokenizer(byte_pair_metadata()).encode("the")
  bos, eos = (tok.gguf_tokenizer(byte_pair_metadata()).convert_tokens_to_ids(t) for t in ("<|im_start|>", "<|im_end|>"))
  around = lambda **flags: tok.gguf_tokenizer(byte_pair_metadata(**flags)).encode("the")
  assert around(add_bos_token=True) == [bos, *plain]
  assert around(add_eos_token=True) == [*plain, eos]
  assert around(add_bos_token=True, add_eos_token=True) == [bos, *plain, eos]
  assert tok.gguf_tokenizer(byte_pair_metadata("llama-bpe")).encode("the")[0] == bos


def test_pad_that_ends_texts_is_replaced_aloud(caplog):
  tokenizer = tok.gguf_tokenizer(byte_pair_metadata())
  assert tokenizer.pad_token_id == tokenizer.eos_token_id
  with caplog.at_level(logging.WARNING):
    generation = make_generation(tokenizer, {}, {})
  assert generation.stop_ids == (tokenizer.eos_token_id,)
  assert generation.pad_id == tokenizer.pad_token_id == tokenizer.convert_tokens_to_ids("<|endoftext|>")
  assert "<|im_end|>" in caplog.text and "<|endoftext|>" in caplog.text


def test_no_possible_pad_raises():
  tokenizer = tok.gguf_tokenizer(byte_pair_metadata())
  every = tok.special_ids(tokenizer)
  with pytest.raises(ValueError, match="pad token that is no stop token"):
    tok.settle_padding(tokenizer, every)


def test_stop_ids_gather_every_source():
  tokenizer = tok.gguf_tokenizer(byte_pair_metadata())
  end = tokenizer.convert_tokens_to_ids("<|im_end|>")
  tokenizer.eos_token = "<|endoftext|>"  # as in a base model with a chat template
  assert stop_ids(tokenizer, {"eos_token_id": 5}, {"eos_token_id": [7, 5]}) == (5, 7, end - 2, end)
  assert stop_ids(tokenizer, {"eos_token_id": None}, {}) == (end - 2, end)


def test_generation_keeps_stated_sampling():
  generation = make_generation(load_tokenizer("tiny"), {}, {"temperature": 0.6, "top_p": 0.9})
  assert (generation.temperature, generation.top_k, generation.top_p) == (0.6, None, 0.9)


def test_directory_gives_the_same_tokenizer_back(tmp_path):
  for name, tokenizer in [("tiny", load_tokenizer("tiny")), ("bpe", tok.gguf_tokenizer(byte_pair_metadata("smollm")))]:
    tokenizer.save_pretrained(tmp_path / name)
    again = tok.directory_tokenizer(tmp_path / name)
    text = "the cat's 12 , .\n  ok"
    assert again.encode(text) == tokenizer.encode(text) and again.decode(again.encode(text)) == text
    assert again.chat_template == tokenizer.chat_template and len(again) == len(tokenizer)
    assert (again.eos_token_id, again.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert tokenizer_fingerprint(again) == tokenizer_fingerprint(tokenizer)


def test_directory_with_only_a_sentencepiece_model(tmp_path):
  _, processor = sentencepiece_model(tmp_path, model_type="bpe", vocab_size=60)
  assert load_tokenizer(tmp_path).encode("the cat") == processor.encode("the cat")


def test_directory_without_a_tokenizer_raises(tmp_path):
  with pytest.raises(ValueError, match="has no tokenizer"):
    load_tokenizer(tmp_path)


def test_fingerprint_tells_vocabularies_apart():
  metadata = byte_pair_metadata()
  swapped = dict(metadata)
  tokens = list(metadata["tokenizer.ggml.tokens"])
  tokens[0], tokens[1] = tokens[1], tokens[0]
  swapped["tokenizer.ggml.tokens"] = tokens
  first, again, other = (tokenizer_fingerprint(tok.gguf_tokenizer(m)) for m in (metadata, dict(metadata), swapped))
  assert first == again != other
  control = dict(metadata, **{"tokenizer.ggml.token_type": [3, *metadata["tokenizer.ggml.token_type"][1:]]})
  assert tokenizer_fingerprint(tok.gguf_tokenizer(control)) != first  # same words, one more special


def test_vocabulary_mismatch_names_both_numbers():
  tok.check_vocabulary(load_tokenizer("tiny"), 104)
  tok.check_vocabulary(load_tokenizer("tiny"), 128)
  with pytest.raises(ValueError, match=r"103 rows.* 103 \(104 tokens\)"):
    tok.check_vocabulary(load_tokenizer("tiny"), 103)


@pytest.mark.parametrize("change, message", [
  ({"tokenizer.ggml.pre": "smolm"}, "did you mean 'smollm'"),
  ({"tokenizer.ggml.model": "bert"}, "tokenizer.ggml.model 'bert' is not supported"),
])  # fmt: skip
def test_unsupported_gguf_tokenizer_is_named(change, message):
  with pytest.raises(ValueError, match=message):
    tok.gguf_tokenizer(byte_pair_metadata() | change)


def test_file_that_is_no_sentencepiece_model(tmp_path):
  (tmp_path / "x.model").write_bytes(b"not a model")
  with pytest.raises(ValueError, match="SentencePiece"):
    load_tokenizer(tmp_path / "x.model")
