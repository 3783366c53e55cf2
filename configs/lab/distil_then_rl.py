"""Distillation from a better-trained teacher until it stalls, then GRPO.

Run:  python -m experiments.train --config=configs/lab/distil_then_rl.py --workdir=runs/lab_distil_then_rl
"""

from configs.lab.base import base, taught


def get_config(task="sorting"):
  c = base(task)
  distill = dict(credit=(), objective=(dict(name="sampled_reverse_kl"),), reduce=dict(name="token_mean"))
  c = taught(c, stop=dict(patience=2), **distill)
  c.stages = (*c.stages, dict(kind="rl"))
  return c
