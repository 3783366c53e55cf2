"""LUSPO: GSPO whose sequence loss is weighted by its length.

Run:  python -m experiments.train --config=configs/lab/luspo.py --workdir=runs/lab_luspo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.objective = (dict(name="gspo", clip_low=0.1, clip_high=0.1),)
  c.reduce = dict(name="length_weighted")
  return c
