"""Distillation from a better-trained teacher until it stalls, then GRPO.

Run:  python -m experiments.train --config=configs/lab/distil_then_rl.py --workdir=runs/lab_distil_then_rl
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  reduce, objective = dict(name="token_mean"), (dict(name="sampled_reverse_kl"),)
  long = dict(
    c.stages[0], save_as="expert", train=dict(num_steps=3 * c.stages[0]["train"]["num_steps"], num_minibatches=1)
  )
  teacher = dict(teacher=dict(params="given", expert="expert"))
  distill = dict(kind="distill", views=teacher, credit=(), objective=objective, reduce=reduce, stop=dict(patience=2))
  c.stages = (long, dict(c.stages[0], restart=True), distill, dict(kind="rl"))
  return c
