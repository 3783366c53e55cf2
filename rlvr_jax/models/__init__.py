"""One decoder whose families are data, its cache and critic heads, loading and export."""

from rlvr_jax.models.cache import KVCache
from rlvr_jax.models.config import DecoderConfig, RopeScaling, tiny_config
from rlvr_jax.models.decoder import Decoder
from rlvr_jax.models.export import export_huggingface, to_huggingface
from rlvr_jax.models.families import config_from_huggingface, config_to_huggingface
from rlvr_jax.models.heads import ValueHead, categorical_head, scalar_head
from rlvr_jax.models.load.huggingface import load_huggingface, read_huggingface_dir
from rlvr_jax.models.with_heads import WithHeads

__all__ = [
  "Decoder", "DecoderConfig", "KVCache", "RopeScaling", "ValueHead", "WithHeads",
  "categorical_head", "scalar_head", "tiny_config",
  "config_from_huggingface", "config_to_huggingface", "load_huggingface", "read_huggingface_dir",
  "export_huggingface", "to_huggingface",
]  # fmt: skip
