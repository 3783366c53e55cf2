"""GRPO that drops bad sequences which have drifted from the sampler's policy (OPSM).

Run:  python -m experiments.train --config=configs/lab/off_policy_mask.py --workdir=runs/lab_off_policy_mask
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (
    dict(name="group_normalise"),
    dict(name="spread_over_tokens"),
    dict(name="off_policy_sequence_mask", delta=0.01),
  )
  return c
