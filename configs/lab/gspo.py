"""GSPO (Zheng et al., arXiv:2507.18071): one ratio a sequence. Bounds wider than the paper's, for short answers.

Run:  python -m experiments.train --config=configs/lab/gspo.py --workdir=runs/lab_gspo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.objective = (dict(name="gspo", clip_low=0.1, clip_high=0.1),)
  return c
