"""GRPO under another way of making one number of token losses; `reduce.name` is any of `objectives.reducers`.

Run:  python -m experiments.train --config=configs/lab/reducers.py --workdir=runs/lab_reducers
"""

from configs.lab.base import base

OTHERS = (dict(name="prompt_mean"), dict(name="token_sum"), dict(name="local_token_mean", num_parts=4))


def get_config(task="sorting"):
  c = base(task)
  c.reduce = OTHERS[0]
  return c
