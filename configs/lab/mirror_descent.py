"""Policy mirror descent of Kimi k1.5 (arXiv:2501.12599): squared residual of reward and log-ratio.

Run:  python -m experiments.train --config=configs/lab/mirror_descent.py --workdir=runs/lab_mirror_descent
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="group_normalise", scale=False), dict(name="spread_over_tokens"))
  c.objective = (dict(name="mirror_descent", tau=0.5),)
  return c
