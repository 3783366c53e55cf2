"""Checkpoints of a run: orbax writes, commits, retains and restores; a manifest in each says whether to trust it.

A checkpoint is the directory `step_<n>`:

  state/         every array of the train state, by its path in the tree
  host/          position, resolved config, fingerprint of the data, table of leaves (JSON)
  metrics/       the number by which the best is chosen
  manifest.json  size and sha256 of every file above

The manifest is written before orbax renames the finished directory to its name, so that the rename commits both.
"""

import hashlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from rlvr_jax.core import PyTree

MANIFEST = "manifest.json"
_REMOVED = "removed"  # old checkpoints are renamed into it before their files go: half a deletion is no damage
_TMP_SUFFIX = ".orbax-checkpoint-tmp"
_ORBAX_TIMES = "_CHECKPOINT_METADATA"  # orbax writes these two after the manifest; only times in them are new
_UNHASHED = (_ORBAX_TIMES, "commit_success.txt", MANIFEST)


class Restored(NamedTuple):
  """One checkpoint: its step, the state in the template's structure and sharding, and the host's position."""

  step: int
  state: PyTree
  position: dict[str, Any]


class Checkpointer:
  """Saves and restores a run in one local directory, which is one process's at a time.

  Every method first raises what a save in the background failed with.

  Args:
    directory:        made when missing; what a kill left half-written in it is removed.
    keep_last:        how many of the newest to keep.
    keep_best:        also keep the one with the largest metric.
    config:           resolved config, stored in each checkpoint and compared by `check_compatible`.
    data_fingerprint: likewise, of the data set.
    on_message:       told about damage and about differences that were allowed.
  """

  def __init__(
    self,
    directory: str | os.PathLike,
    *,
    keep_last: int = 2,
    keep_best: bool = True,
    config: Mapping[str, Any],
    data_fingerprint: str,
    on_message: Callable[[str], None] = warnings.warn,
  ):
    if keep_last < 1:
      raise ValueError(f"Checkpointer needs keep_last >= 1, got {keep_last}")
    self.directory = Path(directory).absolute()
    self.directory.mkdir(parents=True, exist_ok=True)
    self._host = dict(config=_as_json("config", config), data_fingerprint=str(data_fingerprint))
    self._on_message = on_message
    self._verified: set[int] = set()
    self._finish_removals()
    for step in self._steps_on_disk():  # orbax reads metadata of all of them as it opens
      self._set_aside_if_damaged(step, deep=False)
    self._manager = ocp.CheckpointManager(self.directory, options=self._options(keep_last, keep_best))

  def _options(self, keep_last: int, keep_best: bool) -> ocp.CheckpointManagerOptions:
    policies = ocp.checkpoint_managers
    preservation = [policies.LatestN(keep_last)]
    if keep_best:
      preservation.append(policies.BestN(get_metric_fn=_metric, n=1, keep_checkpoints_without_metrics=False))
    return ocp.CheckpointManagerOptions(
      step_prefix="step",
      best_fn=_metric,
      preservation_policy=policies.AnyPreservationPolicy(preservation),
      todelete_subdir=_REMOVED,
      cleanup_tmp_directories=True,
      async_options=ocp.AsyncOptions(post_finalization_callback=self._before_commit),
    )

  def save(self, step: int, state: PyTree, position: Mapping[str, Any], metric: float | None = None) -> bool:
    """Starts a save and returns once the arrays are out of reach of a donating step; False if `step` is saved already.

    Args:
      state:    tree of jax arrays; typed PRNG keys and empty subtrees are welcome.
      position: JSON-able state of the host: where the data loader stands, best so far, counters.
      metric:   larger is better; None never is the best.
    """
    self.wait()
    if step in self._manager.all_steps():
      return False
    if metric is not None and not math.isfinite(metric):
      raise ValueError(f"save at step {step}: metric must be finite or None, got {metric}")
    leaves = _named_leaves(state)
    table = {name: _describe(name, leaf) for name, leaf in leaves.items()}
    host = dict(self._host, position=_as_json("position", position), leaves=table)
    self._saving = step
    args = dict(
      state=ocp.args.StandardSave({name: _raw(leaf) for name, leaf in leaves.items()}),
      host=ocp.args.JsonSave(host),
    )
    metrics = dict(metric=None if metric is None else float(metric))
    return self._manager.save(step, args=ocp.args.Composite(**args), metrics=metrics, force=True)

  def wait(self) -> None:
    """Blocks until the running save, if any, is committed."""
    try:
      self._manager.wait_until_finished()
    except BaseException:
      self._manager.reload()  # orbax has already forgotten the checkpoints that this save would have replaced
      raise
    finally:
      self._finish_removals()

  def close(self) -> None:
    try:
      self.wait()
    finally:
      self._manager.close()

  def latest(self) -> int | None:
    """The newest step whose every file is what was written; damaged ones are reported and renamed aside."""
    self.wait()
    for step in sorted(self._manager.all_steps(), reverse=True):
      if not self._set_aside_if_damaged(step):
        return step
    return None

  def best(self) -> int | None:
    """The step with the largest metric among the undamaged; None where none has a metric."""
    self.wait()
    while (step := self._manager.best_step()) is not None and self._set_aside_if_damaged(step):
      pass
    return None if step is None or self._manager.metrics(step)["metric"] is None else step

  def restore(self, template: PyTree, step: int | None = None) -> Restored | None:
    """The newest undamaged checkpoint (or that of `step`), placed as `template` is; None where there is none.

    Args:
      template: arrays or `ShapeDtypeStruct`s, with shardings; where one has none, the first device.

    Raises ValueError naming every leaf whose presence, shape or dtype is not the template's.
    """
    latest = self.latest()
    step = latest if step is None else step
    if step is None:
      return None
    if step not in self._manager.all_steps() or self._set_aside_if_damaged(step):
      raise ValueError(f"no sound checkpoint of step {step} in {self.directory}; it has {self._manager.all_steps()}")
    host = self._read_host(step)
    wanted = _named_leaves(template)
    _check_leaves(self.directory / f"step_{step}", host["leaves"], wanted)
    abstract = {name: _abstract(leaf) for name, leaf in wanted.items()}
    saved = self._manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract)))["state"]
    leaves = [_typed(saved[name], leaf) for name, leaf in wanted.items()]
    return Restored(step, jax.tree.unflatten(jax.tree.structure(template), leaves), host["position"])

  def position(self, step: int) -> dict[str, Any]:
    """The host's position at a saved step, without its arrays."""
    return self._read_host(step)["position"]

  def check_compatible(
    self,
    config: Mapping[str, Any],
    data_fingerprint: str,
    allow_changes: bool = False,
    free: Sequence[str] = (),
  ) -> list[str]:
    """Compares with what the newest undamaged checkpoint was made with.

    Args:
      allow_changes: report the differences instead of raising.
      free:          dotted keys that may differ, each with all below it (`"display"` frees `display.width`).

    Returns the differences, `key: saved -> new`. Raises ValueError with all of them.
    """
    step = self.latest()
    if step is None:
      return []
    host = self._read_host(step)
    now = dict(config=_as_json("config", config), data_fingerprint=str(data_fingerprint))
    changes = _differences(host["config"], now["config"], free)
    if host["data_fingerprint"] != now["data_fingerprint"]:
      changes.append(f"data_fingerprint: {host['data_fingerprint']!r} -> {now['data_fingerprint']!r}")
    if changes:
      listing = f"{self.directory / f'step_{step}'} was made with other settings (saved -> now):\n  " + "\n  ".join(
        changes
      )
      if not allow_changes:
        raise ValueError(listing)
      self._on_message(listing)
    return changes

  def _read_host(self, step: int) -> dict[str, Any]:
    return self._manager.restore(step, args=ocp.args.Composite(host=ocp.args.JsonRestore()))["host"]

  def _steps_on_disk(self) -> list[int]:
    names = [p.name.removeprefix("step_") for p in self.directory.glob("step_*") if p.is_dir()]
    return sorted(int(n) for n in names if n.isdecimal())

  def _before_commit(self) -> None:
    """Called by orbax in the saving thread, between the last file and the rename."""
    if jax.process_index() == 0:
      write_manifest(self.directory / f"step_{self._saving}{_TMP_SUFFIX}")

  def _finish_removals(self) -> None:
    shutil.rmtree(self.directory / _REMOVED, ignore_errors=True)

  def _set_aside_if_damaged(self, step: int, deep: bool = True) -> bool:
    path = self.directory / f"step_{step}"
    damage = None if step in self._verified else find_damage(path, deep)
    if damage is None:
      self._verified |= {step} if deep else set()
      return False
    aside, n = path.with_name(f"{path.name}.damaged"), 1
    while aside.exists():
      aside, n = path.with_name(f"{path.name}.damaged.{n}"), n + 1
    path.rename(aside)
    self._on_message(f"DAMAGED CHECKPOINT {path}: {damage}. It is now {aside.name}; the one before it is used instead.")
    if hasattr(self, "_manager"):
      self._manager.reload()
    return True


