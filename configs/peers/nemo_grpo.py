"""GRPO as in NeMo RL: leave-one-out mean and leave-one-out standard deviation, eps 1e-6, KL k3 in the loss.

Run:      python -m experiments.train --config=configs/peers/nemo_grpo.py --workdir=runs/nemo_grpo
Differs:  NeMo clamps the KL's log-ratio to +-20 and the estimate to +-10.
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="leave_one_out_normalise", eps=1e-6), dict(name="spread_over_tokens"))
  policy = dict(name="clipped_surrogate", clip_low=0.2, clip_high=0.2)
  c.objective = (policy, dict(name="kl_to_reference", weight=0.01, estimator="k3"))
  c.reduce = dict(name="token_mean")
  return c
