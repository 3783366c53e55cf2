"""Hugging Face checkpoints: directories of safetensors, and any mapping of their tensors, to parameters."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open

from rlvr_jax.core import PyTree, nearest
from rlvr_jax.models.config import DecoderConfig
from rlvr_jax.models.decoder import Decoder
from rlvr_jax.models.families import config_from_huggingface
from rlvr_jax.models.names import flatten, weights

INDEX_FILE, SINGLE_FILE = "model.safetensors.index.json", "model.safetensors"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
BUFFERS = ("rotary_emb.inv_freq",)  # computed here, so a stored copy is not a weight


def load_huggingface(hf_config: Mapping[str, Any], tensors: Mapping[str, Any], param_dtype: str = "float32"
                     ) -> tuple[DecoderConfig, PyTree]:  # fmt: skip
  """(config, params) of a `config.json` and its tensors, which are read one at a time.

  Raises ValueError naming the tensor that is missing, unknown or misshaped, or a copy of a tied head that differs.
  """
  config = config_from_huggingface(hf_config)
  table, shapes, flat = weights(config), flatten(Decoder(config).shapes()), {}
  _check_names(config, [w.name for w in table], tensors)
  for w in table:
    array = np.asarray(tensors[w.name])
    if array.shape != w.shape:
      raise ValueError(f"weight {w.name!r} must have shape {w.shape} by config.json, it has {array.shape}")
    if w.path not in flat:
      flat[w.path] = np.empty(shapes[w.path], jnp.dtype(param_dtype))
    flat[w.path][w.index] = array
  return config, _nest({path: jnp.asarray(flat.pop(path)) for path in list(flat)})


def _check_names(config: DecoderConfig, names: list[str], tensors: Mapping[str, Any]) -> None:
  expected, given = set(names), set(tensors)
  extra = sorted(name for name in given - expected if not name.endswith(BUFFERS))
  if config.tie_embeddings and HEAD in extra and EMBEDDING in given:
    extra.remove(HEAD)
    if not np.array_equal(np.asarray(tensors[HEAD]), np.asarray(tensors[EMBEDDING])):
      raise ValueError(f"weight {HEAD!r} differs from {EMBEDDING!r}, yet config.json has tie_word_embeddings")
  missing = sorted(expected - given)
  if missing:
    raise ValueError(f"weight {missing[0]!r} is missing{_more(missing)}{nearest(missing[0], extra)}")
  if extra:
    raise ValueError(f"weight {extra[0]!r} is not one of model_type {config.family!r} by config.json{_more(extra)}")


def _more(names: list[str]) -> str:
  return f", with {len(names) - 1} more such as {names[1]!r}" if len(names) > 1 else ""


def _nest(flat: Mapping[tuple[str, ...], Any]) -> PyTree:
  tree: dict = {}
  for path, leaf in flat.items():
    node = tree
    for key in path[:-1]:
      node = node.setdefault(key, {})
    node[path[-1]] = leaf
  return tree


class _Shards(Mapping):
  """Tensors of several safetensors files, each read when asked for."""

  def __init__(self, file_of: Mapping[str, pathlib.Path]):
    self._file_of = dict(file_of)
    self._open = {path: _open(path) for path in sorted(set(file_of.values()))}
    for name, path in self._file_of.items():
      if name not in self._open[path].keys():
        raise ValueError(f"{path.name} has no tensor {name!r}, which {INDEX_FILE} puts there")

  def __getitem__(self, name: str) -> np.ndarray:
    return self._open[self._file_of[name]].get_tensor(name)

  def __iter__(self) -> Iterator[str]:
    return iter(self._file_of)

  def __len__(self) -> int:
    return len(self._file_of)


def _open(path: pathlib.Path):
  if not path.is_file():
    raise ValueError(f"{path} is missing, yet {INDEX_FILE} names it")
  try:
    return safe_open(path, framework="numpy")
  except SafetensorError as error:
    raise ValueError(f"{path} is not a whole safetensors file: {error}") from error


def read_huggingface_dir(path: str | pathlib.Path) -> tuple[dict[str, Any], Mapping[str, np.ndarray]]:
  """(config.json, tensors) of a model directory, with one safetensors file or several and an index.

  Raises ValueError when the directory, its config or a file is missing or damaged.
  """
  path = pathlib.Path(path)
  if not path.is_dir():
    raise ValueError(f"no model directory at {path}")
  config_file, index_file, single = path / "config.json", path / INDEX_FILE, path / SINGLE_FILE
  if not config_file.is_file():
    raise ValueError(f"{path} has no config.json; it has {sorted(p.name for p in path.iterdir())}")
  try:
    hf_config = json.loads(config_file.read_text(encoding="utf-8"))
  except json.JSONDecodeError as error:
    raise ValueError(f"{config_file} is not JSON: {error}") from error
  if index_file.is_file():
    table = json.loads(index_file.read_text(encoding="utf-8"))["weight_map"]
    return hf_config, _Shards({name: path / file for name, file in table.items()})
  if not single.is_file():
    found = sorted(p.name for p in path.iterdir())
    raise ValueError(f"{path} has neither {SINGLE_FILE} nor {INDEX_FILE}; it has {found}")
  return hf_config, _Shards({name: single for name in _open(single).keys()})
