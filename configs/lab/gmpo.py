"""GMPO (Zhao et al., arXiv:2507.20673): geometric mean of clipped token ratios.

Run:  python -m experiments.train --config=configs/lab/gmpo.py --workdir=runs/lab_gmpo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.objective = (dict(name="gmpo", clip=0.4),)
  return c
