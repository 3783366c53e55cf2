"""SPEED-RL (Zhang et al., arXiv:2506.09016): four completions screen a prompt before it gets its group.

Run:  python -m experiments.train --config=configs/lab/speed_rl.py --workdir=runs/lab_speed_rl
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.selection = dict(name="speed_rl", num_candidates=16)
  c.screen = dict(group_size=4)
  return c
