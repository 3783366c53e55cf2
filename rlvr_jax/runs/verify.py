"""The host seam: sampled tokens to text, text to verdicts, verdicts back onto the rollout."""

import hashlib
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
  answer_id: np.ndarray  # Int32[n] equal answers to a prompt have equal ids; -1: none was read


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
    answer_id=answer_ids([row[metric].answer for row in verdicts]),
  )


def answer_ids(answers: Sequence[str | None]) -> np.ndarray:
  """Int32["n"]: the hash of each answer's text, the same in every batch and process; -1 for none."""
  digest = lambda text: int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:4]) >> 1
  return np.array([-1 if answer is None else digest(answer) for answer in answers], np.int32)


def joined(parts: Sequence[Scored]) -> Scored:
  """Several scored batches of one stage as one."""
  if len(parts) == 1:
    return parts[0]
  mixed = [part.mixed for part in parts]
  by_label = lambda field: {k: np.concatenate([getattr(m, field)[k] for m in mixed]) for k in mixed[0].rewards}
  statuses = {
    k: {status: sum(m.statuses[k][status] for m in mixed) for status in of} for k, of in mixed[0].statuses.items()
  }
  rows = lambda field: np.concatenate([getattr(part, field) for part in parts])
  return Scored(
    samples=[x for part in parts for x in part.samples],
    verdicts=[x for part in parts for x in part.verdicts],
    mixed=Mixed(
      np.concatenate([m.reward for m in mixed]), by_label("rewards"), np.concatenate([m.row_mask for m in mixed]),
      by_label("has_verdict"), statuses, [x for m in mixed for x in m.reasons],
    ),  # fmt: skip
    metric=rows("metric"), lengths=rows("lengths"), truncated=rows("truncated"), answer_id=rows("answer_id"),
  )  # fmt: skip


def with_rewards(rollout: Rollout, scored: Scored, mesh) -> Rollout:
  """The rollout with its rewards; rows without a verdict leave group statistics and loss."""
  mixed = scored.mixed
  arrays = mixed.reward, mixed.rewards, mixed.row_mask, scored.answer_id
  reward, rewards, has_verdict, answer_id = place(mesh, arrays, ("batch",))
  row_mask = rollout.row_mask & has_verdict
  return rollout.replace(reward=reward, rewards=rewards, row_mask=row_mask, answer_id=answer_id)
