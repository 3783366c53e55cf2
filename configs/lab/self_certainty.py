"""Intuitor (Zhao et al., arXiv:2505.19590): the policy's own certainty is the reward.

Run:  python -m experiments.train --config=configs/lab/self_certainty.py --workdir=runs/lab_self_certainty
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (
    dict(name="confidence", kind="self_certainty"),
    dict(name="group_normalise"),
    dict(name="spread_over_tokens"),
  )
  return c
