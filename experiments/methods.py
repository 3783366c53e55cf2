"""Writes docs/methods.md, the table of every part a config can name: `python -m experiments.methods`."""

from pathlib import Path

from absl import app


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"unexpected arguments {argv[1:]}")
  from rlvr_jax.runs.parts import parts, to_markdown

  root = Path(__file__).resolve().parents[1]
  rows = parts(root / "configs")
  (root / "docs" / "methods.md").write_text(to_markdown(rows), encoding="utf-8")
  print(f"docs/methods.md: {len(rows)} parts")


if __name__ == "__main__":
  app.run(main)
