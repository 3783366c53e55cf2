"""The report says what the numbers say: rows, verdicts, notes, strict JSON and a picture with every curve in it."""

import json

import numpy as np
import pytest
from matplotlib.image import imread

from rlvr_jax.evals.report import (
  CurveData,
  compare_configs,
  plot_curves,
  spread_out,
  to_json,
  to_markdown,
  write_report,
)
from rlvr_jax.evals.seeds import mean_over_seeds, paired_over_seeds


def data(final, s=8, budget=4e6, seconds=600.0, seeds=None, k=3, noise=0.01) -> CurveData:
  """Straight lines from .1, of seed i to `final` + i * noise."""
  share = np.linspace(0, 1, k)
  accuracy = 0.1 + (final - 0.1 + noise * np.arange(s)[:, None]) * share
  seeds = np.arange(s) if seeds is None else seeds
  return CurveData(share * budget, accuracy, share * budget / 2, share * seconds, seeds)


def curves(s=8):
  base = data(0.5, s)
  up = data(0.6, s, budget=5e6, seconds=float("nan"), noise=0.012)
  rng = np.random.default_rng(0)
  same = base._replace(accuracy=np.clip(base.accuracy + rng.normal(0, 0.02, base.accuracy.shape), 0, 1))
  down = data(0.3, s, noise=0.02)
  return {"countdown": {"base": base, "up": up, "same": same}, "sorting": {"base": base, "down": down}}


def test_rows_are_the_comparisons_over_seeds():
  given = curves()
  rows = compare_configs(given)
  assert [(r.task, r.config, r.verdict) for r in rows] == [
    ("countdown", "base", "baseline"),
    ("countdown", "up", "higher"),
    ("countdown", "same", "no difference shown"),
    ("sorting", "base", "baseline"),
    ("sorting", "down", "lower"),
  ]
  base, up = (given["countdown"][c].accuracy[:, -1] for c in ("base", "up"))
  assert rows[1].comparison == paired_over_seeds(base, up)
  assert rows[1].accuracy == mean_over_seeds(up)
  # all eight of one sign twice: p = 2/256, times 3 comparisons, then times 2 but no less
  assert rows[1].p_adjusted == rows[4].p_adjusted == pytest.approx(3 * 2 / 256)
  assert rows[2].p_adjusted == rows[2].comparison.p_value  # the largest
  assert rows[0].comparison is None and rows[0].p_adjusted is None
  assert rows[1].generated_tokens == 5e6 and rows[1].update_tokens == 2.5e6 and np.isnan(rows[1].seconds)


def test_markdown_states_what_was_done():
  text = to_markdown(curves())
  lines = text.splitlines()
  assert lines[3].startswith("| countdown | up | 0.642 [")
  assert "+0.107 [" in lines[3] and "| 0.0078 | 0.0234 | higher | 5M | 2.5M | – |" in lines[3]
  assert lines[2].endswith("| baseline | 4M | 2M | 600 |")
  assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
  for words in ("n = 8", "Student's 95 %", "Holm's correction over all comparisons here (3)", "sign-flip test",
                "**Budgets differ** on countdown: 4M to 5M"):  # fmt: skip
    assert words in text
  assert "on sorting" not in text and "too few" not in text and "agree" not in text


def test_says_when_no_verdict_is_possible():
  text = to_markdown(curves(s=5))
  assert "**5 seeds are too few for a verdict**" in text and "0.0625, or 0.1875" in text
  assert "higher |" not in text and "lower |" not in text
  text = to_markdown(curves(s=6))  # p = 2/64 before, 6/64 after Holm's correction
  assert "| 0.0312 | 0.0938 | no difference shown |" in text and "too few" in text
  by_t = to_markdown(curves(s=5), test="t", level=0.9)
  assert "too few" not in by_t and "paired t test" in by_t and "90 %" in by_t and "at most 0.1" in by_t


