"""Text tasks: where prompts come from (`tasks.text`), how they become tokens (`tasks.templates`), and their batches."""

from rlvr_jax.tasks.demonstrations import DemonstrationBatch, demonstration_batches
from rlvr_jax.tasks.prompts import EvalBatches, PromptBatch, PromptLoader, eval_batches, prompt_loader
from rlvr_jax.tasks.types import EVAL_ID, Example, TextTask

__all__ = [
  "EVAL_ID", "DemonstrationBatch", "EvalBatches", "Example", "PromptBatch", "PromptLoader", "TextTask",
  "demonstration_batches", "eval_batches", "prompt_loader",
]  # fmt: skip
