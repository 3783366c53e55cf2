"""One program for a whole run: mapped is alone, scanned is looped, swept is set, and all of it is the public pieces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lab import SFT, SharedRun, close, host, lab, lane, same

import rlvr_jax.selection as selection
from rlvr_jax.rollouts import PromptArrays
from rlvr_jax.runs.arena import make_arena
from rlvr_jax.runs.collect import select_key
from rlvr_jax.runs.laboratory import init_params, is_graph_task, make_model, set_path
from rlvr_jax.runs.method import make_method
from rlvr_jax.runs.settings import SECTIONS, section
from rlvr_jax.train import TrainState

WHOLE = ("reward/correct", "reward/parsable", "length/mean", "truncated", "num_tokens", "budget/generated_tokens")


@pytest.fixture(scope="module", autouse=True)
def quick_compiles():
  jax.config.update("jax_disable_most_optimizations", True)
  yield
  jax.config.update("jax_disable_most_optimizations", False)


def play(run, *lengths, start=None):
  """Chunks of these lengths: metrics [s i], the lanes, and held-out completions."""
  lanes, found = start or run.start(), []
  for length in lengths:
    lanes, metrics = run.chunk(0, lanes, length)
    found.append(host(metrics))
  metrics = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *found)
  return metrics, host(lanes), host(run.evaluate(lanes.state.params))


@pytest.fixture(scope="module")
def pair():
  return SharedRun(lab(), [3, 5])


@pytest.fixture(scope="module")
def played(pair):
  return play(pair, 4)


def check_same_run(actual, expected):
  """The same samples, and parameters but for rounding."""
  for name in WHOLE:
    same(actual[0][name], expected[0][name])
  same(actual[2], expected[2])
  close(actual[0], expected[0])
  close(actual[1], expected[1])


def test_mapped_is_alone(played):
  """Samples, verdicts and counts are bit for bit the same. Parameters are within rounding: XLA sums a matmul of two
  lanes in another order than that of one (about 1e-7 apart after four updates)."""
  for index, seed in enumerate((3, 5)):
    check_same_run(lane(played, index), play(SharedRun(lab(), [seed]), 4))


def test_the_order_of_lanes_does_not_matter(played):
  """Bit for bit: it is the same program."""
  same(jax.tree.map(lambda x: x[::-1], play(SharedRun(lab(), [5, 3]), 4)), played)


def test_scanned_is_looped(pair, played):
  """One dispatch of four iterations and four of one: the same samples; bit for bit on this CPU."""
  same(play(pair, 1, 1, 1, 1), played)


@pytest.mark.slow
def test_spread_over_devices_is_on_one():
  """Eight lanes on eight devices: the same samples, parameters within rounding."""
  seeds = [3, 5, 0, 1, 2, 4, 6, 7]
  spread = SharedRun(lab(), seeds)
  assert spread.sharding is not None and len(spread.start().state.step.sharding.device_set) == 8
  on_one = play(SharedRun(lab(), seeds, sharded=False), 4)
  check_same_run(play(spread, 2, 2), on_one)


@pytest.mark.slow
def test_mapped_is_alone_when_optimised(played):
  """The same with the compiler's optimisations, which fuse differently for one lane and two."""
  jax.config.update("jax_disable_most_optimizations", False)
  SharedRun.programs.clear()
  try:
    alone = play(SharedRun(lab(), [5]), 4)
    check_same_run(lane(play(SharedRun(lab(), [3, 5]), 4), 1), alone)
    check_same_run(lane(played, 1), alone)
  finally:
    jax.config.update("jax_disable_most_optimizations", True)
    SharedRun.programs.clear()


