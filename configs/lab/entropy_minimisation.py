"""Entropy minimisation (Agarwal et al., arXiv:2505.15134): no reward, no label.

Run:  python -m experiments.train --config=configs/lab/entropy_minimisation.py --workdir=runs/lab_entropy_minimisation
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = ()
  c.objective = (dict(name="entropy_bonus", weight=-1.0),)
  c.reduce = dict(name="token_mean")
  c.train.num_minibatches = 1
  return c
