"""SentencePiece vocabularies, from a `.model` file or from GGUF metadata, as `tokenizers` objects."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tokenizers import Regex, Tokenizer, decoders, models, normalizers

# Piece types, the same numbers in SentencePiece's protobuf and in GGUF.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "▁"


class Pieces(NamedTuple):
  """What a SentencePiece model says; `kind` is "bpe" or "unigram", `types` use the constants above."""

  tokens: Sequence[str]
  scores: Sequence[float]
  types: Sequence[int]
  kind: str
  space_prefix: bool
  collapse_spaces: bool = False
  normalisation: bytes = b""


def pieces_from_model(path: str | pathlib.Path) -> tuple[Pieces, dict[str, int]]:
  """Pieces of a `.model` file and its token ids by role ("bos", "eos", "pad", "unk"), -1 where it has none."""
  from sentencepiece import sentencepiece_model_pb2  # needs protobuf, which only this format does

  model = sentencepiece_model_pb2.ModelProto()
  try:
    model.ParseFromString(pathlib.Path(path).read_bytes())
  except Exception as error:  # protobuf's DecodeError moves between its versions
    raise ValueError(f"{str(path)!r} is not a SentencePiece model: {error}") from error
  kinds = {1: "unigram", 2: "bpe"}
  trainer, normaliser = model.trainer_spec, model.normalizer_spec
  if not model.pieces or trainer.model_type not in kinds:
    raise ValueError(
      f"{str(path)!r}: needs a SentencePiece model of type unigram or bpe, got type {trainer.model_type}"
    )
  if not normaliser.escape_whitespaces or trainer.treat_whitespace_as_suffix:
    raise ValueError(f"{str(path)!r}: SentencePiece models without escaped, leading spaces are not supported")
  pieces = Pieces(
    [p.piece for p in model.pieces], [p.score for p in model.pieces], [p.type for p in model.pieces],
    kinds[trainer.model_type], normaliser.add_dummy_prefix, normaliser.remove_extra_whitespaces,
    normaliser.precompiled_charsmap,
  )  # fmt: skip
  return pieces, {role: getattr(trainer, f"{role}_id") for role in ("bos", "eos", "pad", "unk")}


def pieces_from_gguf(metadata: Mapping[str, Any]) -> Pieces:
  """Pieces of `tokenizer.ggml.model = "llama"`: SentencePiece BPE without a normalisation table."""
  names = ("tokens", "scores", "token_type")
  return Pieces(
    *(metadata[f"tokenizer.ggml.{name}"] for name in names),
    kind="bpe", space_prefix=metadata.get("tokenizer.ggml.add_space_prefix", True),
  )  # fmt: skip


def pieces_tokenizer(pieces: Pieces) -> Tokenizer:
  """The tokenizer without its special tokens; it answers SentencePiece's own ids for any text without them."""
  unknown = next((i for i, kind in enumerate(pieces.types) if kind == UNKNOWN), None)
  byte_fallback = BYTE in pieces.types
  if pieces.kind == "unigram":
    model = models.Unigram(list(zip(pieces.tokens, pieces.scores)), unk_id=unknown, byte_fallback=byte_fallback)
  else:
    vocab = {token: i for i, token in enumerate(pieces.tokens)}
    model = models.BPE(
      vocab=vocab, merges=_merges(pieces, vocab), unk_token=None if unknown is None else pieces.tokens[unknown],
      fuse_unk=True, byte_fallback=byte_fallback,
    )  # fmt: skip
  tokenizer = Tokenizer(model)
  tokenizer.normalizer = _normaliser(pieces)
  strip = [decoders.Strip(content=" ", left=1)] if pieces.space_prefix else []
  tokenizer.decoder = decoders.Sequence(
    [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
  )
  return tokenizer


def _normaliser(pieces: Pieces):
  steps = []
  if pieces.normalisation:
    steps.append(normalizers.Precompiled(pieces.normalisation))
  if pieces.collapse_spaces:
    steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
  if pieces.space_prefix:
    steps.append(normalizers.Prepend(SPACE))
  return normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])


def _merges(pieces: Pieces, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
  """Every pair that makes a piece, best score first: SentencePiece merges the neighbours whose union scores highest."""
  mergeable = (NORMAL, USER_DEFINED, UNUSED)
  ranked = []
  for token, score, kind in zip(pieces.tokens, pieces.scores, pieces.types):
    if kind not in mergeable:
      continue
    for cut in range(1, len(token)):
      left, right = token[:cut], token[cut:]
      if left in vocab and right in vocab:
        ranked.append((-score, vocab[left], vocab[right], left, right))
  return [(left, right) for *_, left, right in sorted(ranked)]
