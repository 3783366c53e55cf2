"""GPG (Chu et al., arXiv:2504.02546): centred reward, rescaled by the share of rows that carry a gradient.

Run:  python -m experiments.train --config=configs/lab/gpg.py --workdir=runs/lab_gpg
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="gpg"), dict(name="spread_over_tokens"))
  c.objective = (dict(name="reinforce"),)
  c.reduce = dict(name="token_mean")
  c.train.num_minibatches = 1
  return c
