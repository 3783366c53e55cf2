"""GRPO as in open-instruct (`standard`): population standard deviation, eps 1e-8, KL k3 in the loss.

Run:      python -m experiments.train --config=configs/peers/open_instruct_grpo.py --workdir=runs/open_instruct_grpo
Differs:  open-instruct clamps the KL's log-ratio to +-40.
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="group_normalise", ddof=0, eps=1e-8), dict(name="spread_over_tokens"))
  policy = dict(name="clipped_surrogate", clip_low=0.2, clip_high=0.2)
  c.objective = (policy, dict(name="kl_to_reference", weight=0.05, estimator="k3"))
  c.reduce = dict(name="token_mean")
  return c
