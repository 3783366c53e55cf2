"""GRPO as in OpenRLHF (`group_norm`): sample standard deviation, eps 1e-9.

Run:      python -m experiments.train --config=configs/peers/openrlhf_grpo.py --workdir=runs/openrlhf_grpo
Differs:  OpenRLHF refuses groups of one, here they are zero.
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="group_normalise", ddof=1, eps=1e-9), dict(name="spread_over_tokens"))
  c.objective = (dict(name="clipped_surrogate", clip_low=0.2, clip_high=0.2),)
  c.reduce = dict(name="token_mean")
  return c
