"""GRPO that replays stored groups in place of groups without spread.

Run:  python -m experiments.train --config=configs/lab/replay.py --workdir=runs/lab_replay
"""

from configs.lab.base import base


def get_config(task="sorting"):
  c = base(task)
  c.replay = dict(capacity_groups=64, num_replayed=2, max_staleness=20)
  c.objective = (dict(name="clipped_surrogate", view="behaviour"),)  # stale rows against the policy that sampled them
  return c
