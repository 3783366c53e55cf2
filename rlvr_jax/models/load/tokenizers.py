"""Tokenizers from any source as one type, transformers' fast tokenizer, without torch."""

import hashlib
import json
import logging
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rlvr_jax.core import nearest
from rlvr_jax.models.load import pieces as sp
from rlvr_jax.models.load.byte_pair import byte_pair_tokenizer

log = logging.getLogger(__name__)
ROLES = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}  # transformers' word -> GGUF's

TINY_TEMPLATE = (
  "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
  "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
  "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
  """One token per printable ASCII character or newline; any other character raises. `decode(encode(x)) == x`.

  The special tokens are spelt with non-ASCII brackets, so no text can contain one. Five reserved ones make the size
  104, a multiple of 8, so that the vocabulary can be sharded.
  """
  special = ["⟨pad⟩", "⟨bos⟩", "⟨eos⟩", *(f"⟨reserved{i}⟩" for i in range(5))]
  characters = ["\n", *(chr(i) for i in range(32, 127))]
  tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(special + characters)}, unk_token="⟨unk⟩"))
  tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
  tokenizer.decoder = decoders.Fuse()
  tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
  return PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token=special[0], bos_token=special[1], eos_token=special[2],
    chat_template=TINY_TEMPLATE, clean_up_tokenization_spaces=False,
  )  # fmt: skip


def sentencepiece_tokenizer(path: str | pathlib.Path) -> PreTrainedTokenizerFast:
  """A `.model` file: the ids of SentencePiece's own encoder; no token is added around the text."""
  pieces, roles = sp.pieces_from_model(path)
  named = {f"{role}_token": pieces.tokens[i] for role, i in roles.items() if i >= 0}
  return _finish(sp.pieces_tokenizer(pieces), pieces.tokens, pieces.types, named)


def gguf_tokenizer(metadata: Mapping[str, Any]) -> PreTrainedTokenizerFast:
  """The tokenizer that a GGUF header describes: vocabulary, special tokens, chat template, tokens added around text."""
  kind = metadata.get("tokenizer.ggml.model")
  builders = {"gpt2": byte_pair_tokenizer, "llama": lambda m: sp.pieces_tokenizer(sp.pieces_from_gguf(m))}
  if kind not in builders:
    raise ValueError(
      f"gguf: tokenizer.ggml.model {kind!r} is not supported{nearest(kind, builders)} It has {[*builders]}"
    )
  tokenizer, tokens = builders[kind](metadata), metadata["tokenizer.ggml.tokens"]
  ids = {ours: metadata.get(f"tokenizer.ggml.{theirs}_token_id") for ours, theirs in ROLES.items()}
  named = {f"{role}_token": tokens[i] for role, i in ids.items() if i is not None}
  # llama.cpp's defaults where the header is silent
  add_bos = metadata.get(
    "tokenizer.ggml.add_bos_token", kind == "llama" or metadata["tokenizer.ggml.pre"] == "llama-bpe"
  )
  add_eos = metadata.get("tokenizer.ggml.add_eos_token", False)
  around = [(named[f"{role}_token"], ids[role]) for role, add in (("bos", add_bos), ("eos", add_eos)) if add]
  if around:
    first, last = (around[0][0] if add_bos else ""), (around[-1][0] if add_eos else "")
    tokenizer.post_processor = processors.TemplateProcessing(
      single=" ".join(filter(None, [first, "$A", last])), special_tokens=around
    )
  extra = {"chat_template": metadata["tokenizer.chat_template"]} if "tokenizer.chat_template" in metadata else {}
  return _finish(tokenizer, tokens, metadata["tokenizer.ggml.token_type"], named | extra)


def _finish(tokenizer: Tokenizer, tokens, types, named: Mapping[str, str]) -> PreTrainedTokenizerFast:
  special = [t for t, kind in zip(tokens, types) if kind == sp.CONTROL or (kind == sp.UNKNOWN and t in named.values())]
  tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
  defined = [token for token, kind in zip(tokens, types) if kind == sp.USER_DEFINED]
  tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in defined])
  return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **named)


