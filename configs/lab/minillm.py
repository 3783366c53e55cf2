"""MiniLLM (Gu et al., arXiv:2306.08543): reverse KL by policy gradient, single-step decomposition.

Run:  python -m experiments.train --config=configs/lab/minillm.py --workdir=runs/lab_minillm
"""

from configs.lab.base import base, taught


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="spread_over_tokens"), dict(name="minillm_return", add=False))
  c.reduce = dict(name="token_mean")
  return taught(c)
