"""80/20 (Wang et al., arXiv:2506.01939): only the fifth of the tokens with the highest entropy learns.

Run:  python -m experiments.train --config=configs/lab/entropy_mask.py --workdir=runs/lab_entropy_mask
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="group_normalise"), dict(name="spread_over_tokens"), dict(name="entropy_mask", share=0.2))
  c.reduce = dict(name="token_mean")
  return c
