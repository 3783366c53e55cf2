"""Directories written and read back without torch; every damaged checkpoint raises naming what is wrong."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.models import (
  Decoder,
  DecoderConfig,
  RopeScaling,
  export_huggingface,
  load_huggingface,
  read_huggingface_dir,
  tiny_config,
  to_huggingface,
)  # fmt: skip

TIED = tiny_config(19, width=16, num_layers=2, mlp_width=24, bos_token_id=1, eos_token_id=(2, 3))
UNTIED = tiny_config(19, width=16, num_layers=2, mlp_width=24, tie_embeddings=False)
SPARSE = tiny_config(19, width=16, num_layers=2, mlp_width=24, family="qwen3_moe", qk_norm="head", num_experts=3,
                     experts_per_token=2, expert_width=8)  # fmt: skip
GEMMA = DecoderConfig(
  family="gemma3_text", vocab_size=19, width=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, mlp_width=24,
  norm_placement="both", norm_offset=1.0, qk_norm="head", activation="gelu_tanh", embed_scale=4.0, query_scale=0.5,
  rope_theta=500.0, rope_scaling=RopeScaling("linear", 2.0), local_rope_theta=50.0, sliding_window=3,
  layer_types=("sliding_attention", "full_attention"),
)  # fmt: skip


def made(config):
  """Random params without a compile."""
  random = np.random.default_rng(0)
  fill = lambda shape: jnp.asarray(random.normal(size=shape), jnp.float32)
  return jax.tree.map(fill, Decoder(config).shapes(), is_leaf=lambda x: isinstance(x, tuple))


def same(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)), a, b)


@pytest.mark.parametrize("config", [TIED, UNTIED, SPARSE, GEMMA], ids=["tied", "untied", "sparse", "gemma"])
@pytest.mark.parametrize("max_shard_bytes", [10**9, 3000], ids=["single", "sharded"])
def test_a_directory_written_is_read_back_bit_for_bit(config, max_shard_bytes, tmp_path):
  params = made(config)
  export_huggingface(tmp_path / "m", config, params, max_shard_bytes=max_shard_bytes)
  assert (len(list((tmp_path / "m").glob("*.safetensors"))) > 1) == (max_shard_bytes == 3000)
  assert (tmp_path / "m" / "model.safetensors.index.json").is_file() == (max_shard_bytes == 3000)
  back, loaded = load_huggingface(*read_huggingface_dir(tmp_path / "m"))
  assert back == config
  same(loaded, params)


def test_bfloat16_survives(tmp_path):
  params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), made(TIED))
  export_huggingface(tmp_path / "m", TIED, params)
  hf, tensors = read_huggingface_dir(tmp_path / "m")
  assert hf["torch_dtype"] == "bfloat16"
  same(load_huggingface(hf, tensors, param_dtype="bfloat16")[1], params)
  assert jax.tree.leaves(load_huggingface(hf, tensors)[1])[0].dtype == jnp.float32


def test_tokenizer_and_generation_config_are_written(tmp_path):
  from tokenizers import Tokenizer, models
  from transformers import AutoTokenizer, PreTrainedTokenizerFast

  words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<unk>": 2}, unk_token="<unk>"))
  tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, chat_template="{{ messages[0].content }}")
  export_huggingface(tmp_path / "m", TIED, made(TIED), tokenizer, dict(temperature=0.6, eos_token_id=[2, 3]))
  assert json.loads((tmp_path / "m" / "generation_config.json").read_text())["temperature"] == 0.6
  back = AutoTokenizer.from_pretrained(tmp_path / "m")
  assert back.apply_chat_template([dict(role="user", content="a b")], tokenize=False) == "a b"


def test_nothing_is_left_of_a_failed_export(tmp_path):
  params = made(TIED)
  with pytest.raises(AttributeError):
    export_huggingface(tmp_path / "m", TIED, params, tokenizer=object())
  assert not list(tmp_path.iterdir())
  export_huggingface(tmp_path / "m", TIED, params)
  with pytest.raises(ValueError, match="exists already"):
    export_huggingface(tmp_path / "m", TIED, params)


Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize("change, message", [
  (lambda t: t.pop(Q), f"'{Q}' is missing"),
  (lambda t: [t.pop(k) for k in list(t) if ".mlp.up" in k], "mlp.up_proj.weight' is missing, with 1 more"),
  (lambda t: t.update({"model.layers.2.mlp.up_proj.weight": t[Q]}), "'model.layers.2.mlp.up_proj.weight' is not one"),
  (lambda t: t.update({Q: t[Q][:-1]}), rf"'{Q}' must have shape \(16, 16\) by config.json, it has \(15, 16\)"),
  (lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] + 1}), "'lm_head.weight' differs"),
])  # fmt: skip
def test_a_missing_extra_or_misshaped_weight_is_named(change, message):
  hf, tensors = to_huggingface(TIED, made(TIED))
  change(tensors)
  with pytest.raises(ValueError, match=message):
    load_huggingface(hf, tensors)


def test_copies_that_carry_nothing_new_are_accepted():
  hf, tensors = to_huggingface(TIED, made(TIED))
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(2, np.float32)
  same(load_huggingface(hf, tensors)[1], made(TIED))


def test_an_untied_head_is_needed():
  hf, tensors = to_huggingface(UNTIED, made(UNTIED))
  del tensors["lm_head.weight"]
  with pytest.raises(ValueError, match="'lm_head.weight' is missing"):
    load_huggingface(hf, tensors)


def test_params_that_are_not_of_the_config_are_named():
  params = made(TIED)
  lacking = params | dict(layers={k: v for k, v in params["layers"].items() if k != "mlp"})
  with pytest.raises(ValueError, match="params lack 'layers.mlp.down.weight'"):
    to_huggingface(TIED, lacking)
  with pytest.raises(ValueError, match="no place for 'critic.weight'"):
    to_huggingface(TIED, params | dict(critic=dict(weight=jnp.zeros(2))))
  with pytest.raises(ValueError, match=r"'embed.weight' must have shape \(19, 16\), got \(3, 16\)"):
    to_huggingface(TIED, params | dict(embed=dict(weight=jnp.zeros((3, 16)))))
  deeper = jax.tree.map(lambda x: jnp.concatenate([x, x]), params["layers"])
  with pytest.raises(ValueError, match=r"must have shape \(2, 8, 16\), got \(4, 8, 16\)"):
    to_huggingface(TIED, params | dict(layers=deeper))


def damage_shard(path):
  file = sorted(path.glob("*.safetensors"))[1]
  file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize("damage, message", [
  (lambda p: sorted(p.glob("*.safetensors"))[1].unlink(), "model-00002-of-.* is missing, yet"),
  (damage_shard, "model-00002-of-.* is not a whole safetensors file"),
  (lambda p: (p / "config.json").unlink(), "has no config.json"),
  (lambda p: (p / "config.json").write_text("{"), "config.json is not JSON"),
  (lambda p: (p / "model.safetensors.index.json").unlink(), "has neither model.safetensors nor"),
])  # fmt: skip
def test_a_damaged_directory_raises_naming_the_file(damage, message, tmp_path):
  export_huggingface(tmp_path / "m", TIED, made(TIED), max_shard_bytes=3000)
  damage(tmp_path / "m")
  with pytest.raises(ValueError, match=message):
    load_huggingface(*read_huggingface_dir(tmp_path / "m"))


def test_no_directory_raises(tmp_path):
  with pytest.raises(ValueError, match="no model directory at .*nowhere"):
    read_huggingface_dir(tmp_path / "nowhere")
