"""PPO (Schulman et al., arXiv:1707.06347) with a critic of its own and GAE; a rollout a prompt is enough.

Run:  python -m experiments.train --config=configs/lab/ppo.py --workdir=runs/lab_ppo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.critic = dict(trunk="own", heads=(dict(name="scalar_head", label="value"),))
  c.prompts.per_step, c.rollout.group_size = 64, 1
  c.credit = (dict(name="token_rewards"), dict(name="gae", gamma=1.0, lam=0.95), dict(name="whiten"))
  c.objective = (*c.objective, dict(name="value_loss", weight=0.5, clip=0.2))
  c.reduce = dict(name="token_mean")
  return c
