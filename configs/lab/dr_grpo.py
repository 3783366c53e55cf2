"""Dr. GRPO (Liu et al., arXiv:2503.20783): no division by the standard deviation, a constant length.

Run:  python -m experiments.train --config=configs/lab/dr_grpo.py --workdir=runs/lab_dr_grpo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="group_normalise", scale=False), dict(name="spread_over_tokens"))
  c.reduce = dict(name="constant_length", length=c.rollout.get("max_new_tokens", 16))
  return c
