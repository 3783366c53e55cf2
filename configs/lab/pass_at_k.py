"""Pass@k credit: only the best of a group is paid, by its lead over the second best.

Run:  python -m experiments.train --config=configs/lab/pass_at_k.py --workdir=runs/lab_pass_at_k
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="pass_at_k", form="best"), dict(name="spread_over_tokens"))
  c.reduce = dict(name="token_mean")
  return c
