"""REINFORCE: the raw reward on every token, no baseline (Williams 1992).

Run:  python -m experiments.train --config=configs/lab/reinforce.py --workdir=runs/lab_reinforce
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="spread_over_tokens"),)
  c.objective = (dict(name="reinforce"),)
  c.reduce = dict(name="sequence_sum")
  c.train.num_minibatches = 1
  return c
