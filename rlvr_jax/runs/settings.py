"""The sections of a config that are plain numbers. Defaults live here and only here; unknown keys raise."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rlvr_jax.core import check_keys


@dataclasses.dataclass(frozen=True)
class Model:
  source: str = "tiny"  # "tiny", "/dir", "gguf:/file", "hf:org/name", "pypi:package"
  dtype: str = "float32"  # of the computation; parameters stay in param_dtype
  param_dtype: str = "float32"
  remat: str = "none"
  sizes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of "tiny": width, num_layers, num_heads, ...


@dataclasses.dataclass(frozen=True)
class Prompts:
  per_step: int = 16  # prompts in one batch (demonstrations, in an sft stage)
  max_tokens: int = 64  # after the template
  buckets: tuple[int, ...] | None = None  # padded lengths; one compile each
  on_long: str = "error"  # or "drop", counted
  shuffle: bool = True
  num_epochs: int | None = None


@dataclasses.dataclass(frozen=True)
class Train:
  num_steps: int = 100  # iterations: one batch of rollouts each
  num_microbatches: int = 1
  num_minibatches: int = 1
  num_epochs: int = 1  # over one batch of rollouts
  chunk_tokens: int | None = None  # tokens at once through the vocabulary head
  report_entropy: bool = True  # of the policy, at every action; no pass of its own


@dataclasses.dataclass(frozen=True)
class Eval:
  every: int = 0  # steps between evaluations; 0: only before and after
  num_prompts: int | None = None  # the first of the held-out set; None: all
  num_samples: int = 1  # completions per prompt; pass@k for the powers of two up to it
  prompts_per_batch: int | None = None  # None: as in training
  metric: str | None = None  # reward component that is "accuracy"; None: the first
  rollout: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what differs from training's rollout


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  every: int = 50
  keep_last: int = 2
  keep_best: bool = True


@dataclasses.dataclass(frozen=True)
class Verify:
  num_workers: int = 2
  timeout_secs: float = 10.0
  max_error_share: float = 0.05
  max_timeout_share: float = 0.2
  on_alarm: str = "raise"


@dataclasses.dataclass(frozen=True)
class Log:
  every: int = 1
  rollouts_per_step: int = 4


@dataclasses.dataclass(frozen=True)
class Mesh:
  num_devices: int | None = None  # the first so many; None: all there are
  data: int = -1
  fsdp: int = 1
  tensor: int = 1


SECTIONS = dict(
  model=Model, prompts=Prompts, train=Train, eval=Eval, checkpoint=Checkpoint, verify=Verify, log=Log, mesh=Mesh
)  # fmt: skip
PARTS = (
  "task", "template", "rollout", "rewards", "credit", "objective", "reduce", "optimiser", "selection", "refill",
  "replay", "screen", "views", "critic",
)  # fmt: skip
TOP = ("seed", "stages", *SECTIONS, *PARTS)
PER_STAGE = (
  "prompts", "train", "rollout", "rewards", "credit", "objective", "reduce", "optimiser", "task", "selection", "refill",
  "replay", "screen", "views",
)  # fmt: skip
STAGE_KINDS = ("rl", "sft", "distill")
STAGE_KEYS = ("kind", "stop", "save_as", "restart")  # of a stage alone


def plain(value: Any) -> Any:
  """ConfigDict, FrozenConfigDict and tuples to plain dicts and lists, as JSON would give them back."""
  if hasattr(value, "items"):
    return {k: plain(v) for k, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [plain(v) for v in value]
  return value


def section(name: str, values: Mapping[str, Any] | str) -> Any:
  """The dataclass of one section. `model` may be just its source."""
  if name == "model" and isinstance(values, str):
    values = dict(source=values)
  kind = SECTIONS[name]
  check_keys(f"config.{name}", values, [f.name for f in dataclasses.fields(kind)])
  made = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
  for field in dataclasses.fields(kind):
    value = getattr(made, field.name)
    if field.type is int and (isinstance(value, bool) or not isinstance(value, int)):
      raise ValueError(f"config.{name}.{field.name} must be an int, got {value!r}")
    if field.name.startswith(("num_", "per_", "max_tokens", "keep_last")) and isinstance(value, int) and value < 1:
      raise ValueError(f"config.{name}.{field.name} must be >= 1, got {value}")
  return made


def resolve_stages(config: Mapping[str, Any]) -> list[dict[str, Any]]:
  """One complete plain config per stage: the top level, with the stage's own keys on top (mappings merge, the rest
  is replaced). Without `stages` there is one, of kind "rl"."""
  config = plain(config)
  check_keys("config", config, TOP)
  top = {k: v for k, v in config.items() if k != "stages"}
  stages = []
  for i, stage in enumerate(config.get("stages") or [dict(kind="rl")]):
    where = f"config.stages[{i}]"
    check_keys(where, stage, (*STAGE_KEYS, *PER_STAGE))
    kind = stage.get("kind")
    if kind not in STAGE_KINDS:
      raise ValueError(f"{where}.kind must be one of {STAGE_KINDS}, got {kind!r}")
    merged = dict(top)
    for key, value in stage.items():
      both = isinstance(value, dict) and isinstance(merged.get(key), dict)
      same_part = both and value.get("name", merged[key].get("name")) == merged[key].get("name")
      merged[key] = merged[key] | value if same_part else value
    stages.append(merged)
  return stages
