"""MaxRL: deviation from the group's mean divided by that mean, towards maximum likelihood of success.

Run:  python -m experiments.train --config=configs/lab/max_rl.py --workdir=runs/lab_max_rl
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="max_rl"), dict(name="spread_over_tokens"))
  c.reduce = dict(name="token_mean")
  return c
