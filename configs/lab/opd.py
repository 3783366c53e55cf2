"""On-policy distillation: the teacher's log-ratio at each sampled token is its advantage.

Run:  python -m experiments.train --config=configs/lab/opd.py --workdir=runs/lab_opd
"""

from configs.lab.base import base, taught


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="spread_over_tokens"), dict(name="teacher_log_ratio", add=False))
  c.reduce = dict(name="token_mean")
  return taught(c)
