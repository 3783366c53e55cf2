"""Every command in README.md and docs/ is run: the two install lines by .ci/run as they stand, the others here."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
INSTALL = [
  "pip install . && python -m experiments.train --config=configs/quickstart.py --workdir=runs/quickstart",
  'pip install ".[test]" && python -m pytest -n 2',
]
# Command -> what shortens it here. The stages of quickstart have lengths of their own.
SHORT_SFT = ["--config.stages[0].train.num_steps=1", "--config.train.num_steps=1", "--config.eval.num_prompts=8",
             "--config.eval.prompts_per_batch=8"]  # fmt: skip
SHORT = ["--config.train.num_steps=1", "--config.optimiser.warmup_steps=0", "--config.eval.num_prompts=4",
         "--config.eval.prompts_per_batch=4"]  # fmt: skip
SMALL_LAB = ["--config.train.num_steps=2", "--config.stages[0].train.num_steps=2", "--config.eval.num_prompts=8"]
SMALL_COMPARE = ["--seeds=2", "--budget_tokens=400", "--set=stages[0].train.num_steps=2", "--set=eval.num_prompts=8",
                 "--set=eval.every=2"]  # fmt: skip
COMPARE = "python -m experiments.compare --configs="
RUN = {
  "python -m experiments.train --config=configs/lab/grpo.py:sorting --workdir=runs/lab_grpo": SMALL_LAB,
  COMPARE + "grpo,rloo,max_rl --tasks=sorting,modular_sum --seeds=8 --budget_tokens=100000 --workdir=runs/compare":
    [*SMALL_COMPARE, "--configs=grpo,rloo", "--tasks=modular_sum"],
  COMPARE + "grpo --tasks=sorting --seeds=4 --budget_tokens=50000 --sweep=optimiser.learning_rate=1e-4,3e-4,1e-3 "
    "--workdir=runs/sweep": SMALL_COMPARE,
  "python -m experiments.benchmark --suite=laboratory":
    ["--seconds=0.01", "--rounds=1", "--seeds=2", "--sizes=micro"],
  "python -m experiments.train --config=configs/quickstart.py --workdir=runs/quickstart --config.seed=1": SHORT_SFT,
  "python -m experiments.train --config=configs/smollm2_chain_sum.py --workdir=runs/smollm2": SHORT,
  "python -m experiments.train --config=configs/smollm2_chain_sum.py --dry_run": [],
}  # fmt: skip


def documented() -> list[str]:
  pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
  blocks = [b for page in pages for b in re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.S)]
  return [line for block in blocks for line in block.replace("\\\n", " ").strip().splitlines()]


def test_every_documented_command_is_run_and_none_has_gone():
  assert set(documented()) == {*INSTALL, *RUN}


@pytest.mark.slow
@pytest.mark.parametrize("command", RUN, ids=range(len(RUN)))
def test_a_documented_command_runs(command, tmp_path):
  program, *arguments = shlex.split(command)
  assert program == "python"
  arguments = [a.replace("=runs/", f"={tmp_path}/") for a in arguments]
  env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}  # one device, as a reader has: no eight copies
  arguments += RUN[command]
  done = subprocess.run(
    [sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=900, check=False
  )
  assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
  shown = dict(benchmark="iterations/s", compare="over training seeds").get(
    command.split(".")[1].split()[0], "accuracy"
  )
  assert ("train step memory" if "--dry_run" in command else shown) in done.stdout


def test_links_lead_somewhere():
  for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
      assert (page.parent / target).exists(), f"{page.name} links to {target}"
