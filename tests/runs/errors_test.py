"""Bad input, each with its clear error, before anything compiles where it can be known then."""

import json
from pathlib import Path

import pytest
from small import small

from rlvr_jax.evals import read_rows
from rlvr_jax.runs import build_experiment, train
from rlvr_jax.runs.health import RewardHealthError

HELPERS = str(Path(__file__).parents[1] / "helpers")  # where workers find `small`


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(rolout={}), r"config has no 'rolout'; did you mean 'rollout'\?"),
    (dict(train=dict(num_step=3)), r"config\.train has no 'num_step'; did you mean 'num_steps'\?"),
    (dict(credit=[dict(name="group_normalize")]), r"credit has no 'group_normalize'; did you mean 'group_normalise'\?"),
    (dict(credit=[dict(name="group_normalise", epsilon=1)]), r"group_normalise has no 'epsilon'"),
    (dict(objective=[dict(name="clipped_surogate")], stages=None), r"did you mean 'clipped_surrogate'\?"),
    (dict(rewards=[dict(name="exat")]), r"rewards\.host has no 'exat'; did you mean 'exact'\?"),
    (dict(reduce=dict(name="token_men")), r"did you mean 'token_mean'\?"),
    (dict(optimiser=dict(name="adam", learning_rate=1)), r"did you mean 'adamw'\?"),
    (dict(task=dict(name="arithmatic")), r"did you mean 'arithmetic'\?"),
    (dict(rollout=dict(group_size=1)), r"credit\[0\], 'group_normalise', needs rollout\.group_size >= 2, got 1"),
    (dict(prompts=dict(max_tokens=2)), r"prompt_id \d+ .*=2"),
    (dict(prompts=dict(per_step=0)), r"config\.prompts\.per_step must be >= 1, got 0"),
    (dict(train=dict(num_steps=0)), r"config\.train\.num_steps must be >= 1, got 0"),
    (dict(model="/nowhere/model"), r"model path '/nowhere/model' does not exist"),
    (dict(model="gguf:/nowhere.gguf"), r"'/nowhere\.gguf' does not exist"),
    (dict(model="huf:org/name"), r"unknown scheme 'huf'"),
    (dict(rollout=dict(top_p=0.9)), r"config\.rollout\.top_p must be None for training, got 0\.9"),
    (dict(rollout=dict(temperature=0.0)), r"config\.rollout\.temperature must be > 0 for training, got 0\.0"),
    (dict(eval=dict(metric="format")), r"config\.eval\.metric = 'format' is not a reward component"),
    (dict(eval=dict(num_prompts=9)), r"config\.eval\.num_prompts = 9, the held-out set .* has 8 rows"),
    (dict(objective=[dict(name="kl_to_reference", estimator="k9")], stages=None), r"k9"),
    (dict(stages=[dict(kind="rll")]), r"config\.stages\[0\]\.kind must be one of"),
    (dict(mesh=dict(num_devices=9)), r"config\.mesh\.num_devices = 9, there are 8"),
    (dict(mesh=dict(num_devices=8, data=3)), r"needs 3 devices, there are 8"),
    (dict(train=dict(num_microbatches=5)), r"4 rows is no multiple of .*num_microbatches = 1 \* 5"),
  ],
)  # fmt: skip
def test_a_wrong_config_is_named_when_it_is_built(changes, message):
  with pytest.raises(ValueError, match=message):
    build_experiment(small(**changes))


def test_a_missing_section_is_named():
  config = small()
  del config["rollout"]
  with pytest.raises(ValueError, match="config needs 'rollout'"):
    build_experiment(config)


def test_an_empty_data_set(tmp_path):
  (tmp_path / "rows.jsonl").write_text("")
  with pytest.raises(ValueError, match="no .*rows"):
    build_experiment(small(task=dict(name="jsonl", path=str(tmp_path / "rows.jsonl"), eval_fraction=0.5)))


def test_a_tokenizer_that_does_not_fit_the_model(tmp_path):
  from rlvr_jax.models import export_huggingface
  from rlvr_jax.models.load import load_model

  loaded = load_model("tiny")
  tmp_path = tmp_path / "model"
  export_huggingface(tmp_path, loaded.config, loaded.params, tokenizer=loaded.tokenizer)
  tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
  tokenizer["added_tokens"].append(dict(tokenizer["added_tokens"][0], id=5000, content="<beyond>"))
  (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
  with pytest.raises(ValueError, match=r"vocabulary mismatch: .* 104 rows.* id is 104"):
    build_experiment(small(model=str(tmp_path)))


@pytest.mark.parametrize("builder, reason", [("not_a_number", "nan"), ("crash", "the worker died 2 times")])
def test_a_verifier_that_is_broken_stops_the_run_and_loses_nothing(tmp_path, monkeypatch, builder, reason):
  monkeypatch.setenv("PYTHONPATH", HELPERS)
  config = small(rewards=[dict(name=f"small:{builder}", label="broken"), dict(name="exact")], stages=None, eval={})
  config["eval"] = dict(num_prompts=1, metric="exact")
  with pytest.raises(RewardHealthError, match=f"'broken': error share 100.0%.*{reason}"):
    train(config, str(tmp_path), plain=True)
  assert [r["step"] for r in read_rows(tmp_path / "metrics.jsonl")] == [0]


def test_errors_are_masked_counted_and_logged_when_only_warned(tmp_path, monkeypatch):
  monkeypatch.setenv("PYTHONPATH", HELPERS)
  config = small(
    rewards=[dict(name="small:not_a_number", label="broken"), dict(name="exact")], stages=None,
    verify=dict(on_alarm="warn"), train=dict(num_steps=1),
  )  # fmt: skip
  config["eval"] = dict(num_prompts=1, metric="exact")
  train(config, str(tmp_path), plain=True)
  (row,) = [r for r in read_rows(tmp_path / "metrics.jsonl") if "loss" in r]
  assert row["verdict/broken/error"] == 1.0 and row["rows/without_verdict"] == 16 and row["num_tokens"] == 0
  assert row["grad_norm"] == 0 and row["loss"] == 0
