"""Trains one config: `python -m experiments.train --config=configs/quickstart.py --workdir=runs/quickstart`.

Any key can be set from the command line (`--config.optimiser.learning_rate=1e-5`, `--config.credit[0].eps=1e-4`); an
unknown one is an error. Running the same command again goes on from the last checkpoint in the work directory.
"""

import sys

from absl import app, flags, logging
from ml_collections import config_flags

CONFIG = config_flags.DEFINE_config_file("config", "configs/quickstart.py", "The experiment.", lock_config=True)
WORKDIR = flags.DEFINE_string("workdir", None, "Where metrics, samples, checkpoints and the curve go.")
DRY_RUN = flags.DEFINE_bool("dry_run", False, "Build everything, print the method, shapes and memory, and stop.")
ALLOW_CHANGES = flags.DEFINE_bool("allow_changes", False, "Go on from a checkpoint of another config or data set.")
PLAIN = flags.DEFINE_bool("plain", False, "Plain lines even on a terminal.")


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"unexpected arguments {argv[1:]}")
  logging.set_verbosity(logging.WARNING)  # orbax tells every file it writes
  from rlvr_jax.runs import Stopped, describe, describe_lab, is_graph_task, train, train_lab

  config = CONFIG.value.to_dict()
  in_laboratory = is_graph_task(config)
  if DRY_RUN.value:
    print((describe_lab if in_laboratory else describe)(config))
    return
  if not WORKDIR.value:
    raise app.UsageError("--workdir is needed")
  run = train_lab if in_laboratory else train
  try:
    run(config, WORKDIR.value, allow_changes=ALLOW_CHANGES.value, plain=PLAIN.value or None)
  except Stopped as stopped:
    print(stopped, file=sys.stderr)


if __name__ == "__main__":
  app.run(main)