def by_hand(config, seed, num_iterations):
  """The host loop: propose, sample, verify, step, with two programs and Python between them."""
  settings = {name: section(name, config.get(name, {})) for name in SECTIONS}
  arena = make_arena(config["task"])
  model = make_model(config, arena.task)
  method = make_method(config, settings, model)
  chosen = selection.uniform(arena.task.num_train, settings["prompts"].per_step)
  sampler, run_key = arena.make_sampler(config["rollout"], model), jax.random.key(seed)

  @jax.jit
  def sample(params, index, step):
    rollout = sampler(params, PromptArrays(*arena.prompts(index), index), run_key, step)
    return rollout, arena.verify(rollout)

  step_program, propose = jax.jit(method.step), jax.jit(lambda key: chosen.propose({}, key)[0])
  state, found = method.init(init_params(model, jnp.uint32(seed)), seed), []
  for step in range(num_iterations):
    index = propose(select_key(run_key, step, 0))
    rollout, verdict = sample(state.params, index, step)
    length = np.asarray(rollout.action_mask).sum(axis=1)
    correct, parsable = np.asarray(verdict.correct), np.asarray(verdict.parsable)
    low = ((np.asarray(rollout.tokens) < 8) & np.asarray(rollout.action_mask)).sum(axis=1) / length
    reward = correct + 0.5 * low
    state, metrics = step_program(state, rollout.replace(reward=jnp.asarray(reward, jnp.float32)))
    found.append(
      {
        "reward/correct": correct.mean(),
        "reward/parsable": parsable.mean(),
        "reward/mean": reward.mean(),
        "budget/generated_tokens": length.sum(),
        "loss": float(metrics["loss"].mean()),
        "grad_norm": float(metrics["grad_norm"].mean()),
      }
    )
  return state, {name: np.array([row[name] for row in found]) for name in found[0]}


def test_iterate_is_sample_verify_step_by_hand(played):
  """The same keys, order and counts; float32 within rounding: the same arithmetic stands in other programs."""
  metrics, lanes, _ = played
  state, found = by_hand(lab(), 3, 4)
  for name, values in found.items():
    np.testing.assert_allclose(metrics[name][0], values, rtol=1e-4, atol=1e-6, err_msg=name)
  close(lane(lanes.state.params, 0), jax.tree.map(lambda x: x[None], state.params))
  assert lanes.spent["generated_tokens"][0] == found["budget/generated_tokens"].sum()
  assert lanes.spent["update_tokens"][0] == found["budget/generated_tokens"].sum()  # one epoch over every token
  assert lanes.spent["scored_tokens"][0] == 0  # "old" of the one update needs no pass
  assert metrics["grad_norm"].min() > 0 and metrics["reward/correct"].max() > 0


# A second epoch, without clipping of the gradient or Adam: so each of the numbers matters.
SWEPT = lab(optimiser=dict(name="sgd", learning_rate=0.5), train=dict(num_steps=4, num_epochs=2))
CHANGED = {
  "optimiser.learning_rate": 0.8, "objective[0].weight": 0.5, "credit[0].eps": 0.3, "rollout.temperature": 0.6,
  "objective[0].clip_high": 0.01,
}  # fmt: skip


def with_changed(config, paths):
  for path in paths:
    config = set_path(config, path, CHANGED[path])
  return config


def test_swept_is_set():
  """The lane with every number changed is the run whose config says so (within rounding; the same samples), and each
  number matters: a lane that lacks one change differs."""
  old = lab(optimiser=SWEPT["optimiser"])
  old = {"optimiser.learning_rate": 0.5, "rollout.temperature": old["rollout"]["temperature"]} | {
    "objective[0].weight": 1.0, "credit[0].eps": 1e-6, "objective[0].clip_high": 0.2,
  }  # fmt: skip
  values = {path: [new, *(old[path] if path == other else new for other in CHANGED)] for path, new in CHANGED.items()}
  swept = play(SharedRun(SWEPT, [3] * 6, values, sharded=False), 4)
  alone = play(SharedRun(with_changed(SWEPT, CHANGED), [3]), 4)
  check_same_run(lane(swept, 0), alone)
  table = jax.tree.leaves(swept[1].state.params)[0]
  for index, path in enumerate(CHANGED, 1):
    assert np.abs(table[index] - table[0]).max() > 1e-5, path


def test_each_lane_has_its_own_evaluation_temperature():
  """A temperature so low that it is greedy: the samples of a held-out problem agree with each other."""
  config = lab(eval=dict(num_prompts=4, num_samples=4, rollout=dict(temperature=1.0)))
  run = SharedRun(config, [3, 3], {"eval.rollout.temperature": [1e-3, 1.0]})
  cold, hot = np.asarray(run.evaluate(run.start().state.params).answer_id)
  assert (cold == cold[:, :1]).all() and (hot != hot[:, :1]).any()


