"""Supervised fine-tuning on demonstrations, and nothing after.

Run:  python -m experiments.train --config=configs/lab/sft.py --workdir=runs/lab_sft
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.stages = (c.stages[0],)
  return c
