"""REINFORCE++ (Hu, arXiv:2501.03262): KL in the reward, returns per token, whitened over the batch.

Run:  python -m experiments.train --config=configs/lab/reinforce_pp.py --workdir=runs/lab_reinforce_pp
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (
    dict(name="token_rewards"), dict(name="kl_in_reward", coef=1e-3), dict(name="discounted_return"),
    dict(name="whiten"),
  )  # fmt: skip
  c.reduce = dict(name="token_mean")
  return c
