"""Every family against transformers on torch: same logits in float32, before and after an export."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.core import positions
from rlvr_jax.models import Decoder, export_huggingface, load_huggingface, read_huggingface_dir

pytestmark = pytest.mark.parity

SIZES = dict(
  vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
  num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
PLAIN = dict(rope_type="default", rope_theta=333.0)
LINEAR = dict(rope_type="linear", rope_theta=5000.0, factor=4.0)
YARN = dict(rope_type="yarn", rope_theta=777.0, factor=4.0, original_max_position_embeddings=16)
LLAMA3 = dict(
  rope_type="llama3", rope_theta=1234.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
  original_max_position_embeddings=32,
)  # fmt: skip
WINDOW = dict(sliding_window=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"])
EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24, num_hidden_layers=2)


def case(family, rope, tied, **changes):
  return family, dict(rope_parameters=rope, tie_word_embeddings=tied, **changes)


def by_layer(full, sliding):
  return dict(full_attention=full, sliding_attention=sliding)


CASES = {
  "llama-llama3-untied": case("Llama", LLAMA3, False, attention_bias=True, mlp_bias=True),
  "llama-linear-tied": case("Llama", LINEAR, True),
  "qwen2-tied": case("Qwen2", PLAIN, True),
  "qwen2-yarn-untied": case("Qwen2", YARN, False, use_sliding_window=True, sliding_window=3, max_window_layers=1),
  "qwen3-tied": case("Qwen3", PLAIN, True, head_dim=16),
  "qwen3-yarn-untied": case("Qwen3", YARN, False, head_dim=16),
  "qwen3-moe-untied": case("Qwen3Moe", PLAIN, False, head_dim=16, norm_topk_prob=True, **EXPERTS),
  "qwen3-moe-linear-tied": case("Qwen3Moe", LINEAR, True, head_dim=8, norm_topk_prob=False, **EXPERTS),
  "olmo2-untied": case("Olmo2", PLAIN, False),
  "olmo2-linear-tied": case("Olmo2", LINEAR, True),
  "olmo3-yarn-untied": case("Olmo3", by_layer(YARN, PLAIN), False, **WINDOW),
  "olmo3-tied": case("Olmo3", by_layer(PLAIN, PLAIN), True, **WINDOW),
  "gemma3-tied": case("Gemma3Text", by_layer(LINEAR, PLAIN), True, head_dim=16, query_pre_attn_scalar=24, **WINDOW),
  "gemma3-untied": case("Gemma3Text", by_layer(LINEAR, PLAIN), False, head_dim=8, **WINDOW),
}
# Two rows of 9 columns by padding side: which columns hold a token.
PADDINGS = dict(none=((0, 9), (0, 9)), left=((4, 9), (0, 9)), right=((0, 9), (0, 6)), both=((2, 7), (3, 9)))


def torch_model(name: str):
  """A model with every weight random: norms and biases too, which fresh ones leave at 1 and 0."""
  torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
  kind, changes = CASES[name]
  config = getattr(transformers, f"{kind}Config")(**{**SIZES, **changes})
  torch.manual_seed(0)
  causal = kind.removesuffix("Text") + "ForCausalLM"
  model = getattr(transformers, causal)._from_config(config, attn_implementation="eager").eval()
  with torch.no_grad():
    for weight in model.parameters():
      weight.add_(torch.randn_like(weight) * 0.2)
  return model


def batch(padding: str):
  columns = np.arange(9)
  valid = np.stack([(columns >= a) & (columns < b) for a, b in PADDINGS[padding]])
  tokens = np.where(valid, np.random.default_rng(0).integers(3, 61, valid.shape), 0)
  return tokens, np.asarray(positions(jnp.asarray(valid))), valid


def torch_logits(model, tokens, position, valid):
  import torch

  as_torch = lambda x: torch.tensor(x.astype(np.int64))
  with torch.no_grad():
    out = model(as_torch(tokens), attention_mask=as_torch(valid), position_ids=as_torch(position), use_cache=False)
  return out.logits.float().numpy()


def jax_logits(config, params):
  """A jitted `(tokens, positions, valid_mask) -> logits`."""
  model = Decoder(config)
  return jax.jit(lambda *data: model.logits(params, model.hidden(params, *map(jnp.asarray, data))))


def agree(ours, theirs, valid):
  assert np.isfinite(ours).all()
  assert np.abs(theirs[valid]).max() > 0.5  # else the comparison says little
  np.testing.assert_allclose(ours[valid], theirs[valid], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_logits_agree_with_transformers_before_and_after_export(name, tmp_path):
  model = torch_model(name)
  model.save_pretrained(tmp_path / "torch", max_shard_size="30KB" if "untied" in name else "5GB")
  config, params = load_huggingface(*read_huggingface_dir(tmp_path / "torch"))
  assert config.tie_embeddings == model.config.tie_word_embeddings
  forward = jax_logits(config, params)
  for padding in PADDINGS:
    data = batch(padding)
    agree(np.asarray(forward(*data)), torch_logits(model, *data), data[2])

  export_huggingface(tmp_path / "ours", config, params, max_shard_bytes=30_000 if "untied" in name else 10**9)
  import transformers

  back, report = transformers.AutoModelForCausalLM.from_pretrained(
    tmp_path / "ours", output_loading_info=True, attn_implementation="eager", dtype="float32"
  )
  assert type(back) is type(model)
  assert not any(report.values()), report
  data = batch("left")
  np.testing.assert_allclose(torch_logits(back.eval(), *data), torch_logits(model, *data), atol=1e-5, rtol=0)
