"""SAPO (arXiv:2511.20347): a smooth gate in place of the clip.

Run:  python -m experiments.train --config=configs/lab/sapo.py --workdir=runs/lab_sapo
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.objective = (dict(name="sapo"),)
  return c
