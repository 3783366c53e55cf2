"""VAPO (Yue et al., arXiv:2504.05118): warmed-up critic, lambda 1 for it and by length for the policy.

Run:  python -m experiments.train --config=configs/lab/vapo.py --workdir=runs/lab_vapo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.critic = dict(trunk="own", heads=(dict(name="scalar_head", label="value"),))
  c.prompts.per_step, c.rollout.group_size = 64, 1
  c.credit = (
    dict(name="token_rewards"),
    dict(name="gae", value_lam=1.0, length_adaptive_alpha=0.25),
    dict(name="whiten"),
  )
  policy, value = dict(name="clipped_surrogate", clip_low=0.2, clip_high=0.28), dict(name="value_loss", weight=0.5)
  c.objective = (policy, value)
  c.reduce = dict(name="token_mean")
  sft, rl = c.stages
  c.stages = (sft, dict(kind="rl", objective=(value,), train=dict(num_steps=20)), rl)  # the second warms the critic up
  return c
