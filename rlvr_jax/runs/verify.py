"""The host seam: sampled tokens to text, text to verdicts, verdicts back onto the rollout."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from rlvr_jax.core import Rollout
from rlvr_jax.rewards import Mixed, Sample, Verdict, VerifierPool, mix
from rlvr_jax.sharding import place


class Scored(NamedTuple):
  """What the host knows of a batch once it is verified."""

  samples: list[Sample]
  verdicts: list[dict[str, Verdict]]  # by component, before mixing
  mixed: Mixed
  metric: np.ndarray  # [n] raw score of the component called accuracy; NaN where there is no verdict
  lengths: np.ndarray  # [n] generated tokens
  truncated: np.ndarray  # [n]


def to_text(rollout: Rollout, examples: Sequence[Any], tokenizer, stop_ids: Sequence[int]) -> list[Sample]:
  """One `Sample` per row. The closing stop token is not part of the text; nothing else is removed or cleaned up."""
  tokens, action_mask, truncated = jax.device_get((rollout.tokens, rollout.action_mask, rollout.truncated))
  group_size = len(tokens) // len(examples)
  samples = []
  for row in range(len(tokens)):
    ids = tokens[row][action_mask[row]].tolist()
    ended = bool(ids) and not truncated[row] and ids[-1] in stop_ids
    text = tokenizer.decode(ids[:-1] if ended else ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    example = examples[row // group_size]
    samples.append(
      Sample(
        completion=text,
        reference=example.reference,
        prompt=example.prompt if isinstance(example.prompt, str) else example.prompt[-1]["content"],
        num_tokens=len(ids),
        truncated=bool(truncated[row]),
        metadata=example.metadata,
      )
    )
  return samples


def score(
  rollout: Rollout,
  examples: Sequence[Any],
  tokenizer,
  stop_ids: Sequence[int],
  pool: VerifierPool,
  weights: Mapping[str, float],
  metric: str,
) -> Scored:
  """Verifies a sampled batch; `metric` names the component that is called accuracy."""
  samples = to_text(rollout, examples, tokenizer, stop_ids)
  verdicts = pool.verify(samples)
  mixed = mix(verdicts, weights)
  return Scored(
    samples=samples,
    verdicts=verdicts,
    mixed=mixed,
    metric=np.where(mixed.has_verdict[metric], mixed.rewards[metric], np.nan),
    lengths=np.array([s.num_tokens for s in samples]),
    truncated=np.array([s.truncated for s in samples]),
  )


def with_rewards(rollout: Rollout, mixed: Mixed, mesh) -> Rollout:
  """The rollout with its rewards; rows without a verdict leave group statistics and loss."""
  reward, rewards, has_verdict = place(mesh, (mixed.reward, mixed.rewards, mixed.row_mask), ("batch",))
  return rollout.replace(reward=reward, rewards=rewards, row_mask=rollout.row_mask & has_verdict)
