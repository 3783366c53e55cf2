"""GDPO (arXiv:2601.05242): every reward component normalised in its group, then their sum over the batch.

Run:  python -m experiments.train --config=configs/lab/gdpo.py --workdir=runs/lab_gdpo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.rewards = (dict(name="correct", weight=1.0), dict(name="finished", weight=0.5))
  c.credit = (dict(name="gdpo", weights=dict(correct=1.0, finished=0.5)), dict(name="spread_over_tokens"))
  c.reduce = dict(name="token_mean")
  return c
