"""GRPO (Shao et al., arXiv:2402.03300): group mean and standard deviation, clipped ratio, mean over sequences.

Run:  python -m experiments.train --config=configs/lab/grpo.py --workdir=runs/lab_grpo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  return base(task)
