"""GKD (Agarwal et al., arXiv:2306.13649): generalised Jensen-Shannon divergence to a better-trained teacher.

Run:  python -m experiments.train --config=configs/lab/gkd.py --workdir=runs/lab_gkd
"""

from configs.lab.base import base, taught


def get_config(task="sorting"):
  c = base(task)
  c.credit = ()
  c.objective = (dict(name="generalised_jsd", beta=0.5),)
  c.reduce = dict(name="token_mean")
  return taught(c)
