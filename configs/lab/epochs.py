"""GRPO on shuffled epochs, every prompt once in each.

Run:  python -m experiments.train --config=configs/lab/epochs.py --workdir=runs/lab_epochs
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.selection = dict(name="epochs")
  return c
