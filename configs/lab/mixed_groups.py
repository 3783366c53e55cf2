"""GRPO whose loss leaves out groups without spread, with no further sampling.

Run:  python -m experiments.train --config=configs/lab/mixed_groups.py --workdir=runs/lab_mixed_groups
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (
    dict(name="group_normalise"),
    dict(name="spread_over_tokens"),
    dict(name="keep_mixed_groups", component="correct"),
  )
  c.reduce = dict(name="token_mean")
  return c
