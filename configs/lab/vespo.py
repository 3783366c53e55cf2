"""VESPO: a sequence-level weight that peaks at ratio 1 and decays on both sides.

Run:  python -m experiments.train --config=configs/lab/vespo.py --workdir=runs/lab_vespo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.objective = (dict(name="vespo"),)
  c.reduce = dict(name="token_mean")
  return c
