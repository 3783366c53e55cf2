"""On-policy self-distillation (arXiv:2601.18734): the teacher is the policy itself after reading the solution.

Run:  python -m experiments.train --config=configs/lab/opsd.py --workdir=runs/lab_opsd
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.views = dict(teacher=dict(params="ema", decay=0.98, context="hint"))
  c.credit = (dict(name="spread_over_tokens"), dict(name="teacher_log_ratio", coef=0.1))
  c.reduce = dict(name="token_mean")
  return c
