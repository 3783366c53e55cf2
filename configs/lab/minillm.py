"""MiniLLM (Gu et al., arXiv:2306.08543): reverse KL by policy gradient, single-step decomposition.

Run:  python -m experiments.train --config=configs/lab/minillm.py --workdir=runs/lab_minillm
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.credit = (dict(name="spread_over_tokens"), dict(name="minillm_return", add=False))
  c.reduce = dict(name="token_mean")
  long = dict(
    c.stages[0], save_as="expert", train=dict(num_steps=3 * c.stages[0]["train"]["num_steps"], num_minibatches=1)
  )
  c.views = dict(teacher=dict(params="given", expert="expert"))
  c.stages = (long, dict(c.stages[0], restart=True), dict(kind="distill"))
  return c
