"""GGUF files written here, in llama.cpp's layout, must come back as the Hugging Face tensors they were made from."""

import gguf
import jax
import numpy as np
import pytest

from rlvr_jax.models.load import gguf as reader
from rlvr_jax.models.load import load_model, load_tokenizer, tokenizer_fingerprint
from rlvr_jax.models.load.huggingface import load_huggingface

WIDTH, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCAB, LAYERS = 32, 4, 2, 8, 256, 272, 2
F32 = gguf.GGMLQuantizationType.F32
GGUF_NAMES = {hf: ggml for ggml, hf in (reader.TOP_NAMES | reader.LAYER_NAMES).items()}


def hf_tensors(model_type="llama", tied=True, seed=0):
  """Random tensors under the names and in the layout of a Hugging Face checkpoint."""
  rng = np.random.default_rng(seed)
  normal = lambda *shape: (rng.standard_normal(shape) * 0.3).astype(np.float32)
  q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
  tensors = {"model.embed_tokens.weight": normal(VOCAB, WIDTH), "model.norm.weight": normal(WIDTH)}
  if not tied:
    tensors["lm_head.weight"] = normal(VOCAB, WIDTH)
  for i in range(LAYERS):
    shapes = {
      "input_layernorm.weight": (WIDTH,), "post_attention_layernorm.weight": (WIDTH,),
      "self_attn.q_proj.weight": (q, WIDTH), "self_attn.k_proj.weight": (kv, WIDTH),
      "self_attn.v_proj.weight": (kv, WIDTH), "self_attn.o_proj.weight": (WIDTH, q),
      "mlp.gate_proj.weight": (MLP, WIDTH), "mlp.up_proj.weight": (MLP, WIDTH), "mlp.down_proj.weight": (WIDTH, MLP),
    }  # fmt: skip
    if model_type == "qwen2":
      shapes |= {f"self_attn.{x}_proj.bias": (n,) for x, n in (("q", q), ("k", kv), ("v", kv))}
    if model_type == "qwen3":
      shapes |= {f"self_attn.{x}_norm.weight": (HEAD_DIM,) for x in "qk"}
    tensors |= {f"model.layers.{i}.{name}": normal(*shape) for name, shape in shapes.items()}
  return tensors


def permuted(values, heads):
  """`LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py, as written there."""
  return values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def gguf_name(name):
  if name in GGUF_NAMES:
    return GGUF_NAMES[name]
  _, _, layer, *middle, suffix = name.split(".")
  return f"blk.{layer}.{GGUF_NAMES['.'.join(middle)]}.{suffix}"


def byte_tokenizer(writer):
  """272 tokens: all bytes, 15 specials and one word, so that the file is whole."""
  from tokenizers import pre_tokenizers

  tokens = sorted(pre_tokenizers.ByteLevel.alphabet()) + [f"<|special{i}|>" for i in range(15)] + ["ab"]
  writer.add_tokenizer_model("gpt2")
  writer.add_tokenizer_pre("smollm")
  writer.add_token_list(tokens)
  writer.add_token_types([1] * 256 + [3] * 15 + [1])
  writer.add_token_merges(["a b"])
  writer.add_bos_token_id(257)
  writer.add_eos_token_id(258)
  writer.add_pad_token_id(258)


def write(path, tensors, architecture="llama", types=None, extra=lambda writer: None, raw=None, tokenizer=True):
  """A GGUF file; `types` maps HF names to quantisation types, `raw` to (bytes, type) written as they are."""
  writer = gguf.GGUFWriter(path, architecture)
  writer.add_context_length(64)
  writer.add_embedding_length(WIDTH)
  writer.add_block_count(LAYERS)
  writer.add_feed_forward_length(MLP)
  writer.add_head_count(HEADS)
  writer.add_head_count_kv(KV_HEADS)
  writer.add_key_length(HEAD_DIM)
  writer.add_value_length(HEAD_DIM)
  writer.add_layer_norm_rms_eps(1e-5)
  writer.add_rope_freq_base(5000.0)
  if tokenizer:
    byte_tokenizer(writer)
  extra(writer)
  for name, values in tensors.items():
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
      values = permuted(values, HEADS if "q_proj" in name else KV_HEADS)
    kind = (types or {}).get(name, F32)
    if name in (raw or {}):
      data, kind = raw[name]
    else:
      data = np.ascontiguousarray(values) if kind == F32 else gguf.quants.quantize(values, kind)
    writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