def write_manifest(path: Path) -> None:
  """Flushes every file under `path` to disk and writes their sizes and sha256 to `manifest.json`, atomically."""
  files = {}
  for file in sorted(p for p in path.rglob("*") if p.is_file()):
    name = file.relative_to(path).as_posix()
    if name not in _UNHASHED:
      files[name] = [file.stat().st_size, _sha256(file, flush=True)]
  draft = path / f"{MANIFEST}.tmp"
  with open(draft, "w", encoding="ascii") as f:
    json.dump(files, f, separators=(",", ":"))
    f.flush()
    os.fsync(f.fileno())
  draft.rename(path / MANIFEST)


def find_damage(path: Path, deep: bool = True) -> str | None:
  """What is wrong with the checkpoint at `path`, or None. Without `deep` the contents of files are not read."""
  try:
    files = dict(json.loads((path / MANIFEST).read_text(encoding="ascii")))
    json.loads((path / _ORBAX_TIMES).read_text(encoding="ascii"))
  except (OSError, ValueError) as e:
    return f"{MANIFEST} or {_ORBAX_TIMES} cannot be read ({e})"
  for name, (size, digest) in files.items():
    file = path / name
    if not file.is_file():
      return f"{name} is missing"
    if file.stat().st_size != size:
      return f"{name} has {file.stat().st_size} bytes instead of {size}"
    if deep and _sha256(file) != digest:
      return f"{name} is not what was written (sha256)"
  return None


