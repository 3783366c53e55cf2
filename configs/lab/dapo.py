"""DAPO (Yu et al., arXiv:2503.14476): higher clip, dynamic sampling, overlong penalty and filter, token mean.

Run:  python -m experiments.train --config=configs/lab/dapo.py --workdir=runs/lab_dapo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  longest = c.rollout.get("max_new_tokens", 16)
  c.refill = dict(num_rounds=3, metric="correct")
  c.credit = (
    dict(name="overlong_penalty", max_tokens=longest, cache_tokens=2), dict(name="overlong_filter"),
    dict(name="group_normalise"), dict(name="spread_over_tokens"),
  )  # fmt: skip
  c.objective = (dict(name="clipped_surrogate", clip_low=0.2, clip_high=0.28),)
  c.reduce = dict(name="token_mean")
  return c
