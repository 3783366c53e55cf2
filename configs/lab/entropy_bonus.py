"""GRPO with an entropy bonus.

Run:  python -m experiments.train --config=configs/lab/entropy_bonus.py --workdir=runs/lab_entropy_bonus
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.objective = (*c.objective, dict(name="entropy_bonus", weight=1e-3))
  return c
