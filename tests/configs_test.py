"""Every config builds, is short and takes a step; presets have their frameworks' numbers; methods.md is current."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlvr_jax.objectives.reducers as reducers
from rlvr_jax.core import Rollout, build
from rlvr_jax.runs import LabRun
from rlvr_jax.runs.compare import load_config
from rlvr_jax.runs.laboratory import set_path
from rlvr_jax.runs.method import make_credit
from rlvr_jax.runs.parts import parts, to_markdown

ROOT = Path(__file__).resolve().parents[1]
SHARED = ("__init__", "base")
LAB = sorted(p for p in (ROOT / "configs").glob("*/*.py") if p.stem not in SHARED)
lab = pytest.mark.parametrize("path", LAB, ids=lambda p: f"{p.parent.name}/{p.stem}")
WORLD = "guess_number"
SMALL = {
  "model.sizes": dict(width=16, num_layers=1, num_heads=2, num_kv_heads=1, mlp_width=32),
  "train.num_steps": 1, "eval.num_prompts": 4, "eval.every": 1,
}  # fmt: skip


@pytest.fixture
def quick_compiles():
  jax.config.update("jax_disable_most_optimizations", True)
  yield
  jax.config.update("jax_disable_most_optimizations", False)


def shrunk(path: Path, task: str):
  """Few rows, one step a stage."""
  config = load_config(path, task)
  for where, value in SMALL.items():
    config = set_path(config, where, value)
  ppo = config["rollout"]["group_size"] == 1
  config["prompts"]["per_step"] = 8 if ppo else 2
  config["rollout"]["group_size"] = 1 if ppo else 4
  for name in ("num_candidates", "capacity_groups"):
    for section in ("selection", "replay"):
      if name in config.get(section, {}):
        config[section][name] = 4
  if [stage["kind"] for stage in config["stages"]] == ["sft", "rl"]:
    config["stages"] = config["stages"][1:]  # the method; one config is enough to try the supervised stage
  for stage in config["stages"]:
    stage["train"] = dict(stage.get("train", {}), num_steps=1)
    if stage["kind"] == "sft":
      stage["prompts"] = dict(per_step=4)
  return config


@lab
def test_a_config_builds_and_is_short(path, monkeypatch):
  monkeypatch.syspath_prepend(ROOT)
  LabRun(load_config(path, "sorting"), [0])
  assert len(path.read_text().splitlines()) <= 40
  assert "Run:" in path.read_text()


@pytest.mark.slow
@lab
def test_a_config_takes_a_step_of_every_stage(path, monkeypatch, quick_compiles):
  monkeypatch.syspath_prepend(ROOT)
  run = LabRun(shrunk(path, "sorting"), [0, 1], sharded=False)
  lanes = run.start()
  for index in range(len(run.stages)):
    if index:
      lanes = run.enter(index, lanes)
    before = jax.tree.map(np.asarray, lanes.state.params)
    lanes, metrics = run.chunk(index, lanes, 1)
    if name := run.stage_configs[index].get("save_as"):
      lanes = lanes._replace(saved={name: jax.tree.map(jnp.copy, lanes.state.params)})
    finite = [bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(lanes.state.params)]
    assert all(finite), f"stage {index} left parameters that are not finite"
    if run.stage_configs[index]["kind"] == "sft":
      moved = jax.tree.map(lambda a, b: np.abs(a - np.asarray(b)).max(), before, lanes.state.params)
      assert max(jax.tree.leaves(moved)) > 0
  spent = {name: np.asarray(x) for name, x in lanes.spent.items()}
  assert (spent["update_tokens"] + spent["generated_tokens"] > 0).all()
  filters = {"refill", "screen"} & set(run.config) or any(
    s["name"] == "keep_mixed_groups" for s in run.config["credit"]
  )
  assert filters or (spent["update_tokens"] > 0).all()  # an untrained model has no groups of both kinds


def test_worlds_take_the_same_methods(monkeypatch):
  monkeypatch.syspath_prepend(ROOT)
  for name in ("grpo", "ppo", "gspo", "dapo", "opd"):
    LabRun(load_config(ROOT / "configs" / "lab" / f"{name}.py", WORLD), [0])


def group(reward, tokens=2):
  n = len(reward)
  mask = jnp.ones((n, tokens), bool)
  return Rollout(
    tokens=jnp.zeros((n, tokens), jnp.int32), valid_mask=mask, action_mask=mask, prompt_id=jnp.zeros(n, jnp.int32),
    group_id=jnp.zeros(n, jnp.int32), row_mask=jnp.ones(n, bool), reward=jnp.asarray(reward, jnp.float32), rewards={},
    behaviour_log_probs=jnp.zeros((n, tokens)), truncated=jnp.zeros(n, bool), policy_version=jnp.zeros(n, jnp.int32),
    stats={"old.log_probs": jnp.zeros((n, tokens)), "behaviour.log_probs": jnp.zeros((n, tokens))},
  )  # fmt: skip


# Advantages of the winner and of a loser in the group (1, 0, 0, 0), and of a lone completion of reward 1.
PEERS = {
  "trl_grpo": (1.49970, -0.49990, 0.0),
  "verl_grpo": (1.499997, -0.499999, 1.0),
  "openrlhf_grpo": (1.5, -0.5, 0.0),
  "nemo_grpo": (1.0, -0.57735, 0.0),
  "open_instruct_grpo": (1.73205, -0.57735, 0.0),
}


@pytest.mark.parametrize("name", PEERS)
def test_a_preset_has_its_frameworks_numbers(name, monkeypatch):
  monkeypatch.syspath_prepend(ROOT)
  config = load_config(ROOT / "configs" / "peers" / f"{name}.py", "sorting")
  credit = make_credit(config["credit"], group_size=4)
  winner, loser, lone = PEERS[name]
  for reward, want in (([1, 0, 0, 0], [winner, loser, loser, loser]), ([1], [lone])):
    rollout = group(reward)
    advantages, _, _ = credit.update(rollout.reward, credit.init(), rollout)
    np.testing.assert_allclose(advantages, np.repeat(np.array(want)[:, None], 2, axis=1), atol=3e-6)
  rows = group([0, 0], tokens=3).replace(action_mask=jnp.array([[True, False, False], [True, True, True]]))
  weights = build(reducers, config["reduce"])(rows)
  losses = jnp.array([[1.0, 0, 0], [3, 3, 3]])
  assert jnp.sum(weights.token * losses) / weights.total == pytest.approx(2.5)  # token mean of [[1], [3, 3, 3]]


def test_the_table_of_methods_is_current():
  rows = parts(ROOT / "configs")
  assert (ROOT / "docs" / "methods.md").read_text(encoding="utf-8") == to_markdown(rows), (
    "docs/methods.md is old: run python -m experiments.methods"
  )
  methods = [r for r in rows if r.room in ("credit", "objectives", "objectives.reducers")]
  assert not [r.name for r in methods if not r.configs], "every method has a config that shows it"
  assert not [r.name for r in methods if not r.summary]
  assert not [r.name for r in methods if r.room != "objectives.reducers" and not r.formula]
