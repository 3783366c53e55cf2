"""GRPO with a KL penalty to the initial policy in the loss, ratio-corrected k3.

Run:  python -m experiments.train --config=configs/lab/kl_in_loss.py --workdir=runs/lab_kl_in_loss
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.objective = (*c.objective, dict(name="kl_to_reference", weight=1e-2, estimator="k3", unbiased=True))
  return c
