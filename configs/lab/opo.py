"""OPO (Hao et al., arXiv:2505.23585): the variance-minimal baseline, weighted by length; exactly on-policy.

Run:  python -m experiments.train --config=configs/lab/opo.py --workdir=runs/lab_opo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="length_weighted_baseline"), dict(name="spread_over_tokens"))
  c.objective = (dict(name="reinforce"),)
  c.reduce = dict(name="sequence_sum")
  c.train.num_minibatches = 1
  return c
