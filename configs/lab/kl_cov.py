"""KL-Cov (Cui et al., arXiv:2505.22617): tokens of the highest covariance are held to the old policy.

Run:  python -m experiments.train --config=configs/lab/kl_cov.py --workdir=runs/lab_kl_cov
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="group_normalise"), dict(name="spread_over_tokens"), dict(name="kl_cov", share=0.02))
  c.objective = (dict(name="clipped_surrogate", clip_low=1.0, clip_high=1e6), dict(name="kl_cov_penalty", weight=1.0))
  return c
