"""Parameters to a Hugging Face directory that transformers loads."""

import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from rlvr_jax.core import PyTree
from rlvr_jax.models.config import DecoderConfig
from rlvr_jax.models.decoder import Decoder
from rlvr_jax.models.families import config_to_huggingface
from rlvr_jax.models.names import flatten, weights

SHARD_BYTES = 5_000_000_000


def to_huggingface(config: DecoderConfig, params: PyTree) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """(config.json, tensors): the inverse of `load_huggingface`. A tied head is not written twice.

  Raises ValueError naming the weight that is missing, unknown or misshaped, or the config field that cannot be said.
  """
  flat, shapes = flatten(params), flatten(Decoder(config).shapes())
  for path in sorted(flat.keys() | shapes.keys()):
    if path not in flat or path not in shapes:
      where = "params lack" if path in shapes else f"a decoder of family {config.family!r} has no place for"
      raise ValueError(f"{where} {'.'.join(path)!r}")
    if np.shape(flat[path]) != shapes[path]:
      raise ValueError(f"params {'.'.join(path)!r} must have shape {shapes[path]}, got {np.shape(flat[path])}")
  arrays = {path: np.asarray(leaf) for path, leaf in flat.items()}
  tensors = {w.name: arrays[w.path][w.index] for w in weights(config)}
  return config_to_huggingface(config, str(arrays["embed", "weight"].dtype)), tensors


def export_huggingface(
  path: str | pathlib.Path, config: DecoderConfig, params: PyTree, tokenizer: Any = None,
  generation: Mapping[str, Any] | None = None, max_shard_bytes: int = SHARD_BYTES,
) -> None:  # fmt: skip
  """Writes config.json, safetensors (with an index when several), tokenizer files and generation_config.json.

  The directory appears whole or not at all; `path` must not exist yet.
  """
  path = pathlib.Path(path)
  if path.exists():
    raise ValueError(f"export path {path} exists already")
  hf_config, tensors = to_huggingface(config, params)
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
  try:
    _write_json(partial / "config.json", hf_config)
    _write_tensors(partial, tensors, max_shard_bytes)
    if tokenizer is not None:
      tokenizer.save_pretrained(str(partial))
    if generation is not None:
      _write_json(partial / "generation_config.json", dict(generation))
    partial.chmod(0o755)  # mkdtemp's 0o700 is for secrets
    os.replace(partial, path)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise


def _write_tensors(path: pathlib.Path, tensors: Mapping[str, np.ndarray], max_shard_bytes: int) -> None:
  shards: list[dict[str, np.ndarray]] = [{}]
  size = 0
  for name, tensor in tensors.items():
    if shards[-1] and size + tensor.nbytes > max_shard_bytes:
      shards.append({})
      size = 0
    shards[-1][name] = np.ascontiguousarray(tensor)
    size += tensor.nbytes
  if len(shards) == 1:
    save_file(shards[0], path / "model.safetensors", metadata=dict(format="pt"))
    return
  table = {}
  for i, shard in enumerate(shards):
    file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
    save_file(shard, path / file, metadata=dict(format="pt"))
    table |= {name: file for name in shard}
  total = sum(t.nbytes for t in tensors.values())
  _write_json(path / "model.safetensors.index.json", dict(metadata=dict(total_size=total), weight_map=table))


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
  path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
