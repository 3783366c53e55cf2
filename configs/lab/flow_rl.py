"""FlowRL (arXiv:2509.15207): trajectory balance with a learned partition function.

Run:  python -m experiments.train --config=configs/lab/flow_rl.py --workdir=runs/lab_flow_rl
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.critic = dict(trunk="shared", heads=(dict(name="scalar_head", label="log_z"),))
  c.objective = (dict(name="flow_rl", beta=1.0),)
  return c
