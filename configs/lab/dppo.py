"""DPPO: tokens masked by the change of their probability instead of by their ratio.

Run:  python -m experiments.train --config=configs/lab/dppo.py --workdir=runs/lab_dppo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.objective = (dict(name="dppo_tv"),)
  c.reduce = dict(name="token_mean")
  return c
