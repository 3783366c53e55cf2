"""Forward KL to the teacher's likeliest tokens, with a bucket for the rest.

Run:  python -m experiments.train --config=configs/lab/top_k_distill.py --workdir=runs/lab_top_k_distill
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = ()
  c.objective = (dict(name="top_k_kl", k=4, tail="bucket"),)
  c.reduce = dict(name="token_mean")
  long = dict(
    c.stages[0], save_as="expert", train=dict(num_steps=3 * c.stages[0]["train"]["num_steps"], num_minibatches=1)
  )
  c.views = dict(teacher=dict(params="given", expert="expert"))
  c.stages = (long, dict(c.stages[0], restart=True), dict(kind="distill"))
  return c