@pytest.mark.parametrize(
  "path, message",
  [
    ("optimiser.learning_rates", r"config has no 'optimiser\.learning_rates': at 'learning_rates' there is \['clip"),
    ("credit[2].eps", r"config has no 'credit\[2\]\.eps': at 2 there is 2 parts"),
    ("credit[0].epsilon", r"config has no 'credit\[0\]\.epsilon'"),
    ("optimiser.learning_rate.peak", r"config has no .*: at 'peak' there is 0\.01"),
    ("optimiser.name", r"a sweep is over a number; config has 'adamw' at 'optimiser\.name'"),
    ("objective[0]", r"a sweep is over a number; config has \{"),
    ("task.branching", r"'task\.branching' cannot be swept: all lanes share 'task'"),
    ("seed", r"'seed' cannot be swept: all lanes share 'seed'"),
    ("rollout.group_size", r"'rollout\.group_size' cannot be swept: a part needs it as a Python number"),
    ("credit[0].ddof", r"'credit\[0\]\.ddof' cannot be swept: a part needs it as a Python number"),
  ],
)
def test_what_cannot_be_swept_is_named(path, message):
  config = lab(credit=[dict(name="group_normalise", eps=1e-6, ddof=1), dict(name="spread_over_tokens")])
  with pytest.raises(ValueError, match=message):
    SharedRun(config, [0], {path: [1.0]})


def test_swept_numbers_are_checked_like_any():
  with pytest.raises(ValueError, match=r"learning_rate must be >= 0, got -1\.0"):
    SharedRun(lab(), [0, 1], {"optimiser.learning_rate": [1.0, -1.0]})
  with pytest.raises(ValueError, match=r"'optimiser\.learning_rate' needs a value for each of 2 lanes, got 1"):
    SharedRun(lab(), [0, 1], {"optimiser.learning_rate": [1.0]})


def test_a_method_from_outside_the_package():
  """A credit link, a term and a reward component of one's own (tests/helpers/lab.py), named in a config."""
  config = lab(
    rewards=[dict(name="lab:low_tokens", label="low", below=9)],
    credit=[dict(name="lab:doubled", factor=3.0)],
    objective=[dict(name="reinforce"), dict(name="lab:pull_to_uniform", label="pull", strength=0.1)],
  )
  run = SharedRun(config, [0])
  metrics, lanes, _ = play(run, 2)
  assert lanes.state.credit["lab:doubled"].tolist() == [2]  # its state is carried
  assert (metrics["reward/low"] > 0).all() and (metrics["advantage_mean"] > metrics["reward/low"]).all()
  np.testing.assert_allclose(metrics["pull/my_metric"], metrics["entropy"], rtol=1e-6)
  assert (metrics["pull"] < 0).all() and (metrics["grad_norm"] > 0).all()


