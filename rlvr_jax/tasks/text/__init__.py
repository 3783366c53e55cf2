"""Builders of text tasks. Each gives a `TextTask` with disjoint train and eval rows."""

from rlvr_jax.tasks.text.arithmetic import arithmetic
from rlvr_jax.tasks.text.files import jsonl, parquet
from rlvr_jax.tasks.text.reasoning_gym import reasoning_gym
from rlvr_jax.tasks.text.tfds import tfds_catalogue, tfds_task

__all__ = ["arithmetic", "jsonl", "parquet", "reasoning_gym", "tfds_catalogue", "tfds_task"]
