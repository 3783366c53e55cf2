"""A decoder as numbers: everything the code needs to rebuild it and everything `config.json` needs to describe it."""

import dataclasses

from rlvr_jax.core import nearest

ROPE_KINDS = ("linear", "llama3", "yarn")
NORM_PLACEMENTS = ("pre", "post", "both")
QK_NORMS = ("none", "head", "full")
ACTIVATIONS = ("silu", "gelu_tanh")
LAYER_TYPES = ("full_attention", "sliding_attention")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
  if value not in known:
    raise ValueError(f"{name} must be one of {known}, got {value!r}{nearest(value, known)}")


@dataclasses.dataclass(frozen=True)
class RopeScaling:
  """How rotary frequencies are stretched beyond the length of pretraining. Zero where `kind` does not read it."""

  kind: str  # linear, llama3, yarn
  factor: float
  original_max_positions: int = 0  # llama3, yarn
  low_freq_factor: float = 0.0  # llama3
  high_freq_factor: float = 0.0  # llama3
  beta_fast: float = 0.0  # yarn
  beta_slow: float = 0.0  # yarn
  attention_factor: float = 1.0  # yarn: multiplies cos and sin

  def __post_init__(self):
    _one_of("rope scaling kind", self.kind, ROPE_KINDS)


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
  """One decoder of any family. Frozen and hashable, so it can be closed over, cached on and compared."""

  family: str  # a `model_type` of Hugging Face, key of models.families.FAMILIES
  vocab_size: int
  width: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  mlp_width: int
  max_positions: int = 2048  # described in config.json; the code has no table of this length
  rope_theta: float = 10_000.0
  rope_scaling: RopeScaling | None = None
  local_rope_theta: float | None = None  # of sliding layers, when they have their own; None: the same as above
  local_rope_scaling: RopeScaling | None = None  # read only when local_rope_theta is set
  norm_eps: float = 1e-6
  norm_offset: float = 0.0  # the norm multiplies by (offset + weight)
  norm_placement: str = "pre"  # before a block, after it (post), or both
  tie_embeddings: bool = True
  qkv_bias: bool = False
  out_bias: bool = False
  mlp_bias: bool = False
  qk_norm: str = "none"  # per head, or over all heads at once (full)
  activation: str = "silu"
  embed_scale: float = 1.0
  query_scale: float | None = None  # multiplies the scores; None: head_dim ** -0.5
  layer_types: tuple[str, ...] = ()  # empty: all full_attention
  sliding_window: int | None = None  # tokens seen by a sliding layer, the current one included
  num_experts: int = 0  # 0: a dense MLP
  experts_per_token: int = 0
  expert_width: int = 0
  normalise_experts: bool = False  # the chosen experts' weights sum to 1
  bos_token_id: int | None = None
  eos_token_id: int | tuple[int, ...] | None = None
  pad_token_id: int | None = None

  def __post_init__(self):
    for name in ("vocab_size", "width", "num_layers", "num_heads", "num_kv_heads", "head_dim", "mlp_width"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
    if self.num_heads % self.num_kv_heads:
      raise ValueError(f"num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}")
    if self.head_dim % 2:
      raise ValueError(f"head_dim must be even for rotary embeddings, got {self.head_dim}")
    _one_of("norm_placement", self.norm_placement, NORM_PLACEMENTS)
    _one_of("qk_norm", self.qk_norm, QK_NORMS)
    _one_of("activation", self.activation, ACTIVATIONS)
    self._check_layer_types()
    if self.num_experts and not (1 <= self.experts_per_token <= self.num_experts and self.expert_width > 0):
      raise ValueError(
        f"num_experts={self.num_experts} needs 1 <= experts_per_token <= num_experts and a positive expert_width, "
        f"got {self.experts_per_token} and {self.expert_width}"
      )

  def _check_layer_types(self):
    if not self.layer_types:
      object.__setattr__(self, "layer_types", ("full_attention",) * self.num_layers)
    if len(self.layer_types) != self.num_layers:
      raise ValueError(f"layer_types needs num_layers={self.num_layers} entries, got {len(self.layer_types)}")
    for kind in self.layer_types:
      _one_of("layer_types", kind, LAYER_TYPES)
    if "sliding_attention" in self.layer_types and not self.sliding_window:
      raise ValueError(f"layer_types has sliding_attention, so sliding_window must be set, got {self.sliding_window}")


def tiny_config(vocab_size: int, width: int = 128, num_layers: int = 4, num_heads: int = 4, num_kv_heads: int = 2,
                mlp_width: int = 384, **changes) -> DecoderConfig:  # fmt: skip
  """A Llama of 0.8M parameters at a vocabulary of 100, for quick experiments; `changes` are other fields."""
  if width % num_heads:
    raise ValueError(f"width must be a multiple of num_heads, got {width} and {num_heads}")
  sizes = dict(num_layers=num_layers, num_heads=num_heads, num_kv_heads=num_kv_heads, mlp_width=mlp_width)
  defaults = dict(family="llama", head_dim=width // num_heads, max_positions=2048, norm_eps=1e-5)
  return DecoderConfig(**{**defaults, "vocab_size": vocab_size, "width": width, **sizes, **changes})
