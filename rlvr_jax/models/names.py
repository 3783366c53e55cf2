"""The table between names of Hugging Face tensors and places in the parameter tree."""

from typing import NamedTuple

from rlvr_jax.models.config import DecoderConfig
from rlvr_jax.models.decoder import Decoder
from rlvr_jax.models.families import family

MODULES = {
  "attention.q": "self_attn.q_proj", "attention.k": "self_attn.k_proj", "attention.v": "self_attn.v_proj",
  "attention.o": "self_attn.o_proj", "attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm",
  "mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj",
}  # fmt: skip
EXPERT_MODULES = {
  "mlp.router": "mlp.gate", "mlp.gate": "mlp.experts.{}.gate_proj", "mlp.up": "mlp.experts.{}.up_proj",
  "mlp.down": "mlp.experts.{}.down_proj",
}  # fmt: skip


class Weight(NamedTuple):
  """Tensor `name` of `shape` is `leaf[index]`, where leaf is at `path` in the parameters."""

  name: str
  path: tuple[str, ...]
  index: tuple[int, ...]
  shape: tuple[int, ...]


def flatten(tree, prefix=()) -> dict[tuple[str, ...], object]:
  """{path: leaf} of a nested dict."""
  if not isinstance(tree, dict):
    return {prefix: tree}
  return {path: leaf for key, sub in tree.items() for path, leaf in flatten(sub, (*prefix, key)).items()}


def weights(config: DecoderConfig) -> list[Weight]:
  """Every tensor that a checkpoint of this decoder must have, and no other."""
  shapes, found = flatten(Decoder(config).shapes()), []
  modules = MODULES | dict(family(config.family).norms) | (EXPERT_MODULES if config.num_experts else {})
  top = {"embed": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"}
  for path, shape in shapes.items():
    if path[0] in top:
      found.append(Weight(f"{top[path[0]]}.{path[-1]}", path, (), shape))
      continue
    module = modules[".".join(path[1:-1])]
    for i in range(config.num_layers):
      name = f"model.layers.{i}.{module}.{path[-1]}"
      if "{}" not in module:
        found.append(Weight(name, path, (i,), shape[1:]))
      else:
        found += [Weight(name.format(e), path, (i, e), shape[2:]) for e in range(config.num_experts)]
  return found