def directory_tokenizer(path: str | pathlib.Path) -> PreTrainedTokenizerFast:
  """The tokenizer of a Hugging Face directory: `tokenizer.json`, its SentencePiece model, or other vocabulary files."""
  path = pathlib.Path(path)
  if (path / "tokenizer.json").is_file():
    # tokenizer.json is the whole truth; the class named beside it may rebuild it differently
    return PreTrainedTokenizerFast.from_pretrained(path, clean_up_tokenization_spaces=False)
  found = sorted(path.glob("*.model"))
  if len(found) == 1:
    return sentencepiece_tokenizer(found[0])
  if not (path / "tokenizer_config.json").is_file():
    raise ValueError(f"{str(path)!r} has no tokenizer: expected tokenizer.json, one *.model or tokenizer_config.json")
  return AutoTokenizer.from_pretrained(path)


def end_of_turn(tokenizer: PreTrainedTokenizerFast) -> int | None:
  """The special token that the chat template writes after an assistant's message; None without template or token."""
  if not tokenizer.chat_template:
    return None
  message = "Zx7"
  turns = [dict(role="user", content="Zx8"), dict(role="assistant", content=message)]
  text = tokenizer.apply_chat_template(turns, tokenize=False)
  after = tokenizer.encode(text.partition(message)[2].lstrip(), add_special_tokens=False)
  return after[0] if after and after[0] in special_ids(tokenizer) else None


def special_ids(tokenizer: PreTrainedTokenizerFast) -> set[int]:
  return {i for i, token in tokenizer.added_tokens_decoder.items() if token.special} | set(tokenizer.all_special_ids)


def settle_padding(tokenizer: PreTrainedTokenizerFast, stop_ids: Iterable[int]) -> int:
  """Gives the tokenizer a pad token that is no stop token and returns its id, saying so in the log when it changes.

  Kept where the tokenizer's own will do; else the unknown token, else the first special token that is not stop or bos.
  Raises ValueError when there is none: with pad = eos, a mask made from ids would hide the end of every completion.
  """
  stop_ids = set(stop_ids)
  if tokenizer.pad_token_id is not None and tokenizer.pad_token_id not in stop_ids:
    return tokenizer.pad_token_id
  spare = [i for i in sorted(special_ids(tokenizer)) if i not in stop_ids and i != tokenizer.bos_token_id]
  chosen = tokenizer.unk_token_id if tokenizer.unk_token_id in spare else next(iter(spare), None)
  if chosen is None:
    raise ValueError(
      f"the tokenizer needs a pad token that is no stop token, got pad_token_id={tokenizer.pad_token_id}, "
      f"stop ids {sorted(stop_ids)} and no other special token"
    )
  token = tokenizer.convert_ids_to_tokens(chosen)
  log.warning("pad token %r is missing or a stop token; %r (id %d) pads instead", tokenizer.pad_token, token, chosen)
  tokenizer.pad_token = token
  return chosen


def check_vocabulary(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> None:
  """Raises ValueError when the tokenizer has an id without a row in the embedding; spare rows are allowed."""
  largest = max(tokenizer.get_vocab().values())
  if largest >= vocab_size:
    raise ValueError(
      f"vocabulary mismatch: every token id must be below the embedding's {vocab_size} rows, "
      f"the tokenizer's largest id is {largest} ({len(tokenizer)} tokens)"
    )


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
  """sha256 over every (id, token) and the ids that are special: equal means that token ids can be exchanged."""
  vocab = sorted((i, token) for token, i in tokenizer.get_vocab().items())
  special = sorted(i for i, token in tokenizer.added_tokens_decoder.items() if token.special)
  return hashlib.sha256(json.dumps([vocab, special]).encode()).hexdigest()