def same(found, expected):
  assert found.keys() == expected.keys()
  for name in expected:
    np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert found[name].dtype == np.float32


@pytest.mark.parametrize("architecture, tied", [("llama", True), ("llama", False), ("qwen2", True), ("qwen3", False)])
def test_float_file_is_the_hf_checkpoint(tmp_path, architecture, tied):
  tensors = hf_tensors(architecture, tied)
  config, found, _ = reader.read_gguf(write(tmp_path / "m.gguf", tensors, architecture))
  same(found, tensors)
  expected = dict(
    model_type=architecture, vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=MLP, num_hidden_layers=LAYERS,
    num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, rms_norm_eps=1e-5, rope_theta=5000.0,
    tie_word_embeddings=tied, max_position_embeddings=64, bos_token_id=257, eos_token_id=258, rope_scaling=None,
  )  # fmt: skip
  assert {key: config[key] for key in expected} == expected


def test_permutation_by_hand():
  """One head of width 4 has pairs (0, 2) and (1, 3) in HF; llama.cpp stores them side by side: rows 0 2 1 3."""
  rows = np.arange(4, dtype=np.float32)[:, None]
  assert permuted(rows, 1).ravel().tolist() == [0, 2, 1, 3]
  assert reader.unpermute(np.array([[0.0], [2.0], [1.0], [3.0]]), 1).ravel().tolist() == [0, 1, 2, 3]
  # two heads: each on its own
  assert reader.unpermute(np.array([0.0, 2, 1, 3, 4, 6, 5, 7]), 2).tolist() == list(range(8))


def blocks_q8_0(values):
  """Nearest of 255 levels per block of 32, scale in float16: what must come back."""
  blocks = values.reshape(-1, 32)
  scale = np.abs(blocks).max(1, keepdims=True) / 127
  return (np.round(blocks / scale) * scale.astype(np.float16).astype(np.float32)).reshape(values.shape)


@pytest.mark.parametrize("kind, levels", [("F16", None), ("BF16", None), ("Q8_0", 255), ("Q4_0", 16), ("Q4_1", 16)])
def test_quantised_tensors_come_back_within_half_a_step(tmp_path, kind, levels):
  """Half a step of each block's range, plus float16 rounding of the scale; q_proj also goes through the permutation."""
  tensors = hf_tensors()
  kind = gguf.GGMLQuantizationType[kind]
  matrices = [name for name in tensors if tensors[name].ndim == 2]
  _, found, _ = reader.read_gguf(write(tmp_path / "m.gguf", tensors, types=dict.fromkeys(matrices, kind)))
  assert found.keys() == tensors.keys()
  for name in matrices:
    error = np.abs(found[name] - tensors[name]).reshape(-1, 32).max(1)
    blocks = tensors[name].reshape(-1, 32)
    if levels is None:
      bound = np.abs(blocks).max(1) * 2.0 ** (-11 if kind.name == "F16" else -8)
    else:
      reach = np.ptp(blocks, 1) if kind.name == "Q4_1" else 2 * np.abs(blocks).max(1)
      # Q4_0's range is asymmetric (-8..7): the far side may be a whole step away
      bound = reach / (levels - 1) * (1.05 if kind.name == "Q4_0" else 0.51) + 2e-3 * np.abs(blocks).max(1)
    assert (error <= bound + 1e-7).all(), (name, (error / bound).max())
    assert error.max() > 0
  if kind.name == "Q8_0":
    expected = blocks_q8_0(tensors["model.layers.0.mlp.down_proj.weight"])
    np.testing.assert_allclose(found["model.layers.0.mlp.down_proj.weight"], expected, atol=1e-6)


