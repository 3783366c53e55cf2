"""GRPO as in TRL (`GRPOTrainer`, loss_type="dapo"): sample deviation, eps 1e-4, sequences masked by sampler mismatch.

Run:      python -m experiments.train --config=configs/peers/trl_grpo.py --workdir=runs/trl_grpo
Differs:  the KL term is off, as by default there.
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (
    dict(name="group_normalise", ddof=1, eps=1e-4), dict(name="spread_over_tokens"),
    dict(name="sampler_correction", level="sequence", mode="mask", high=3.0),
  )  # fmt: skip
  c.objective = (dict(name="clipped_surrogate", clip_low=0.2, clip_high=0.2),)
  c.reduce = dict(name="token_mean")
  return c