EXPERT = dict(
  kind="distill", views=dict(teacher=dict(params="given", expert="best")),
  objective=[dict(name="sampled_reverse_kl")],
)  # fmt: skip


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(task=dict(name="sortin")), r"no graph task or world 'sortin'; did you mean 'sorting'\?"),
    (dict(task=dict(name="modular_sum", modulu=5)), r"modular_sum has no 'modulu'; did you mean 'modulus'\?"),
    (dict(selection=dict(name="unifrm")), r"selection has no 'unifrm'; did you mean 'uniform'\?"),
    (dict(selection=dict(name="replay")), r"it is config\.replay"),
    (dict(eval=dict(num_prompts=5)), r"config\.eval\.num_prompts = 5, the held-out set .* has 4 rows"),
    (dict(model=dict(source="hf:org/name")), r"config\.model\.source must be 'tiny', got 'hf:org/name'"),
    (dict(train=dict(num_microbatches=3)), r"8 rows is no multiple of .* 1 \* 3"),
    (dict(stages=[dict(kind="rl", stp={})]), r"config\.stages\[0\] has no 'stp'; did you mean 'stop'\?"),
    (dict(stages=[dict(kind="rll")]), r"config\.stages\[0\]\.kind must be one of"),
    (dict(stages=[dict(kind="rl", stop=dict(patince=1))]), r"stop has no 'patince'; did you mean 'patience'\?"),
    (dict(stages=[dict(kind="rl", stop=dict(patience=1))], eval=dict(every=0)), r"stop needs config\.eval\.every >= 1"),
    (dict(stages=[dict(kind="rl", task=dict(name="sorting"))]), r"config\.stages\[0\]\.task: a laboratory run has one"),
    (dict(views=dict(teacher=dict(params="policy", context="hnt"))), r"context has no 'hnt'; did you mean 'hint'\?"),
    (dict(views=dict(teacher=dict(params="given"))), r"config\.views\.teacher: params='given' goes with one of expert"),
    (dict(views=dict(teacher=dict(params="given", source="/x"))), r"config\.views\.teacher\.source: a graph task"),
    (dict(stages=[EXPERT]), r"config\.stages\[0\]\.views: expert.* has no 'best'"),
    (dict(stages=[dict(kind="rl", save_as="bst"), EXPERT]), r"config\.stages\[1\]\.views: .* did you mean 'bst'\?"),
    (dict(stages=[EXPERT, dict(kind="rl", save_as="best")]), r"config\.stages\[0\]\.views: expert.* has no 'best'"),
    (dict(refill=dict(num_round=2)), r"config\.refill has no 'num_round'; did you mean 'num_rounds'\?"),
    (dict(refill=dict(num_rounds=2, metric="corect")), r"config\.refill\.metric has no 'corect'"),
    (dict(replay=dict(capacity=2)), r"replay has no 'capacity'; did you mean 'capacity_groups'\?"),
    (dict(replay=dict(capacity_groups=4, num_replayed=1, metric="corect")), r"config\.replay\.metric has no 'corect'"),
    (dict(screen=dict(group_size=2)), r"config\.screen goes with a selection that screens"),
    (
      dict(selection=dict(name="speed_rl", num_candidates=4), screen=dict(size=2)),
      r"config\.screen has no 'size'; did you mean 'group_size'\?",
    ),
    (dict(rewards=[dict(name="corect")]), r"rewards\.graph has no 'corect'; did you mean 'correct'\?"),
    (dict(rewards=[]), r"config\.rewards must have at least one component"),
    (dict(rewards=[dict(name="correct"), dict(name="correct")]), r"config\.rewards: 'correct' stands twice"),
    (dict(rollout=dict(group_size=1)), r"credit\[0\], 'group_normalise', needs rollout\.group_size >= 2, got 1"),
    (dict(rollout=dict(top_p=0.9)), r"config\.rollout\.top_p must be None for training, got 0\.9"),
    (dict(rollout=dict(temperature=0.0)), r"config\.rollout\.temperature must be > 0 for training, got 0\.0"),
    (dict(rolout={}), r"config has no 'rolout'; did you mean 'rollout'\?"),
  ],
)  # fmt: skip
def test_a_wrong_config_is_named_before_anything_compiles(changes, message, monkeypatch):
  monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *_, **__: pytest.fail("compiled"))
  with pytest.raises(ValueError, match=message):
    SharedRun(lab(**changes), [0])


@pytest.mark.parametrize("name", ["task", "rollout", "rewards", "credit", "objective", "reduce", "optimiser"])
def test_a_missing_section_is_named(name):
  config = lab()
  del config[name]
  with pytest.raises(ValueError, match=f"config needs '{name}'"):
    SharedRun(config, [0])


def test_no_lanes_and_no_budget_are_errors():
  with pytest.raises(ValueError, match="seeds must have at least one"):
    SharedRun(lab(), [])
  with pytest.raises(ValueError, match="budget_tokens must be >= 1, got 0"):
    SharedRun(lab(), [0], budget_tokens=0)


def test_an_expert_that_nothing_reads_in_a_stage_is_not_wanted_there():
  config = lab(views=EXPERT["views"], stages=[SFT, dict(kind="rl", save_as="best"), EXPERT])
  assert [stage.experts for stage in SharedRun(config, [0]).stages] == [(), (), ("best",)]


def test_the_policy_begins_the_same_with_and_without_heads():
  arena = make_arena(lab()["task"])
  plain = init_params(make_model(lab(), arena.task), jnp.uint32(3))
  critic = dict(trunk="shared", heads=[dict(name="scalar_head", label="value")])
  with_head = init_params(make_model(lab(critic=critic), arena.task), jnp.uint32(3))
  same(with_head["policy"], plain)


def test_which_tasks_are_the_laboratory_s():
  assert is_graph_task(lab()) and is_graph_task(lab(task=dict(name="guess_number")))
  assert not is_graph_task(lab(task=dict(name="arithmetic"))) and not is_graph_task({})
  assert is_graph_task(lab(task=dict(name="rlvr_jax.tasks.graph:sorting")))  # as one of your own would be named


def test_a_state_has_all_that_an_iteration_needs(pair):
  """A copy that went through numpy plays on as the original would."""
  lanes = pair.start()
  copied = lanes._replace(state=jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), lanes.state))
  assert isinstance(copied.state, TrainState)
  same(play(pair, 1, start=copied), play(pair, 1))
