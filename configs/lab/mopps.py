"""MoPPS (arXiv:2507.04632): Thompson sampling of each prompt's success rate, the nearest to a half are asked.

Run:  python -m experiments.train --config=configs/lab/mopps.py --workdir=runs/lab_mopps
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.selection = dict(name="mopps", num_candidates=64)
  c.task.num_train = 512
  return c
