"""GGUF files as Hugging Face names: a config dict and float32 arrays, so the decoder knows one layout only."""

import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from jaxtyping import Float

from rlvr_jax.core import nearest

# GGUF architecture -> HF model_type. llama.cpp stores q and k of its Llama family with rotated pairs side by side.
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
PERMUTED = ("llama",)

TOP_NAMES = {
  "token_embd.weight": "model.embed_tokens.weight",
  "output_norm.weight": "model.norm.weight",
  "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
  "attn_norm": "input_layernorm",
  "attn_q": "self_attn.q_proj",
  "attn_k": "self_attn.k_proj",
  "attn_v": "self_attn.v_proj",
  "attn_output": "self_attn.o_proj",
  "attn_q_norm": "self_attn.q_norm",
  "attn_k_norm": "self_attn.k_norm",
  "ffn_norm": "post_attention_layernorm",
  "ffn_gate": "mlp.gate_proj",
  "ffn_up": "mlp.up_proj",
  "ffn_down": "mlp.down_proj",
}
ROPE_FREQS = "rope_freqs.weight"


def read_gguf(path: str | pathlib.Path) -> tuple[dict[str, Any], Mapping[str, np.ndarray], dict[str, Any]]:
  """`(hf_config, tensors, metadata)` of a file: fields of a `config.json`, float32 arrays under HF names, the header.

  Raises ValueError when the file, its architecture, a tensor's name or a tensor's type is not supported, naming it.
  """
  reader = open_gguf(path)
  metadata = gguf_metadata(reader)
  stored = {tensor.name: tensor for tensor in reader.tensors}
  config = hf_config(metadata, {name: tuple(int(n) for n in t.shape) for name, t in stored.items()})
  if ROPE_FREQS in stored:
    factors = _values(stored.pop(ROPE_FREQS))
    config["rope_scaling"] = llama3_scaling(factors, config["rope_theta"], config["head_dim"])
  return config, _Tensors({hf_name(name): tensor for name, tensor in stored.items()}, config), metadata


class _Tensors(Mapping):
  """Float32 arrays of a file in HF layout, each dequantised when asked for, so that one at a time is in memory."""

  def __init__(self, stored: Mapping[str, Any], config: Mapping[str, Any]):
    self._stored, self._config = stored, config

  def __getitem__(self, name: str) -> np.ndarray:
    values = _values(self._stored[name])
    if self._config["model_type"] in PERMUTED and (found := re.search(r"\.([qk])_proj\.(weight|bias)$", name)):
      values = unpermute(values, self._config["num_attention_heads" if found[1] == "q" else "num_key_value_heads"])
    return values

  def __iter__(self) -> Iterator[str]:
    return iter(self._stored)

  def __len__(self) -> int:
    return len(self._stored)


def open_gguf(path: str | pathlib.Path) -> GGUFReader:
  """The reader, or a ValueError that says why the file is not GGUF."""
  if not pathlib.Path(path).is_file():
    raise ValueError(f"gguf: needs a file, got {str(path)!r}, which does not exist")
  try:
    return GGUFReader(str(path))
  except (ValueError, IndexError, KeyError) as error:
    raise ValueError(f"gguf: {str(path)!r} is not a whole GGUF file: {error}") from error


def gguf_metadata(reader: GGUFReader) -> dict[str, Any]:
  """Every key of the header as a Python value; float32 numbers as their shortest decimal (1e-05)."""
  values = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
  return {key: float(str(np.float32(v))) if isinstance(v, float) else v for key, v in values.items()}


def hf_name(name: str) -> str:
  """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; raises for a name outside the table."""
  if name in TOP_NAMES:
    return TOP_NAMES[name]
  found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
  if not found or found[2] not in LAYER_NAMES:
    part = found[2] if found else name
    known = [*TOP_NAMES, *LAYER_NAMES, ROPE_FREQS]
    raise ValueError(f"gguf: tensor {name!r} has no place in this decoder{nearest(part, known)} Known: {known}")
  return f"model.layers.{found[1]}.{LAYER_NAMES[found[2]]}.{found[3]}"


