"""The learning curve is a readable PNG, from rows or from the file, with or without evaluations."""

import json

import numpy as np
import pytest
from matplotlib.image import imread

from rlvr_jax.evals import curve, read_rows


def run_rows(num_steps=60):
  rng = np.random.default_rng(0)
  rows = []
  for step in range(num_steps + 1):
    truth = 0.2 + 0.6 * step / num_steps
    if step % 20 == 0:
      at = dict(zip(("eval/accuracy", "eval/accuracy_low", "eval/accuracy_high"), (truth, truth - 0.05, truth + 0.05)))
      rows.append(dict(step=step, **at))
    if step:
      noisy = float(np.clip(truth + rng.normal(0, 0.08), 0, 1))
      rows.append({"step": step, "reward/mean": noisy, "budget/generated_tokens": 1024.0 * step})
  return rows


def test_draws_every_element(tmp_path):
  curve(run_rows(), tmp_path / "curve.png", title="chain_sum")
  image = imread(tmp_path / "curve.png")[..., :3]
  assert image.shape == (630, 1125, 3)
  blue = (image[..., 2] > image[..., 0] + 0.2).sum()
  red = (image[..., 0] > image[..., 2] + 0.2).sum()
  assert blue > 2000 and red > 1000  # the training line with its band, the evaluations


def test_reads_the_file_and_skips_half_a_line(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text("".join(json.dumps(r) + "\n" for r in run_rows(20)) + '{"step": 21, "rew')
  assert read_rows(path) == run_rows(20)
  curve(path, tmp_path / "curve.png")
  assert (tmp_path / "curve.png").stat().st_size > 10_000


@pytest.mark.parametrize("key", ["reward/mean", "eval/accuracy"])
def test_one_series_is_enough(tmp_path, key):
  curve([{"step": 1, key: 0.5, "loss": None}, {"step": 2, key: None}], tmp_path / "curve.png")
  assert (tmp_path / "curve.png").exists()


def test_nothing_to_draw(tmp_path):
  with pytest.raises(ValueError, match="no row has 'reward/mean' or 'eval/accuracy'"):
    curve([dict(step=1, loss=0.1)], tmp_path / "curve.png")
