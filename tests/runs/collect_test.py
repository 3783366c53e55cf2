"""Ways of filling a batch on the host, and teachers, critics and label-free rewards on text; a few steps of each."""

import json

import numpy as np
import pytest
from small import small

from rlvr_jax.runs import build_experiment, train
from rlvr_jax.runs.contexts import Context, contexts_of, encode, privileged
from rlvr_jax.runs.verify import answer_ids
from rlvr_jax.tasks import Example

RL = [dict(kind="rl")]


def rows(workdir):
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  return [row for row in map(json.loads, lines) if "loss" in row]


def run(tmp_path, **changes):
  train(small(**changes), str(tmp_path), plain=True)
  return rows(tmp_path)


def test_dynamic_sampling_counts_its_rounds(tmp_path):
  """An untrained model is right so seldom that every round is needed; on_short="keep" trains on what there is."""
  found = run(tmp_path, stages=RL, refill=dict(num_rounds=3, on_short="keep"))
  assert all(1 <= row["refill/rounds"] <= 3 for row in found)
  for row in found:
    slots = row["refill/groups_kept"] + row["refill/short"]
    assert row["refill/groups_sampled"] == row["refill/rounds"] * slots
  generated = [row["budget/generated_tokens"] for row in found]
  assert generated[0] > found[0]["budget/update_tokens"]  # rounds that were thrown away were generated too


@pytest.mark.slow
def test_a_selection_chooses_and_hears(tmp_path):
  found = run(tmp_path, stages=RL, selection=dict(name="mopps", num_candidates=8))
  assert len(found) >= 2


@pytest.mark.slow
def test_screening_takes_two_samplings(tmp_path):
  found = run(tmp_path, stages=RL, selection=dict(name="speed_rl", num_candidates=4), screen=dict(group_size=2))
  assert all(row["screen/waiting"] >= 0 and np.isfinite(row["loss"]) for row in found)


@pytest.mark.slow
def test_replay_stores_groups_of_any_kind_when_told_to(tmp_path):
  found = run(tmp_path, stages=RL, replay=dict(capacity_groups=4, num_replayed=1, mixed_only=False))
  assert found[0]["replay/groups"] == 0 and found[-1]["replay/groups"] == 1


@pytest.mark.slow
def test_a_privileged_teacher_on_text(tmp_path):
  """The reference stands before the prompt; tokens are scored by the moving average of the policy."""
  views = dict(teacher=dict(params="ema", decay=0.9, context="reference", max_tokens=16))
  credit = (dict(name="spread_over_tokens"), dict(name="teacher_log_ratio", add=False))
  found = run(tmp_path, stages=RL, views=views, credit=credit)
  assert all(np.isfinite(row["loss"]) and row["advantage_std"] > 0 for row in found)


@pytest.mark.slow
def test_a_critic_on_text(tmp_path):
  critic = dict(trunk="own", heads=(dict(name="scalar_head", label="value"),))
  objective = (dict(name="clipped_surrogate"), dict(name="value_loss", weight=0.5))
  credit = (dict(name="token_rewards"), dict(name="gae", lam=0.95))
  found = run(tmp_path, stages=RL, critic=critic, objective=objective, credit=credit)
  assert all(row["value_loss"] >= 0 for row in found)


@pytest.mark.slow
def test_the_majority_is_a_label(tmp_path):
  credit = (dict(name="majority_vote"), dict(name="group_normalise"), dict(name="spread_over_tokens"))
  assert all(np.isfinite(row["loss"]) for row in run(tmp_path, stages=RL, credit=credit))


def test_a_stage_stops_when_its_accuracy_stalls(tmp_path):
  """A learning rate of 0 never gets better: two evaluations after the first are enough."""
  stage = dict(kind="rl", stop=dict(patience=1), optimiser=dict(learning_rate=0.0), train=dict(num_steps=50))
  found = run(tmp_path, stages=[stage], eval=dict(every=1))
  assert len(found) < 10


def test_equal_answers_have_equal_ids():
  a, b, none, again = answer_ids(["12", "13", None, "12"])
  assert a == again != b and none == -1 and a >= 0 and b >= 0


EXAMPLE = Example(3, "2+2=", "4", None, dict(hint="add them"))


def test_a_context_stands_before_the_prompt():
  assert privileged(EXAMPLE, "hint") == "add them\n\n2+2="
  chat = EXAMPLE._replace(prompt=[dict(role="user", content="2+2=")])
  assert privileged(chat, "reference")[-1]["content"] == "4\n\n2+2="
  tokens, mask = encode(Context("hint", 14), [EXAMPLE], lambda tokenizer, text: [ord(c) for c in text], None, 0)
  assert bytes(tokens[0][mask[0]].tolist()).decode() == "add them\n\n2+2=" and mask.all()


@pytest.mark.parametrize(
  "changes, words",
  [
    (dict(refill=dict(rounds=3)), "no 'rounds'; did you mean 'num_rounds'"),
    (dict(refill=dict(num_rounds=0)), "num_rounds must be >= 1, got 0"),
    (dict(selection=dict(name="mops")), "did you mean 'mopps'"),
    (dict(selection=dict(name="replay")), "it is config.replay"),
    (dict(views=dict(teacher=dict(params="given"))), "params='given' goes with one of expert and source"),
    (dict(views=dict(t=dict(params="given", expert="x"))), "do not keep parameters"),
    (dict(views=dict(t=dict(params="ema", context="hint"))), "max_tokens must be an int"),
    (dict(stages=[dict(kind="rl", stop=dict(patience=1))], eval=dict(every=0)), "stop needs config.eval.every"),
  ],
)
def test_errors_before_anything_compiles(changes, words):
  with pytest.raises(ValueError, match=words):
    build_experiment(small(**dict(dict(stages=RL), **changes)))


def test_a_row_without_the_field_is_named():
  with pytest.raises(ValueError, match="prompt_id 3 has no 'solution'"):
    privileged(EXAMPLE, "solution")
  with pytest.raises(ValueError, match="has 14 tokens with its 'hint', more than max_tokens=3"):
    encode(Context("hint", 3), [EXAMPLE], lambda tokenizer, text: list(text), None, 0)
  assert contexts_of(dict(a=dict(context="x", max_tokens=3), b=dict(params="ema"))) == dict(x=Context("x", 3))
