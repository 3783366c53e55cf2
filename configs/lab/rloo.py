"""RLOO (Ahmadian et al., arXiv:2402.14740): leave-one-out baseline, whole sequences as actions.

Run:  python -m experiments.train --config=configs/lab/rloo.py --workdir=runs/lab_rloo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="leave_one_out"), dict(name="spread_over_tokens"))
  c.reduce = dict(name="sequence_sum")
  return c
