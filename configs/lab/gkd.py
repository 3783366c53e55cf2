"""GKD (Agarwal et al., arXiv:2306.13649): generalised Jensen-Shannon divergence to a better-trained teacher.

Run:  python -m experiments.train --config=configs/lab/gkd.py --workdir=runs/lab_gkd
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = ()
  c.objective = (dict(name="generalised_jsd", beta=0.5),)
  c.reduce = dict(name="token_mean")
  long = dict(
    c.stages[0], save_as="expert", train=dict(num_steps=3 * c.stages[0]["train"]["num_steps"], num_minibatches=1)
  )
  c.views = dict(teacher=dict(params="given", expert="expert"))
  c.stages = (long, dict(c.stages[0], restart=True), dict(kind="distill"))
  return c
