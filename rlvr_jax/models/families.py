"""Families as data: what a `model_type` of Hugging Face means for the one decoder, and how `config.json` says it."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlvr_jax.core import check_keys, nearest
from rlvr_jax.models.config import DecoderConfig, RopeScaling

PRE = {"pre_attention_norm": "input_layernorm", "pre_mlp_norm": "post_attention_layernorm"}
POST = {"post_attention_norm": "post_attention_layernorm", "post_mlp_norm": "post_feedforward_layernorm"}
BOTH = POST | {"pre_attention_norm": "input_layernorm", "pre_mlp_norm": "pre_feedforward_layernorm"}


class Family(NamedTuple):
  """Everything that differs between families; the rest is sizes from `config.json`."""

  architecture: str
  norms: Mapping[str, str]  # our norm -> name of its tensor
  norm_placement: str = "pre"
  qk_norm: str = "none"
  qkv_bias: bool | None = None  # None: as `attention_bias` says, which then holds for the output too
  head_dim: int | None = None  # when config.json has none; None: width / heads
  tie: bool = False  # when config.json does not say
  norm_eps: float = 1e-6
  rope_theta: float = 10_000.0
  local_rope_theta: float | None = None  # sliding layers have their own frequencies; 0: the same theta, unscaled
  full_every: int = 0  # every such layer is full, the others slide, when `layer_types` does not say; 0: see below
  optional_window: bool = False  # slides only with use_sliding_window, from layer max_window_layers on
  experts: bool = False
  activation_key: str = "hidden_act"
  gemma: bool = False  # norms multiply by 1 + weight, embeddings are scaled by sqrt(width), scores by a stated number


FAMILIES: Mapping[str, Family] = {
  "llama": Family("LlamaForCausalLM", PRE),
  "qwen2": Family("Qwen2ForCausalLM", PRE, qkv_bias=True, optional_window=True),
  "qwen3": Family("Qwen3ForCausalLM", PRE, qk_norm="head", head_dim=128, optional_window=True),
  "qwen3_moe": Family("Qwen3MoeForCausalLM", PRE, qk_norm="head", experts=True),
  "olmo2": Family(
    "Olmo2ForCausalLM", POST, norm_placement="post", qk_norm="full", norm_eps=1e-5,
  ),
  "olmo3": Family(
    "Olmo3ForCausalLM", POST, norm_placement="post", qk_norm="full", norm_eps=1e-5, rope_theta=500_000.0,
    local_rope_theta=0.0, full_every=4,
  ),
  "gemma3_text": Family(
    "Gemma3ForCausalLM", BOTH, norm_placement="both", qk_norm="head", head_dim=256, tie=True, rope_theta=1_000_000.0,
    local_rope_theta=10_000.0, full_every=6, activation_key="hidden_activation", gemma=True,
  ),
}  # fmt: skip

ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
# Keys of config.json that change the function computed, with the values under which this code computes it.
PLAIN = {
  "attn_logit_softcapping": (None,), "final_logit_softcapping": (None,), "use_bidirectional_attention": (None, False),
  "mlp_only_layers": (None, []), "decoder_sparse_step": (None, 1), "quantization_config": (None,),
  "partial_rotary_factor": (None, 1.0), "rope_interleaved": (None, False), "clip_qkv": (None,),
  "is_decoder": (None, False), "add_cross_attention": (None, False), "no_rope_layers": (None, []),
}  # fmt: skip
ROPE_KEYS = {
  "default": (), "linear": ("factor",),
  "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
  "yarn": ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor"),
}  # fmt: skip


def family(model_type: str) -> Family:
  if model_type not in FAMILIES:
    raise ValueError(f"config.json: model_type {model_type!r} is not supported{nearest(model_type, FAMILIES)} "
                     f"There are {sorted(FAMILIES)}")  # fmt: skip
  return FAMILIES[model_type]


def config_from_huggingface(hf: Mapping[str, Any]) -> DecoderConfig:
  """DecoderConfig of a `config.json` in the style of transformers 4 or 5.

  Raises ValueError for a model_type, feature, rope type or activation that is not supported, and for a missing size.
  """
  fam = family(_need(hf, "model_type"))
  for key, allowed in PLAIN.items():
    if hf.get(key) not in allowed:
      raise ValueError(f"config.json: {key}={hf[key]!r} is not supported, only {allowed[-1]!r}")
  width, heads = _need(hf, "hidden_size"), _need(hf, "num_attention_heads")
  activation = hf.get(fam.activation_key) or hf.get("hidden_act")
  if activation not in ACTIVATIONS:
    raise ValueError(f"config.json: {fam.activation_key}={activation!r} is not one of {sorted(ACTIVATIONS)}")
  bias = bool(hf.get("attention_bias", False))
  return DecoderConfig(
    family=hf["model_type"], vocab_size=_need(hf, "vocab_size"), width=width, num_heads=heads,
    num_layers=_need(hf, "num_hidden_layers"), num_kv_heads=hf.get("num_key_value_heads") or heads,
    head_dim=hf.get("head_dim") or fam.head_dim or width // heads, mlp_width=_need(hf, "intermediate_size"),
    max_positions=_need(hf, "max_position_embeddings"), norm_eps=_get(hf, "rms_norm_eps", fam.norm_eps),
    norm_placement=fam.norm_placement, tie_embeddings=_get(hf, "tie_word_embeddings", fam.tie), qk_norm=fam.qk_norm,
    qkv_bias=bias if fam.qkv_bias is None else fam.qkv_bias, out_bias=bias and fam.qkv_bias is None,
    mlp_bias=bool(hf.get("mlp_bias", False)), activation=ACTIVATIONS[activation],
    **_rope_fields(hf, fam), **_window_fields(hf, fam), **_expert_fields(hf, fam), **_gemma_fields(hf, fam, width),
    bos_token_id=hf.get("bos_token_id"), eos_token_id=_ids(hf.get("eos_token_id")), pad_token_id=hf.get("pad_token_id"),
  )  # fmt: skip


def _get(hf, key, default):
  return default if hf.get(key) is None else hf[key]


def _need(hf: Mapping[str, Any], key: str):
  if hf.get(key) is None:
    raise ValueError(f"config.json has no {key!r}{nearest(key, hf)}")
  return hf[key]


def _ids(value):
  return tuple(value) if isinstance(value, list | tuple) else value


def _gemma_fields(hf, fam: Family, width: int) -> dict[str, Any]:
  if not fam.gemma:
    return {}
  return dict(norm_offset=1.0, embed_scale=width**0.5, query_scale=_get(hf, "query_pre_attn_scalar", 256) ** -0.5)


def _expert_fields(hf, fam: Family) -> dict[str, Any]:
  if not fam.experts:
    return {}
  count = hf.get("num_experts") or _need(hf, "num_local_experts")
  return dict(
    num_experts=count,
    experts_per_token=_need(hf, "num_experts_per_tok"),
    expert_width=_need(hf, "moe_intermediate_size"),
    normalise_experts=bool(hf.get("norm_topk_prob", False)),
  )


def _window_fields(hf, fam: Family) -> dict[str, Any]:
  layers, types, window = _need(hf, "num_hidden_layers"), hf.get("layer_types"), hf.get("sliding_window")
  if fam.full_every:
    every = hf.get("sliding_window_pattern") or hf.get("_sliding_window_pattern") or fam.full_every
    default = ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(layers)]
    return dict(layer_types=tuple(types or default), sliding_window=_get(hf, "sliding_window", 4096))
  if not hf.get("use_sliding_window"):
    return dict(layer_types=tuple(types or ()))
  if not fam.optional_window:
    raise ValueError(f"config.json: use_sliding_window is not supported for model_type {hf['model_type']!r}")
  first = _need(hf, "max_window_layers") if types is None else 0
  default = ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
  return dict(layer_types=tuple(types or default), sliding_window=window)


def _rope_fields(hf, fam: Family) -> dict[str, Any]:
  theta, given = _get(hf, "rope_theta", fam.rope_theta), dict(hf.get("rope_parameters") or {})
  nested = set(given) & {"full_attention", "sliding_attention"}
  if nested and fam.local_rope_theta is None:
    raise ValueError(
      f"config.json: rope_parameters by layer type need a family that has them, not {hf['model_type']!r}"
    )
  full = given.get("full_attention") if nested else given
  full = full or hf.get("rope_scaling") or {}
  fields = dict(rope_theta=float(_get(full, "rope_theta", theta)), rope_scaling=_rope_scaling(full, hf))
  if fam.local_rope_theta is None:
    return fields
  local = (given.get("sliding_attention") or {}) if nested else {}
  default = _get(hf, "rope_local_base_freq", fam.local_rope_theta or fields["rope_theta"])
  theta = float(_get(local, "rope_theta", default))
  return fields | dict(local_rope_theta=theta, local_rope_scaling=_rope_scaling(local, hf))


def _rope_scaling(rope: Mapping[str, Any], hf: Mapping[str, Any]) -> RopeScaling | None:
  kind = rope.get("rope_type", rope.get("type", "default"))
  if kind not in ROPE_KEYS:
    raise ValueError(f"config.json: rope type {kind!r} is not supported{nearest(kind, ROPE_KEYS)} "
                     f"There are {sorted(ROPE_KEYS)}")  # fmt: skip
  rope = {k: v for k, v in rope.items() if v is not None}
  check_keys(f"config.json: rope of type {kind!r}", rope, {"rope_type", "type", "rope_theta", *ROPE_KEYS[kind]})
  if kind == "default":
    return None
  defaults = {"original_max_position_embeddings": hf["max_position_embeddings"]} if kind != "linear" else {}
  if kind == "yarn":
    defaults |= dict(beta_fast=32.0, beta_slow=1.0, attention_factor=_yarn_attention(_need(rope, "factor")))
  rope = defaults | rope
  values = {key: float(_need(rope, key)) for key in ROPE_KEYS[kind]}
  length = int(values.pop("original_max_position_embeddings", 0))
  return RopeScaling(kind, original_max_positions=length, **values)


def _yarn_attention(factor: float) -> float:
  return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0


def config_to_huggingface(config: DecoderConfig, dtype: str = "float32") -> dict[str, Any]:
  """A `config.json` that transformers 4 and 5 both read as this decoder.

  Raises ValueError naming the fields that the family's `config.json` cannot say.
  """
  c, fam = config, family(config.family)
  full, local = _rope_dict(c.rope_theta, c.rope_scaling), None
  hf = dict(
    model_type=c.family, architectures=[fam.architecture], vocab_size=c.vocab_size, hidden_size=c.width,
    intermediate_size=c.mlp_width, num_hidden_layers=c.num_layers, num_attention_heads=c.num_heads,
    num_key_value_heads=c.num_kv_heads, head_dim=c.head_dim, max_position_embeddings=c.max_positions,
    rms_norm_eps=c.norm_eps, tie_word_embeddings=c.tie_embeddings, attention_bias=c.out_bias,
    rope_theta=c.rope_theta, rope_parameters=full,
    rope_scaling={k: v for k, v in full.items() if k != "rope_theta"} if c.rope_scaling else None,
    bos_token_id=c.bos_token_id, pad_token_id=c.pad_token_id, torch_dtype=dtype,
    eos_token_id=list(c.eos_token_id) if isinstance(c.eos_token_id, tuple) else c.eos_token_id,
  )  # fmt: skip
  hf[fam.activation_key] = {ours: theirs for theirs, ours in ACTIVATIONS.items() if theirs != "swish"}[c.activation]
  if fam.local_rope_theta is not None and c.local_rope_theta is not None:
    local = _rope_dict(c.local_rope_theta, c.local_rope_scaling)
    hf |= dict(rope_parameters=dict(full_attention=full, sliding_attention=local))
  if c.mlp_bias:
    hf |= dict(mlp_bias=True)
  if fam.full_every or fam.optional_window:
    hf |= dict(layer_types=list(c.layer_types), sliding_window=c.sliding_window)
  if fam.optional_window:
    hf |= dict(use_sliding_window=c.sliding_window is not None, max_window_layers=c.num_layers)
  if fam.experts:
    hf |= dict(num_experts=c.num_experts, num_experts_per_tok=c.experts_per_token, moe_intermediate_size=c.expert_width,
               norm_topk_prob=c.normalise_experts, decoder_sparse_step=1, mlp_only_layers=[])  # fmt: skip
  if fam.gemma:
    scale = c.head_dim**-0.5 if c.query_scale is None else c.query_scale
    hf |= dict(query_pre_attn_scalar=round(scale**-2), rope_local_base_freq=c.local_rope_theta)
  _check_said(config, config_from_huggingface(json.loads(json.dumps(hf))))
  return hf


def _rope_dict(theta: float, scaling: RopeScaling | None) -> dict[str, Any]:
  if scaling is None:
    return dict(rope_type="default", rope_theta=theta)
  values = dataclasses.asdict(scaling) | {"original_max_position_embeddings": scaling.original_max_positions}
  return dict(rope_type=scaling.kind, rope_theta=theta) | {key: values[key] for key in ROPE_KEYS[scaling.kind]}


def _check_said(config: DecoderConfig, said: DecoderConfig) -> None:
  ours, theirs = dataclasses.asdict(config), dataclasses.asdict(said)
  lost = {k: (v, theirs[k]) for k, v in ours.items() if theirs[k] != v}
  if lost:
    raise ValueError(f"config.json of family {config.family!r} cannot say these fields (ours, as read back): {lost}")
