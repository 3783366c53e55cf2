"""GRPO as in verl (`adv_estimator=grpo`): sample standard deviation, eps 1e-6; a lone completion keeps its raw reward.

Run:      python -m experiments.train --config=configs/peers/verl_grpo.py --workdir=runs/verl_grpo
Differs:  verl clamps the log-ratio to +-20; the KL loss is off, as by default there.
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="group_normalise", ddof=1, eps=1e-6, lone="raw"), dict(name="spread_over_tokens"))
  c.objective = (dict(name="clipped_surrogate", clip_low=0.2, clip_high=0.2, dual_clip=3.0),)
  c.reduce = dict(name="token_mean")
  return c
