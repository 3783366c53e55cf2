"""TTRL (Zuo et al., arXiv:2504.16084): the majority's answer is the label.

Run:  python -m experiments.train --config=configs/lab/ttrl.py --workdir=runs/lab_ttrl
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="majority_vote"), dict(name="group_normalise"), dict(name="spread_over_tokens"))
  return c
