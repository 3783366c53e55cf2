"""Byte-level BPE tokenizers of GGUF files (`tokenizer.ggml.model = "gpt2"`), built with the `tokenizers` library."""

from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from rlvr_jax.core import nearest

LLAMA3_SPLIT = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def _bytes(use_regex: bool):
  return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def _split(pattern: str):
  return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), _bytes(use_regex=False)])


# `tokenizer.ggml.pre` -> (pre-tokenizer, do whole words in the vocabulary skip the merges). Source: llama.cpp.
PRE_TOKENIZERS = {
  "gpt-2": lambda: (_bytes(use_regex=True), False),
  "smollm": lambda: (
    pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _bytes(use_regex=True)]),
    False,
  ),
  "llama-bpe": lambda: (_split(LLAMA3_SPLIT), True),
  "qwen2": lambda: (_split(QWEN2_SPLIT), False),
}


def byte_pair_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
  """The tokenizer without its special tokens. Raises ValueError for a `tokenizer.ggml.pre` outside the table."""
  pre = metadata.get("tokenizer.ggml.pre")
  if pre not in PRE_TOKENIZERS:
    raise ValueError(
      f"gguf: tokenizer.ggml.pre {pre!r} is not supported{nearest(pre, PRE_TOKENIZERS)} "
      f"Supported: {sorted(PRE_TOKENIZERS)}"
    )
  pre_tokenizer, ignore_merges = PRE_TOKENIZERS[pre]()
  vocab = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
  merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
  tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=False, ignore_merges=ignore_merges))
  if pre == "qwen2":
    tokenizer.normalizer = normalizers.NFC()
  tokenizer.pre_tokenizer = pre_tokenizer
  tokenizer.decoder = decoders.ByteLevel()
  return tokenizer
