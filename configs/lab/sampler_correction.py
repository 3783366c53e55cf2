"""GRPO with truncated importance weights for the gap between sampler and trainer (TIS).

Run:  python -m experiments.train --config=configs/lab/sampler_correction.py --workdir=runs/lab_sampler_correction
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (
    dict(name="group_normalise"),
    dict(name="spread_over_tokens"),
    dict(name="sampler_correction", mode="truncate", high=2.0),
  )
  return c
