"""Loading by source: Hugging Face directories, GGUF files, packages that hold one, and the embedded tiny model."""

from rlvr_jax.models.load.model import Generation, LoadedModel, load_model, load_tokenizer
from rlvr_jax.models.load.tokenizers import tokenizer_fingerprint

__all__ = ["Generation", "LoadedModel", "load_model", "load_tokenizer", "tokenizer_fingerprint"]
