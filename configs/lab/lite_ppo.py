"""Lite PPO (Liu et al., arXiv:2508.08221): mean of the group, standard deviation of the batch, token mean.

Run:  python -m experiments.train --config=configs/lab/lite_ppo.py --workdir=runs/lab_lite_ppo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="batch_normalise"), dict(name="spread_over_tokens"))
  c.reduce = dict(name="token_mean")
  return c
