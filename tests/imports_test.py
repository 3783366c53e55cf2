"""Imports run one way between rooms, pure rooms stay pure, and configs see nothing of the library.

Every file is parsed, so imports inside functions and under conditions count as well.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "rlvr_jax"

ALLOWED = {
  "core": set(),
  "sharding": {"core"},
  "tasks": {"core"},
  "models": {"core", "sharding"},
  "rewards": {"core", "tasks"},
  "rollouts": {"core", "sharding", "models"},
  "distill": {"core"},
  "credit": {"core", "distill"},
  "objectives": {"core", "distill"},
  "selection": {"core"},
  "train": {"core", "sharding", "models", "distill", "credit", "objectives"},
  "evals": {"core", "sharding", "tasks", "models", "rewards", "rollouts"},
}
ALLOWED["runs"] = set(ALLOWED)

PURE = ("core", "distill", "credit", "objectives", "selection")
IMPURE_MODULES = {
  "io", "logging", "ml_collections", "multiprocessing", "numpy", "os", "pathlib", "random", "subprocess", "sys",
  "tempfile", "threading", "time", "warnings",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval"}
# Of jax: what compiles, places, moves or calls back. Pure code leaves these to whoever calls it.
IMPURE_JAX = {
  "block_until_ready", "debug", "device_get", "device_put", "devices", "experimental", "io_callback", "jit",
  "make_mesh", "pmap", "pure_callback", "set_mesh", "shard_map", "sharding", "with_sharding_constraint",
}  # fmt: skip


def files(folder: Path) -> list[Path]:
  return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def module_of(path: Path, root: Path = ROOT) -> list[str]:
  parts = list(path.relative_to(root).with_suffix("").parts)
  return parts[:-1] if parts[-1] == "__init__" else parts


def imported(path: Path, root: Path = ROOT) -> set[str]:
  """Full dotted names of everything a file imports; `from a import b` is `a.b`."""
  module = module_of(path, root)
  package = module if path.name == "__init__.py" else module[:-1]
  names = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      base = package[: len(package) - node.level + 1] if node.level else []
      base = ".".join([*base, *([node.module] if node.module else [])])
      names |= {f"{base}.{alias.name}" for alias in node.names}
  return names


def imported_rooms(path: Path, root: Path = ROOT) -> set[str]:
  found = [name.split(".") for name in imported(path, root)]
  return {parts[1] for parts in found if parts[0] == "rlvr_jax" and len(parts) > 1}


def jax_names(path: Path, root: Path = ROOT) -> set[str]:
  """Names taken from jax: attributes along `jax.a.b` and the parts of what is imported from it."""
  names = {part for name in imported(path, root) if name.split(".")[0] == "jax" for part in name.split(".")[1:]}
  tree = ast.parse(path.read_text(encoding="utf-8"))
  aliases = {"jax", "lax", "jnp"}
  for node in ast.walk(tree):
    chain = []
    while isinstance(node, ast.Attribute):
      chain.append(node.attr)
      node = node.value
    if isinstance(node, ast.Name) and node.id in aliases:
      names |= set(chain)
  return names


def impurities(path: Path, root: Path = ROOT) -> set[str]:
  modules = {name.split(".")[0] for name in imported(path, root)} & IMPURE_MODULES
  tree = ast.parse(path.read_text(encoding="utf-8"))
  calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)} & IMPURE_CALLS
  return modules | calls | {f"jax: {name}" for name in jax_names(path, root) & IMPURE_JAX}


def ids(path: Path) -> str:
  return str(path.relative_to(ROOT))


def test_every_folder_is_a_room_of_the_table():
  rooms = {p.name for p in PACKAGE.iterdir() if p.is_dir() and files(p)}
  assert rooms <= set(ALLOWED)


def test_the_table_is_the_documented_one():
  rows = re.findall(r"^\| `(\w+)/` \|[^|]*\|([^|]*)\|$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
  documented = {room: set(may.split()) - {"nothing"} for room, may in rows}
  documented["runs"] = set(ALLOWED) - {"runs"} if documented["runs"] == {"all"} else documented["runs"]
  assert documented == ALLOWED


def test_the_table_has_no_cycle():
  left = dict(ALLOWED)
  while left:
    lowest = [room for room, below in left.items() if not below & set(left)]
    assert lowest, f"rooms that import each other: {sorted(left)}"
    for room in lowest:
      del left[room]


@pytest.mark.parametrize("path", files(PACKAGE), ids=ids)
def test_imports_run_downward(path):
  parts = path.relative_to(PACKAGE).parts
  if len(parts) == 1:  # rlvr_jax/__init__.py
    assert imported_rooms(path) == set()
    return
  room = parts[0]
  assert imported_rooms(path) - {room} <= ALLOWED[room]
  assert not {n.split(".")[0] for n in imported(path)} & {"configs", "experiments", "tests", "notebooks"}


@pytest.mark.parametrize("path", [p for room in PURE for p in files(PACKAGE / room)], ids=ids)
def test_pure_rooms(path):
  assert impurities(path) == set()


@pytest.mark.parametrize("path", files(ROOT / "configs"), ids=ids)
def test_configs_see_only_configs(path):
  assert {name.split(".")[0] for name in imported(path)} <= {"ml_collections", "configs"}


@pytest.mark.parametrize(
  "source, rooms",
  [
    ("import rlvr_jax.rewards.mix", {"rewards"}),
    ("from rlvr_jax import train", {"train"}),
    ("def f():\n  from rlvr_jax.runs.loop import train", {"runs"}),
    ("if True:\n  from .. import models", {"models"}),
    ("from ..sharding.mesh import spec", {"sharding"}),
    ("from .masked import masked\nimport jax", {"core"}),
  ],
)
def test_sees_every_way_of_importing(tmp_path, source, rooms):
  path = tmp_path / "rlvr_jax" / "core" / "file.py"
  path.parent.mkdir(parents=True)
  path.write_text(source)
  assert imported_rooms(path, tmp_path) == rooms


@pytest.mark.parametrize(
  "source",
  [
    "import numpy as np",
    "from time import monotonic",
    "def f():\n  import os.path",
    "f = jax.jit(g)",
    "@functools.partial(jax.jit, static_argnums=0)\ndef f(): pass",
    "from jax import jit",
    "from jax.sharding import Mesh",
    "x = jax.lax.with_sharding_constraint(x, s)",
    "jax.debug.print('x')",
    "print(1)",
  ],
)
def test_sees_every_impurity(tmp_path, source):
  path = tmp_path / "file.py"
  path.write_text(source)
  assert impurities(path, tmp_path)


def test_pure_code_passes(tmp_path):
  path = tmp_path / "file.py"
  path.write_text("import jax\nimport jax.numpy as jnp\nx = jax.lax.scan(f, jnp.zeros(3), jax.nn.relu(y))\n")
  assert impurities(path, tmp_path) == set()
