"""A laboratory run to its end: stages, stop rules, budgets, checkpoints, and beginnings that runs share."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lab import SFT, SharedRun, host, lab, lane, same

import rlvr_jax.runs.lab_train as lab_train
import rlvr_jax.selection as selection
from rlvr_jax.rollouts import PromptArrays, informative_groups
from rlvr_jax.runs.collect import SCREEN, select_key
from rlvr_jax.runs.lab_run import SPENT
from rlvr_jax.runs.lab_train import prefix_key, run_lab, train_lab
from rlvr_jax.runs.stop import stalled

TOKENS_PER_BATCH = 2 * 4 * 3  # at most: prompts, group size, new tokens


@pytest.fixture(scope="module", autouse=True)
def quick_compiles():
  jax.config.update("jax_disable_most_optimizations", True)
  yield
  jax.config.update("jax_disable_most_optimizations", False)


def counters(point):
  return {name: point.spent[name].tolist() for name in SPENT}


def same_result(actual, expected):
  """Bit for bit, but for the time it took."""
  assert [p[:2] for p in actual.points] == [p[:2] for p in expected.points]
  for ours, theirs in zip(actual.points, expected.points):
    same(ours.accuracy, theirs.accuracy)
    assert counters(ours) == counters(theirs)
  same(actual.params, expected.params)
  same(actual.final, expected.final)


# Resume. Two stages; a checkpoint after iterations 2 (the end of the first), 4 and 6.
TWO = lab(stages=[SFT, dict(kind="rl")])


def two(**changes):
  return SharedRun(lab(stages=[SFT, dict(kind="rl")], **changes), [3, 5])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  folder = tmp_path_factory.mktemp("whole")
  return folder, run_lab(two(), folder)


class Killed(Exception):
  pass


def interrupted(folder, at):
  def kill(done, total, row):
    if done >= at:
      raise Killed

  with pytest.raises(Killed):
    run_lab(two(), folder, on_progress=kill)


def rows(folder):
  lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
  return [{key: x for key, x in line.items() if not key.startswith("time")} for line in lines]


@pytest.mark.parametrize("at", [2, 4, 6])
def test_interrupted_is_uninterrupted(whole, tmp_path, at):
  """Killed before anything is saved, in the second stage before it saves, and before its end; bit for bit."""
  interrupted(tmp_path, at)
  same_result(run_lab(two(), tmp_path), whole[1])
  assert [row for row in rows(tmp_path) if "loss" in row] == [row for row in rows(whole[0]) if "loss" in row]


def test_twice_interrupted(whole, tmp_path):
  interrupted(tmp_path, 4)
  interrupted(tmp_path, 6)
  same_result(run_lab(two(), tmp_path), whole[1])


def test_what_is_finished_is_not_run_again(whole):
  told = []
  again = run_lab(two(), whole[0], on_progress=lambda *x: told.append(x))
  same_result(again, whole[1])
  assert not told


def test_the_end_is_saved_however_seldom_checkpoints_are(whole, tmp_path):
  seldom, told = two(checkpoint=dict(every=100)), []
  run_lab(seldom, tmp_path)
  same_result(run_lab(seldom, tmp_path, on_progress=lambda *x: told.append(x)), whole[1])
  assert not told


def test_points_are_before_and_after_each_stage_and_every_other_step(whole):
  assert [p[:2] for p in whole[1].points] == [(0, 0), (2, 0), (2, 1), (4, 1), (6, 1)]
  before, after = whole[1].points[1:3]
  same(before.accuracy, after.accuracy)  # entering a stage changes no policy
  assert [row["step"] for row in rows(whole[0]) if "loss" in row] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
  "make, difference",
  [
    (lambda: two(optimiser=dict(learning_rate=0.02)), r"config\.optimiser\.learning_rate: 0\.01 -> 0\.02"),
    (lambda: SharedRun(TWO, [3, 6]), r"seeds\[1\]: 5 -> 6"),
    (lambda: SharedRun(TWO, [3, 5], None, 1000), r"budget: null -> 1000"),
    (lambda: SharedRun(TWO, [3, 5], {"credit[0].eps": [0, 1]}), r"values\.credit\[0\]\.eps\[1\]: \(absent\) -> 1\.0"),
  ],
)
def test_a_changed_run_is_refused_naming_the_change(whole, make, difference):
  with pytest.raises(ValueError, match=difference):
    run_lab(make(), whole[0])


def test_what_changes_no_number_may_change(whole):
  same_result(run_lab(two(checkpoint=dict(every=1)), whole[0]), whole[1])


# Beginnings that runs share.


def test_a_shared_beginning_changes_nothing(whole):
  """The lanes after the first stage come from another run; those that were shared are still there afterwards."""
  warm = {}
  run_lab(two(), warm=warm)
  (key,) = warm
  kept = host(warm[key])
  run = two()
  run.chunk = lambda index, *args, chunk=run.chunk: pytest.fail("ran stage 0") if index == 0 else chunk(index, *args)
  result = run_lab(run, warm=warm)
  assert [p[:2] for p in result.points] == [(2, 1), (4, 1), (6, 1)]
  same_result(result, whole[1]._replace(points=whole[1].points[2:]))
  same(warm[key], kept)


def test_which_beginnings_are_shared():
  key = lambda config, seeds=(3, 5), values=None, budget=None: prefix_key(SharedRun(config, seeds, values, budget), 1)
  mine = key(TWO)
  same_start = [
    dict(credit=[dict(name="leave_one_out"), dict(name="spread_over_tokens")]), dict(rollout=dict(group_size=2)),
    dict(objective=[dict(name="reinforce")], stages=[SFT, dict(kind="distill")]), dict(eval=dict(every=1)),
    dict(rewards=[dict(name="parsable")]), dict(refill=dict(num_rounds=2)), dict(checkpoint=dict(every=1)),
    dict(replay=dict(capacity_groups=4, num_replayed=1)), dict(selection=dict(name="epochs")),
  ]  # fmt: skip
  for changes in same_start:
    assert key(TWO | changes if "stages" in changes else lab(stages=TWO["stages"], **changes)) == mine, changes
  other_start = [
    dict(prompts=dict(per_step=4)), dict(task=dict(num_right=2)), dict(model=dict(remat="full")),
    dict(optimiser=dict(name="sgd", learning_rate=0.1)), dict(train=dict(num_epochs=2)),
  ]  # fmt: skip
  for changes in other_start:
    assert key(lab(stages=TWO["stages"], **changes)) != mine, changes
  assert key(TWO, (3, 6)) != mine and key(TWO, budget=99) != mine
  assert key(TWO, values={"credit[0].eps": [0, 1]}) != mine


def test_a_beginning_with_a_stop_rule_is_shared_among_equal_evaluations():
  stages = [SFT | dict(stop=dict(patience=1)), dict(kind="rl")]
  key = lambda **changes: prefix_key(SharedRun(lab(stages=stages, **changes), [3]), 1)
  assert key() == key(rewards=[dict(name="parsable")])
  assert key() != key(eval=dict(num_samples=2)) and key() != key(rollout=dict(temperature=0.5))


# Stages.

EXPERT = dict(
  kind="distill", restart=True, views=dict(teacher=dict(params="given", expert="best")),
  objective=[dict(name="sampled_reverse_kl"), dict(name="generalised_jsd", beta=0.5)],
)  # fmt: skip
ORDER = lab(
  train=dict(num_steps=2), stages=[dict(kind="rl", save_as="best"), EXPERT, SFT | dict(train=dict(num_steps=1))],
)  # fmt: skip


@pytest.fixture(scope="module")
def staged():
  """Lanes at the end of each stage of: rl, distillation of a new policy from it, supervised."""
  run, ends = SharedRun(ORDER, [3, 5]), {}
  result = run_lab(run, warm=ends)
  return run, [ends[prefix_key(run, count)] for count in (1, 2)], result


def counts_of(opt_state):
  leaves = jax.tree_util.tree_leaves_with_path(opt_state)
  return [np.asarray(x).tolist() for path, x in leaves if "count" in jax.tree_util.keystr(path)]


def moments_of(opt_state):
  leaves = jax.tree_util.tree_leaves_with_path(opt_state)
  return [np.asarray(x) for path, x in leaves if "count" not in jax.tree_util.keystr(path)]


@pytest.mark.slow
def test_a_stage_goes_on_from_the_one_before(staged):
  """Parameters and the step go on; the optimiser begins anew."""
  run, (_, after_distillation), result = staged
  assert max(map(max, counts_of(after_distillation.state.opt_state))) == 2
  entered = run.enter(2, after_distillation)
  same(entered.state.params, after_distillation.state.params)
  assert entered.state.step.tolist() == [4, 4]
  assert max(map(max, counts_of(entered.state.opt_state))) == 0
  assert all((x == 0).all() for x in moments_of(entered.state.opt_state))
  assert [p[:2] for p in result.points] == [(0, 0), (2, 0), (2, 1), (4, 1), (4, 2), (5, 2)]


@pytest.mark.slow
def test_an_expert_is_kept_and_taught_from(staged):
  run, (after_rl, after_distillation), _ = staged
  same(after_rl.saved["best"], after_rl.state.params)
  same(after_distillation.saved["best"], after_rl.state.params)
  entered = run.enter(1, after_rl)
  same(entered.state.anchors["teacher"], after_rl.state.params)
  same(after_distillation.state.anchors["teacher"], after_rl.state.params)  # and does not move
  same(entered.state.params, run.start().state.params)  # restart=True
  assert entered.state.step.tolist() == [2, 2]  # keys go on: no rollout comes twice
  moved = jax.tree.map(lambda a, b: np.abs(a - np.asarray(b)).max(), host(entered.state.params), after_rl.state.params)
  assert max(jax.tree.leaves(moved)) > 1e-3


@pytest.mark.slow
def test_tokens_of_each_stage_are_counted_by_what_was_done_with_them(staged):
  """rl: generated and updated. Distillation: besides, a pass of the teacher before the update (for its log-probs) and
  one in it (for its distribution). Supervised: two demonstrations of one token an iteration, updated only."""
  _, _, result = staged
  at = {p[:2]: p.spent for p in result.points}
  one, two, three = ({name: at[where][name] for name in SPENT} for where in ((2, 0), (4, 1), (5, 2)))
  gained = {name: two[name] - one[name] for name in SPENT}
  same(one["generated_tokens"], one["update_tokens"])
  same(one["scored_tokens"], np.zeros(2, np.int32))
  same(gained["generated_tokens"], gained["update_tokens"])
  same(gained["scored_tokens"], 2 * gained["generated_tokens"])
  assert {name: (three[name] - two[name]).tolist() for name in SPENT} == dict(
    generated_tokens=[0, 0], update_tokens=[2, 2], scored_tokens=[0, 0]
  )
  assert (one["generated_tokens"] >= 2 * 8).all() and (one["generated_tokens"] <= 2 * TOKENS_PER_BATCH).all()


# Stop rules.


def test_when_a_curve_has_stalled():
  curve = [np.array(x) for x in ([0.1, 0.5, 0.5], [0.2, 0.5, 0.6], [0.2, 0.7, 0.65])]
  assert stalled(curve[:1], 1, 0.0).tolist() == [False] * 3  # nothing to compare with
  assert stalled(curve[:2], 1, 0.0).tolist() == [False, True, False]
  assert stalled(curve, 1, 0.0).tolist() == [True, False, False]
  assert stalled(curve, 1, 0.1).tolist() == [True, False, True]
  assert stalled(curve, 2, 0.0).tolist() == [False] * 3
  assert stalled(curve, 2, 0.12).tolist() == [True, False, False]
  assert stalled(curve, 3, 0.0).tolist() == [False] * 3


STOP = lab(
  train=dict(num_steps=10), optimiser=dict(name="sgd", learning_rate=0.3),
  stages=[dict(kind="rl", stop=dict(patience=1))],
)  # fmt: skip
RATES = {"optimiser.learning_rate": [0.0, 0.3, 3.0, 1.0]}  # without learning there is no better evaluation


def stopping():
  return SharedRun(STOP, [3, 3, 5, 6], RATES, sharded=False)


@pytest.fixture(scope="module")
def stopped():
  return run_lab(stopping())


@pytest.mark.slow
def test_each_lane_stops_when_its_own_evaluations_stall(stopped):
  """Counters go on until the evaluation that is no better than the best before it, and no further."""
  accuracy = np.stack([p.accuracy for p in stopped.points], axis=1)
  generated = np.stack([p.spent["generated_tokens"] for p in stopped.points], axis=1)
  ends = []
  for curve, tokens in zip(accuracy, generated):
    stalls = [i for i in range(1, len(curve)) if curve[i] <= curve[:i].max()]
    ends.append(stalls[0] if stalls else len(curve) - 1)
    assert (np.diff(tokens)[: ends[-1]] > 0).all() and (np.diff(tokens)[ends[-1] :] == 0).all()
    assert (curve[ends[-1] :] == curve[ends[-1]]).all()
  assert ends[0] == 1 and max(ends) == len(stopped.points) - 1 > 1


@pytest.mark.slow
def test_a_lane_that_stands_still_does_not_change_and_does_not_touch_others():
  """Bit for bit. Its metrics are NaN."""
  run = stopping()
  free, _ = run.chunk(0, run.start(), 2)
  lanes = run.start()
  before = host(lanes)
  held, metrics = run.chunk(0, lanes._replace(stopped=jnp.array([False, True, True, False])), 2)
  same(jax.tree.map(lambda x: x[1:3], host((held.state, held.spent))), jax.tree.map(lambda x: x[1:3], before[:2]))
  for index in (0, 3):
    same(lane(host((held.state, held.spent)), index), lane(host((free.state, free.spent)), index))
  assert np.isnan(metrics["loss"][1:3]).all() and np.isfinite(metrics["loss"][::3]).all()


@pytest.mark.slow
def test_a_stage_that_ended_early_stays_ended(stopped, tmp_path):
  """Its checkpoint is not of its last step; going on from it runs nothing."""
  result, told = run_lab(stopping(), tmp_path), []
  same_result(result, stopped)
  same_result(run_lab(stopping(), tmp_path, on_progress=lambda *x: told.append(x)), stopped)
  assert not told


# Budgets.


def test_a_budget_holds_within_a_batch():
  run = SharedRun(lab(train=dict(num_steps=40)), [3, 5], None, 50)
  result = run_lab(run)
  spent = result.points[-1].spent["generated_tokens"]
  assert (spent >= 50).all() and (spent < 50 + TOKENS_PER_BATCH).all()
  assert len(result.points) < 2 + 50 / 16  # at least 16 tokens every other iteration
  lanes, _ = run.chunk(0, run.start(), 2)
  while not run.over(lanes).all():
    lanes, _ = run.chunk(0, lanes, 2)
  before = host(lanes)
  after, metrics = run.chunk(0, lanes, 2)
  same(after, before)
  assert np.isnan(metrics["loss"]).all()
  same(before.state.params, result.params)


def test_a_budget_ends_one_lane_and_not_another():
  """Lane 1 begins with most of its budget gone: it moves once, lane 0 as if alone."""
  run = SharedRun(lab(train=dict(num_steps=40)), [3, 5], None, 50)
  free, _ = run.chunk(0, run.start(), 2)
  lanes = run.start()
  spent = dict(lanes.spent, generated_tokens=jnp.array([0, 49], jnp.int32))
  held, metrics = run.chunk(0, lanes._replace(spent=spent), 2)
  same(lane(host(held), 0), lane(host(free), 0))
  assert np.isnan(metrics["loss"]).tolist() == [[False, False], [False, True]]
  assert host(held.state.step).tolist() == [2, 1]
  held, _ = run.chunk(0, run.start()._replace(stopped=jnp.array([True, False])), 2)
  assert host(held.state.step).tolist() == [0, 2]  # what has stopped does not go on because tokens are left


def pieces(run, seed):
  """What a batch is made of, outside of the run: selection, sampler, verifier, as one program."""
  arena, config, key = run.arena, run.config, jax.random.key(seed)

  def answer(size):
    sample = arena.make_sampler(config["rollout"] | dict(group_size=size), run.model)

    def one(params, index, key, step):
      safe = jnp.maximum(index, 0)
      tokens, mask = arena.prompts(safe)
      rollout = sample(params, PromptArrays(tokens, mask & (index >= 0)[:, None], index), key, step)
      return rollout, arena.verify(rollout).correct

    return jax.jit(one)

  return key, answer


def num_actions(rollout):
  return int(np.asarray(rollout.action_mask).sum())


@pytest.mark.slow
def test_rounds_of_dynamic_sampling_are_counted():
  """By hand: rounds until both groups are informative, three at most, every token of every round."""
  run = SharedRun(lab(refill=dict(num_rounds=3), train=dict(num_steps=1), eval=dict(every=0)), [3])
  lanes = run.start()
  params = jax.tree.map(lambda x: x[0], host(lanes.state.params))
  key, answer = pieces(run, 3)
  answer, chosen = answer(4), selection.uniform(run.arena.task.num_train, 2)
  generated, found, rounds = 0, 0, 0
  while rounds < 3 and found < 2:
    of_round = jax.random.fold_in(key, rounds)
    index, _ = chosen.propose({}, select_key(of_round, 0, rounds))
    rollout, correct = answer(params, index, of_round, 0)
    generated, rounds = generated + num_actions(rollout), rounds + 1
    found += int(informative_groups(correct, rollout).sum())
  lanes, metrics = run.chunk(0, lanes, 1)
  assert float(metrics["refill/rounds"][0, 0]) == rounds > 1
  assert lanes.spent["generated_tokens"].tolist() == [generated]
  assert 0 < lanes.spent["update_tokens"][0] < generated


@pytest.mark.slow
def test_tokens_of_screening_are_counted():
  """By hand: two completions of each of four candidates, then groups of those between never and always right."""
  config = lab(
    selection=dict(name="speed_rl", num_candidates=4), screen=dict(group_size=2), train=dict(num_steps=1),
    eval=dict(every=0),
  )  # fmt: skip
  run = SharedRun(config, [3])
  lanes = run.start()
  params = jax.tree.map(lambda x: x[0], host(lanes.state.params))
  key, answer = pieces(run, 3)
  chosen = selection.speed_rl(run.arena.task.num_train, 2, num_candidates=4)
  index, state = chosen.propose(chosen.init(), select_key(key, 0, 0))
  tried, correct = answer(2)(params, index, jax.random.fold_in(key, SCREEN), 0)
  state = chosen.observe(state, index, correct.reshape(4, 2).sum(axis=1), jnp.full(4, 2.0))
  waiting = int(state.size)
  index, _ = chosen.take(state)
  rollout, _ = answer(4)(params, index, key, 0)
  lanes, metrics = run.chunk(0, lanes, 1)
  assert lanes.spent["generated_tokens"].tolist() == [num_actions(tried) + num_actions(rollout)]
  assert lanes.spent["update_tokens"].tolist() == [num_actions(rollout)]
  assert 0 < waiting and float(metrics["screen/waiting"][0, 0]) == max(waiting - 2, 0)


@pytest.mark.slow
def test_replay_mixes_stored_groups_and_counts_fresh_ones():
  run = SharedRun(lab(replay=dict(capacity_groups=4, num_replayed=2), eval=dict(every=0)), [3])
  lanes, metrics = run.chunk(0, run.start(), 4)
  fresh = metrics["length/mean"][0] * 8
  assert lanes.spent["generated_tokens"][0] == round(float(fresh.sum()))
  assert metrics["replay/groups"][0].sum() > 0 and metrics["replay/stored"][0].tolist() == sorted(
    metrics["replay/stored"][0].tolist()
  )


@pytest.mark.slow
def test_the_main_for_one_seed(tmp_path, monkeypatch, capsys):
  """Before and after are of the last stage, and the same when the command is given again."""
  monkeypatch.setattr(lab_train, "LabRun", SharedRun)
  config = lab(stages=[SFT, dict(kind="rl")], seed=3)
  first = train_lab(config, str(tmp_path), plain=True)
  again = train_lab(config, str(tmp_path), plain=True)
  assert [e.to_json() for e in again] == [e.to_json() for e in first]
  points = run_lab(SharedRun(config, [3])).points
  assert [e.accuracy for e in first] == [points[2].accuracy[0], points[-1].accuracy[0]]
  assert capsys.readouterr().out.count("held-out: 4 prompts x 4 samples") == 2
  for name in ("metrics.jsonl", "curve.png", "config.json", "evals/stage_1_step_000006.json"):
    assert (tmp_path / name).exists()
