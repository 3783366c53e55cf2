"""`config.json` of both transformers styles to decoders and back, and every feature that is refused by name."""

import numpy as np
import pytest

from rlvr_jax.models import RopeScaling, config_from_huggingface, config_to_huggingface, tiny_config
from rlvr_jax.models.families import FAMILIES
from rlvr_jax.models.rope import frequencies

BASE = dict(
  vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
  num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5,
)  # fmt: skip
# What released models say, in the style of transformers 4, cut to small sizes.
HUB = {
  "llama": dict(
    hidden_act="silu", attention_bias=False, mlp_bias=False, head_dim=8, rope_theta=500000.0, tie_word_embeddings=True,
    rope_scaling=dict(factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=64,
                      rope_type="llama3"),
  ),
  "qwen2": dict(hidden_act="silu", use_sliding_window=False, sliding_window=32768, max_window_layers=21,
                rope_theta=1000000.0, tie_word_embeddings=True),
  "qwen3": dict(hidden_act="silu", attention_bias=False, head_dim=16, max_window_layers=28, rope_scaling=None,
                rope_theta=1000000, sliding_window=None, use_sliding_window=False, tie_word_embeddings=True),
  "qwen3_moe": dict(hidden_act="silu", head_dim=16, rope_theta=1000000.0, decoder_sparse_step=1, mlp_only_layers=[],
                    moe_intermediate_size=24, norm_topk_prob=True, num_experts=8, num_experts_per_tok=2,
                    use_sliding_window=False, sliding_window=None, tie_word_embeddings=False),
  "olmo2": dict(hidden_act="silu", attention_bias=False, rope_theta=500000, tie_word_embeddings=False),
  "olmo3": dict(
    hidden_act="silu", rope_theta=500000, sliding_window=16, tie_word_embeddings=False,
    rope_scaling=dict(attention_factor=1.2, beta_fast=32, beta_slow=1, factor=8.0, original_max_position_embeddings=64,
                      rope_type="yarn"),
  ),
  "gemma3_text": dict(
    hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=None, final_logit_softcapping=None, head_dim=16,
    query_pre_attn_scalar=16, rope_local_base_freq=10000, rope_scaling=None, rope_theta=1000000, sliding_window=16,
    sliding_window_pattern=2,
  ),
}  # fmt: skip


def hub(family, **changes):
  return {**BASE, "model_type": family, **HUB[family], **changes}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_read_is_written_so_that_it_reads_the_same(family, bias):
  config = config_from_huggingface(hub(family, attention_bias=bias and family != "qwen2"))
  written = config_to_huggingface(config)
  assert config_from_huggingface(written) == config
  assert written["architectures"] == [FAMILIES[family].architecture]
  # what only transformers 5 reads must be enough
  fifth = {k: v for k, v in written.items() if k not in ("rope_theta", "rope_scaling", "rope_local_base_freq")}
  assert config_from_huggingface(fifth) == config


def test_every_family_is_covered():
  assert set(HUB) == set(FAMILIES)


def test_numbers_read_from_released_configs():
  llama = config_from_huggingface(hub("llama"))
  assert llama.rope_scaling == RopeScaling("llama3", 32.0, 64, low_freq_factor=1.0, high_freq_factor=4.0)
  assert llama.tie_embeddings and llama.layer_types == ("full_attention",) * 4 and llama.sliding_window is None
  assert config_from_huggingface(hub("qwen2")).qkv_bias and not config_from_huggingface(hub("qwen2")).out_bias
  olmo = config_from_huggingface(hub("olmo3"))
  assert olmo.layer_types == ("sliding_attention",) * 3 + ("full_attention",)
  assert olmo.rope_scaling.kind == "yarn" and olmo.rope_scaling.attention_factor == 1.2
  assert olmo.local_rope_theta == 500000.0 and olmo.local_rope_scaling is None  # sliding layers are not stretched
  gemma = config_from_huggingface(hub("gemma3_text"))
  assert gemma.layer_types == ("sliding_attention", "full_attention") * 2 and gemma.tie_embeddings
  assert (gemma.rope_theta, gemma.local_rope_theta, gemma.query_scale) == (1e6, 1e4, 0.25)
  assert config_from_huggingface(hub("qwen3_moe")).normalise_experts


def test_an_old_name_of_the_rope_type_is_read():
  config = config_from_huggingface(hub("llama", rope_scaling=dict(type="linear", factor=2.0)))
  assert config.rope_scaling == RopeScaling("linear", 2.0)


@pytest.mark.parametrize("family, changes, message", [
  ("llama", dict(model_type="lama"), "model_type 'lama' is not supported; did you mean 'llama'"),
  ("gemma3_text", dict(model_type="gemma3"), "did you mean 'gemma3_text'"),
  ("gemma3_text", dict(final_logit_softcapping=30.0), "final_logit_softcapping=30.0 is not supported"),
  ("gemma3_text", dict(attn_logit_softcapping=50.0), "attn_logit_softcapping=50.0"),
  ("gemma3_text", dict(use_bidirectional_attention=True), "use_bidirectional_attention=True"),
  ("qwen3_moe", dict(mlp_only_layers=[1]), r"mlp_only_layers=\[1\]"),
  ("qwen3_moe", dict(decoder_sparse_step=2), "decoder_sparse_step=2"),
  ("qwen3_moe", dict(use_sliding_window=True), "use_sliding_window is not supported"),
  ("llama", dict(quantization_config=dict(bits=4)), "quantization_config"),
  ("llama", dict(rope_scaling=dict(rope_type="longrope", factor=2.0)), "rope type 'longrope' is not supported"),
  ("llama", dict(rope_scaling=dict(rope_type="linear", factor=2.0, mscale=1.0)), "has no 'mscale'"),
  ("llama", dict(rope_scaling=dict(rope_type="linear")), "has no 'factor'"),
  ("llama", dict(hidden_act="relu"), "hidden_act='relu' is not one of"),
  ("llama", dict(hidden_size=None), "has no 'hidden_size'"),
  ("llama", dict(rope_parameters=dict(full_attention=dict(rope_theta=1.0))), "by layer type"),
])  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(family, changes, message):
  with pytest.raises(ValueError, match=message):
    config_from_huggingface(hub(family, **changes))


def test_a_config_its_family_cannot_say_is_not_written():
  with pytest.raises(ValueError, match="family 'llama' cannot say these fields .*qk_norm"):
    config_to_huggingface(tiny_config(37, qk_norm="head"))


def test_llama3_frequencies_by_hand():
  """theta 100, head 8: 1, 10^-.5, 10^-1, 10^-1.5 radians a token; in 62 tokens 9.9, 3.1204, .987, .312 turns."""
  scaling = RopeScaling("llama3", 4.0, 62, low_freq_factor=1.0, high_freq_factor=4.0)
  # kept at >= 4 turns, divided by 4 at <= 1, between: weight (3.1204 - 1) / 3 = .70680 on the kept one
  between = 10**-0.5 * (0.70680 + (1 - 0.70680) / 4)
  got, factor = frequencies(8, 100.0, scaling)
  np.testing.assert_allclose(got, [1.0, between, 0.1 / 4, 10**-1.5 / 4], rtol=1e-4)
  assert factor == 1.0
