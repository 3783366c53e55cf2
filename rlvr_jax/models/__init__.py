"""One decoder whose families are data, its cache and critic heads, loading and export."""
from rlvr_jax.models.cache import KVCache
from rlvr_jax.models.config import DecoderConfig, RopeScaling, tiny_config
from rlvr_jax.models.decoder import Decoder
from rlvr_jax.models.heads import ValueHead, categorical_head, scalar_head

__all__ = [
  "Decoder", "DecoderConfig", "KVCache", "RopeScaling", "ValueHead",
  "categorical_head", "scalar_head", "tiny_config",
]  # fmt: skip