def read_q4_k(block):
  """ggml's dequantize_row_q4_K, one block of 144 bytes: 8 groups of 32 with 6-bit scales and minima."""
  d, dmin = block[:4].view(np.float16).astype(np.float32)
  packed, quants, out = block[4:16].astype(int), block[16:].astype(int), []
  for j in range(8):
    if j < 4:
      scale, low = packed[j] & 63, packed[j + 4] & 63
    else:
      scale = (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4)
      low = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4)
    chunk = quants[j // 2 * 32 : j // 2 * 32 + 32]
    out += [d * scale * (int(q) & 15 if j % 2 == 0 else int(q) >> 4) - dmin * low for q in chunk]
  return out


def read_q6_k(block):
  """ggml's dequantize_row_q6_K, a block of 210 bytes: low nibbles, high pairs of bits, 16 signed scales, a scale."""
  low, high = block[:128].astype(int), block[128:192].astype(int)
  scales, d = block[192:208].view(np.int8).astype(int), block[208:].view(np.float16).astype(np.float32)[0]
  out = np.zeros(256, np.float32)
  for half in range(2):
    for i in range(32):
      for part in range(4):
        nibble = low[64 * half + i + 32 * (part % 2)] >> (4 * (part // 2)) & 15
        q = (nibble | (high[32 * half + i] >> (2 * part) & 3) << 4) - 32
        out[128 * half + 32 * part + i] = d * scales[8 * half + 2 * part + i // 16] * q
  return out


@pytest.mark.parametrize("kind, size, halves, read", [
  ("Q4_K", 144, (0, 2), read_q4_k), ("Q6_K", 210, (208,), read_q6_k),
])  # fmt: skip
def test_k_quants_against_ggmls_own_loop(tmp_path, kind, size, halves, read):
  """Random blocks of the file format, read by a transcription of ggml's C loop."""
  tensors = hf_tensors()
  blocks = np.random.default_rng(3).integers(0, 256, (WIDTH, size), dtype=np.uint8)
  for at in halves:  # the float16 scales must be finite
    blocks[:, at : at + 2] = np.linspace(0.01, 0.1, WIDTH).astype(np.float16)[:, None].view(np.uint8)
  name = "model.layers.1.mlp.down_proj.weight"  # rows of MLP = 256 values: one block each
  path = write(tmp_path / "m.gguf", tensors, raw={name: (blocks, gguf.GGMLQuantizationType[kind])})
  _, found, _ = reader.read_gguf(path)
  expected = np.array([read(row) for row in blocks], np.float32)
  np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5)
  same(found, tensors | {name: found[name]})


def llama3_factors(head_dim, theta, factor, low, high, old):
  """The divisors that llama.cpp writes, from transformers' formula with its three branches."""
  factors = []
  for i in range(0, head_dim, 2):
    wavelength = 2 * np.pi * theta ** (i / head_dim)
    smooth = (old / wavelength - low) / (high - low)
    if wavelength < old / high:
      factors.append(1.0)
    elif wavelength > old / low:
      factors.append(factor)
    else:
      factors.append(1 / ((1 - smooth) / factor + smooth))
  return np.array(factors, np.float32)


@pytest.mark.parametrize("head_dim, factor", [(128, 8.0), (64, 32.0)])
def test_rope_factors_of_llama_3_are_recovered(head_dim, factor):
  scaling = reader.llama3_scaling(llama3_factors(head_dim, 5e5, factor, 1.0, 4.0, 8192), 5e5, head_dim)
  assert scaling == {
    "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
  }  # fmt: skip


def test_rope_factors_with_another_origin_give_the_same_frequencies():
  factors = llama3_factors(64, 1e4, 4.0, 1.0, 2.5, 2048)
  s = reader.llama3_scaling(factors, 1e4, 64)
  again = llama3_factors(64, 1e4, s["factor"], s["low_freq_factor"], s["high_freq_factor"],
                         s["original_max_position_embeddings"])  # fmt: skip
  np.testing.assert_allclose(again, factors, rtol=1e-4)
  assert reader.llama3_scaling(np.ones(32), 1e4, 64) is None


def test_rope_factors_of_another_formula_raise():
  with pytest.raises(ValueError, match="is not a llama3 rope scaling"):
    reader.llama3_scaling(np.linspace(1, 8, 32), 5e5, 64)


def test_linear_rope_scaling_and_unknown_kind(tmp_path):
  def scaled(kind):
    def extra(writer):
      writer.add_rope_scaling_type(kind)
      writer.add_rope_scaling_factor(4.0)

    return extra

  linear = write(tmp_path / "a.gguf", hf_tensors(), extra=scaled(gguf.RopeScalingType.LINEAR))
  assert reader.read_gguf(linear)[0]["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
  yarn = write(tmp_path / "b.gguf", hf_tensors(), extra=scaled(gguf.RopeScalingType.YARN))
  with pytest.raises(ValueError, match="rope.scaling.type must be.*'yarn'"):
    reader.read_gguf(yarn)


def test_what_is_not_supported_is_named(tmp_path):
  with pytest.raises(ValueError, match="architecture 'lama' is not supported; did you mean 'llama'"):
    reader.read_gguf(write(tmp_path / "a.gguf", hf_tensors(), "lama"))
  name = "model.layers.0.mlp.down_proj.weight"
  integers = np.zeros((WIDTH, MLP), np.int8)
  path = write(tmp_path / "b.gguf", hf_tensors(), raw={name: (integers, gguf.GGMLQuantizationType.I8)})
  with pytest.raises(ValueError, match="'blk.0.ffn_down.weight' has type I8"):
    dict(reader.read_gguf(path)[1])
  with pytest.raises(ValueError, match="expert_count=4"):
    reader.read_gguf(write(tmp_path / "c.gguf", hf_tensors(), extra=lambda w: w.add_expert_count(4)))
  with pytest.raises(ValueError, match="rope.dimension_count=4"):
    reader.read_gguf(write(tmp_path / "d.gguf", hf_tensors(), extra=lambda w: w.add_rope_dimension_count(4)))


def test_load_model_is_the_same_checkpoint(tmp_path, caplog):
  tensors = hf_tensors(tied=False)
  path = write(tmp_path / "m.gguf", tensors)
  model = load_model(f"gguf:{path}")
  config, params = load_huggingface(reader.read_gguf(path)[0], tensors)
  assert model.config == config and config.family == "llama" and config.eos_token_id == 258
  jax.tree.map(np.testing.assert_array_equal, model.params, params)
  assert model.generation.stop_ids == (258,) and model.generation.pad_id == 256  # 258 pads in the file, and is eos
  assert model.tokenizer.decode(model.tokenizer.encode("ab 1")) == "ab 1"
  half = load_model(str(path), param_dtype="bfloat16")
  assert {x.dtype.name for x in jax.tree.leaves(half.params)} == {"bfloat16"}
  assert tokenizer_fingerprint(half.tokenizer) == tokenizer_fingerprint(load_tokenizer(f"gguf:{path}"))


def test_embedding_smaller_than_the_tokenizer_raises(tmp_path):
  tensors = hf_tensors()
  tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:270]
  with pytest.raises(ValueError, match=r"vocabulary mismatch.* 270 rows.*largest id is 271 \(272 tokens\)"):
    load_model(f"gguf:{write(tmp_path / 'm.gguf', tensors)}")


def test_missing_tensor_is_named(tmp_path):
  tensors = hf_tensors()
  del tensors["model.layers.1.self_attn.v_proj.weight"]
  with pytest.raises(ValueError, match="'model.layers.1.self_attn.v_proj.weight' is missing"):
    load_model(f"gguf:{write(tmp_path / 'm.gguf', tensors)}")


def test_tensor_outside_the_table_is_named():
  assert reader.hf_name("blk.12.attn_q.bias") == "model.layers.12.self_attn.q_proj.bias"
  with pytest.raises(ValueError, match="'blk.0.ffn_gat.weight' has no place.*did you mean 'ffn_gate'"):
    reader.hf_name("blk.0.ffn_gat.weight")


def test_file_that_is_no_gguf(tmp_path):
  with pytest.raises(ValueError, match="does not exist"):
    reader.read_gguf(tmp_path / "missing.gguf")
  (tmp_path / "x.gguf").write_bytes(b"hello" * 10)
  with pytest.raises(ValueError, match="not a whole GGUF file"):
    reader.read_gguf(tmp_path / "x.gguf")
  whole = write(tmp_path / "y.gguf", hf_tensors()).read_bytes()
  (tmp_path / "y.gguf").write_bytes(whole[: len(whole) // 2])
  with pytest.raises(ValueError, match="not a whole GGUF file"):
    reader.read_gguf(tmp_path / "y.gguf")
