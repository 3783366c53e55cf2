"""On-policy distillation: the teacher's log-ratio at each sampled token is its advantage.

Run:  python -m experiments.train --config=configs/lab/opd.py --workdir=runs/lab_opd
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="spread_over_tokens"), dict(name="teacher_log_ratio", add=False))
  c.reduce = dict(name="token_mean")
  long = dict(
    c.stages[0], save_as="expert", train=dict(num_steps=3 * c.stages[0]["train"]["num_steps"], num_minibatches=1)
  )
  c.views = dict(teacher=dict(params="given", expert="expert"))
  c.stages = (long, dict(c.stages[0], restart=True), dict(kind="distill"))
  return c