def hf_config(metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
  """The fields of `config.json` from GGUF metadata; `shapes` are GGUF's own (innermost axis first)."""
  architecture = metadata.get("general.architecture")
  if architecture not in ARCHITECTURES:
    raise ValueError(
      f"gguf: architecture {architecture!r} is not supported{nearest(architecture, ARCHITECTURES)} "
      f"Supported: {sorted(ARCHITECTURES)}"
    )

  def get(key: str, default: Any = None) -> Any:
    value = metadata.get(f"{architecture}.{key}", default)
    if value is None:
      raise ValueError(f"gguf: metadata lacks {architecture}.{key}")
    return value

  if get("expert_count", 0):
    raise ValueError(
      f"gguf: {architecture} with expert_count={get('expert_count')} is not supported, only dense layers"
    )
  width, heads = get("embedding_length"), get("attention.head_count")
  head_dim = get("attention.key_length", width // heads)
  _check_rotation(architecture, head_dim, get)
  ids = {f"{name}_token_id": metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
  return ids | {
    "model_type": ARCHITECTURES[architecture],
    "architectures": [f"{ARCHITECTURES[architecture].capitalize()}ForCausalLM"],
    "vocab_size": shapes["token_embd.weight"][1],
    "hidden_size": width,
    "intermediate_size": get("feed_forward_length"),
    "num_hidden_layers": get("block_count"),
    "num_attention_heads": heads,
    "num_key_value_heads": get("attention.head_count_kv", heads),
    "head_dim": head_dim,
    "hidden_act": "silu",
    "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
    "max_position_embeddings": get("context_length"),
    "rope_theta": get("rope.freq_base", 10000.0),
    "rope_scaling": _rope_scaling(get),
    "tie_word_embeddings": "output.weight" not in shapes,
    "attention_bias": "blk.0.attn_q.bias" in shapes,
    "mlp_bias": False,
  }


def _check_rotation(architecture: str, head_dim: int, get) -> None:
  rotated, values = get("rope.dimension_count", head_dim), get("attention.value_length", head_dim)
  if rotated != head_dim or values != head_dim:
    raise ValueError(
      f"gguf: {architecture} needs key, value and rotated widths to be equal, "
      f"got key_length={head_dim}, value_length={values}, rope.dimension_count={rotated}"
    )


def _rope_scaling(get) -> dict[str, Any] | None:
  kind = get("rope.scaling.type", "none")
  if kind == "none":
    return None
  if kind != "linear":
    raise ValueError(f"gguf: rope.scaling.type must be 'none' or 'linear' (or given by {ROPE_FREQS}), got {kind!r}")
  return {"rope_type": "linear", "factor": get("rope.scaling.factor")}


def unpermute(values: Float[np.ndarray, "out *rest"], heads: int) -> Float[np.ndarray, "out *rest"]:
  """Undoes llama.cpp's order of rotated pairs, `(i, i + half)` side by side, back to HF's two halves of each head.

  Source: `LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py, inverted.
  """
  halves = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
  return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def llama3_scaling(factors: Float[np.ndarray, "half"], theta: float, head_dim: int) -> dict[str, Any] | None:
  """The `llama3` rope scaling whose divisors of the frequencies are `factors`; None when all are 1.

  factors = 1 / ((1 - s) / factor + s),  s = clip((old / wavelength - low) / (high - low), 0, 1). The file keeps only
  the factors, which fix old / (high - low) and low / (high - low); `old` is set to 8192 as in Llama 3, and the answer
  is checked against every factor. Raises ValueError when no such scaling exists (longrope, or another formula).
  """
  factors = np.asarray(factors, np.float64)
  if np.allclose(factors, 1.0):
    return None
  wavelength = 2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
  factor, old = float(np.max(factors)), 8192.0
  smooth = (1 / factors - 1 / factor) / (1 - 1 / factor)
  between = (smooth > 1e-6) & (smooth < 1 - 1e-6)
  message = f"gguf: {ROPE_FREQS} is not a llama3 rope scaling (factor {factor})"
  if len(factors) != head_dim // 2 or between.sum() < 2:
    raise ValueError(f"{message}: {len(factors)} values for head_dim {head_dim}, {between.sum()} between the extremes")
  slope, offset = np.polyfit(1 / wavelength[between], smooth[between], 1)
  low, high = (round(float(old * x / slope), 4) for x in (-offset, 1 - offset))
  expected = np.clip((old / wavelength - low) / (high - low), 0, 1)
  expected = 1 / ((1 - expected) / factor + expected)
  if not np.allclose(factors, expected, rtol=1e-4):
    raise ValueError(f"{message}: the best fit is off by {np.max(np.abs(factors / expected - 1)):.1e}")
  return {
    "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
    "original_max_position_embeddings": int(old),
  }  # fmt: skip


def _values(tensor) -> np.ndarray:
  """Float32 array in row-major order, whatever the tensor's type in the file."""
  try:
    values = dequantize(tensor.data, tensor.tensor_type)
  except NotImplementedError as error:
    raise ValueError(
      f"gguf: tensor {tensor.name!r} has type {tensor.tensor_type.name}, which is not supported"
    ) from error
  return np.asarray(values, np.float32).reshape([int(n) for n in reversed(tensor.shape)])
