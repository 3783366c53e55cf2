"""CISPO (MiniMax-M1, arXiv:2506.13585): the weight is clipped, the gradient never dropped.

Run:  python -m experiments.train --config=configs/lab/cispo.py --workdir=runs/lab_cispo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.objective = (dict(name="cispo", high=5.0),)
  c.reduce = dict(name="token_mean")
  return c