def test_one_seed_and_agreeing_seeds():
  one = to_markdown({"t": {"a": data(0.5, s=1), "b": data(0.7, s=1)}})
  assert "0.500 [–]" in one and "+0.200 [–] | 1.0000 | 1.0000 | no difference shown" in one
  agree = to_markdown({"t": {"a": data(0.5, noise=0.0)}})
  assert "all seeds agree" in agree and "0.500 [0.338, 0.662]" in agree  # Wilson's bound of 0 in 8 is .3244


def test_order_of_seeds_does_not_matter():
  given = {"t": {"a": data(0.5), "b": data(0.6, noise=0.02)}}
  mixed = np.array([3, 1, 0, 2, 7, 6, 5, 4])
  other = given["t"]["b"]
  moved = {"t": {"a": given["t"]["a"], "b": other._replace(accuracy=other.accuracy[mixed], seeds=other.seeds[mixed])}}
  assert to_markdown(moved) == to_markdown(given)


def test_files(tmp_path):
  given = curves()
  given["countdown"]["same"].accuracy[2, 1] = np.nan  # a missing evaluation
  rows = write_report(given, tmp_path / "new", title="Two tasks")
  assert [row[:6] for row in rows] == [row[:6] for row in compare_configs(given)]
  text = (tmp_path / "new/report.md").read_text()
  assert text.startswith("# Two tasks\n\n| task |") and "(curves.png)" in text
  found = json.loads((tmp_path / "new/report.json").read_text(), parse_constant=pytest.fail)
  assert found["settings"] == dict(level=0.95, interval="t", test="sign_flip", correction="holm")
  assert found["rows"][1]["seconds"] is None and found["rows"][1]["comparison"]["num_seeds"] == 8
  assert found["curves"]["countdown"]["same"]["accuracy"][2][1] is None
  assert found["curves"]["sorting"]["down"]["seeds"] == list(range(8))
  colours = {tuple(c) for c in np.round(imread(tmp_path / "new/curves.png")[..., :3] * 255).astype(int).reshape(-1, 3)}
  assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73), (0xCC, 0x79, 0xA7)} <= colours  # four configs


def test_same_input_same_picture(tmp_path):
  for name in "ab":
    plot_curves({"t": {"a": data(0.5)}}, tmp_path / name, title="A task")
  assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_json_is_strict():
  json.dumps(to_json(curves(s=1)), allow_nan=False)


def test_labels_keep_their_distance():
  assert spread_out([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
  assert spread_out([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.4, 0.5, 0.6])
  # .3 stays; .50 and .52 move apart about their middle; then .6 joins them: the pool of three is about its mean
  found = spread_out([0.3, 0.5, 0.52, 0.6], 0.1)
  assert found == pytest.approx([0.3, 0.44, 0.54, 0.64])
  assert min(np.diff(spread_out(sorted(np.random.default_rng(0).random(12)), 0.06))) >= 0.06 - 1e-12


@pytest.mark.parametrize(
  "bad, message",
  [
    (data(0.6, seeds=np.arange(1, 9)), r"'a' has seeds \[0, 1.*'b' has \[1, 2"),
    (data(0.6, s=7), "they must be the same"),
    (data(0.6, seeds=np.zeros(8, int)), "t/b: seeds must be distinct"),
    (data(0.6)._replace(tokens=np.array([0, 2, 2])), "t/b: tokens must rise"),
    (data(0.6)._replace(seconds=np.zeros(2)), r"t/b: need tokens \[k\]"),
    (data(1.6), r"t/b: accuracy must lie in \[0, 1\]"),
    (data(0.6)._replace(accuracy=np.full((8, 3), np.nan)), "the last must be there"),
  ],
)
def test_errors(bad, message):
  with pytest.raises(ValueError, match=message):
    compare_configs({"t": {"a": data(0.5), "b": bad}})


def test_nothing_to_compare():
  with pytest.raises(ValueError, match="at least one task"):
    compare_configs({})
  with pytest.raises(ValueError, match="at least one task"):
    compare_configs({"t": {}})
