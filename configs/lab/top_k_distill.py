"""Forward KL to the teacher's likeliest tokens, with a bucket for the rest.

Run:  python -m experiments.train --config=configs/lab/top_k_distill.py --workdir=runs/lab_top_k_distill
"""

from configs.lab.base import base, taught


def get_config(task="sorting"):
  c = base(task)
  c.credit = ()
  c.objective = (dict(name="top_k_kl", k=4, tail="bucket"),)
  c.reduce = dict(name="token_mean")
  return taught(c)
