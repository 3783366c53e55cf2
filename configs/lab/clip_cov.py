"""Clip-Cov (Cui et al., arXiv:2505.22617): no gradient for some tokens of high covariance.

Run:  python -m experiments.train --config=configs/lab/clip_cov.py --workdir=runs/lab_clip_cov
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="group_normalise"), dict(name="spread_over_tokens"), dict(name="clip_cov", ratio=0.01))
  c.objective = (dict(name="clipped_surrogate", clip_low=1.0, clip_high=1e6),)
  return c
