"""A*-PO (Brantley et al., arXiv:2505.20686): regression of the log-ratio on the optimal advantage.

Run:  python -m experiments.train --config=configs/lab/a_star_po.py --workdir=runs/lab_a_star_po
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="optimal_advantage", beta1=0.5), dict(name="spread_over_tokens"))
  c.objective = (dict(name="a_star_po", beta2=0.1),)
  return c