def _sha256(file: Path, flush: bool = False) -> str:
  with open(file, "rb") as f:
    if flush:
      os.fsync(f.fileno())
    return hashlib.file_digest(f, "sha256").hexdigest()


def _metric(metrics: Mapping[str, float | None]) -> float:
  return -math.inf if metrics["metric"] is None else metrics["metric"]


def _as_json(where: str, value: Any) -> Any:
  """A copy as JSON reads it back. Raises ValueError naming what JSON cannot hold, or would change the keys of."""
  if isinstance(value, Mapping):
    for key in value:
      if not isinstance(key, str):
        raise ValueError(f"{where} must have string keys to be saved as JSON, got {key!r}")
    return {key: _as_json(f"{where}.{key}", v) for key, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [_as_json(f"{where}[{i}]", v) for i, v in enumerate(value)]
  if value is None or isinstance(value, (bool, int, float, str)):
    return value
  raise ValueError(f"{where} must be JSON-able, got {type(value).__name__} {value!r}")


def _flatten(where: str, value: Any) -> dict[str, Any]:
  if isinstance(value, dict) and value:
    parts = [_flatten(f"{where}.{k}" if where else k, v) for k, v in value.items()]
  elif isinstance(value, list) and value:
    parts = [_flatten(f"{where}[{i}]", v) for i, v in enumerate(value)]
  else:
    return {where: json.dumps(value)}
  return {k: v for part in parts for k, v in part.items()}


def _differences(saved: Any, now: Any, free: Sequence[str]) -> list[str]:
  saved, now = _flatten("", saved), _flatten("", now)
  differ = [k for k in sorted(saved | now) if saved.get(k) != now.get(k)]
  is_free = lambda key: any(key == f or key.startswith((f"{f}.", f"{f}[")) for f in free)
  return [f"{k}: {saved.get(k, '(absent)')} -> {now.get(k, '(absent)')}" for k in differ if not is_free(k)]


def _named_leaves(tree: PyTree) -> dict[str, Any]:
  return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _is_key(leaf: Any) -> bool:
  return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _describe(name: str, leaf: Any) -> str:
  if not isinstance(leaf, jax.Array):
    raise ValueError(f"the state must hold jax arrays only, {name} is a {type(leaf).__name__}")
  return _shape(leaf)


def _shape(leaf: Any) -> str:
  return f"{leaf.dtype}{list(leaf.shape)}"


def _raw(leaf: jax.Array) -> jax.Array:
  return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _typed(saved: jax.Array, template: Any) -> jax.Array:
  if not _is_key(template):
    return saved
  impl = []  # key_impl takes a traced key but no ShapeDtypeStruct
  jax.eval_shape(lambda key: impl.append(jax.random.key_impl(key)), template)
  return jax.random.wrap_key_data(saved, impl=impl[0])


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
  sharding = getattr(leaf, "sharding", None) or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  raw = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
  return jax.ShapeDtypeStruct(raw.shape, raw.dtype, sharding=sharding)


def _check_leaves(path: Path, saved: Mapping[str, str], template: Mapping[str, Any]) -> None:
  wanted = {name: _shape(leaf) for name, leaf in template.items()}
  differ = [k for k in sorted(saved | wanted) if saved.get(k) != wanted.get(k)]
  if differ:
    lines = [f"{k}: {saved.get(k, '(absent)')} -> {wanted.get(k, '(absent)')}" for k in differ]
    raise ValueError(f"{path} does not fit the state of this run (saved -> wanted):\n  " + "\n  ".join(lines))
