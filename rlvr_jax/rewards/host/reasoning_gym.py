"""reasoning-gym's own scorers."""

from rlvr_jax.rewards.host.answers import answer_part
from rlvr_jax.rewards.verdict import Sample, verdict


def reasoning_gym(dataset: str | None = None, answer_tag: bool = True):
  """The score that the dataset's own `score_answer` gives to the answer, in [0, 1].

  The sample's `metadata` is the reasoning-gym entry: question, answer, metadata.

  Args:
    dataset:    name of the reasoning-gym dataset; None reads `metadata["metadata"]["source_dataset"]`.
    answer_tag: the last `<answer>` block is the answer, none is `unparsable`; False takes the whole text after the
                reasoning block.

  Ref: Stojanovski et al., Reasoning Gym, arXiv:2505.24760.
  """
  import reasoning_gym as gym

  score_fns = {} if dataset is None else {dataset: gym.get_score_answer_fn(dataset)}

  def verify(sample: Sample):
    entry = dict(sample.metadata)
    name = dataset or entry.get("metadata", {}).get("source_dataset")
    if name is None:
      raise ValueError("reasoning_gym needs the dataset: as option, or as metadata.source_dataset of the entry")
    if name not in score_fns:
      score_fns[name] = gym.get_score_answer_fn(name)
    answer = _answer(sample.completion, answer_tag)
    if not answer:
      return verdict(0.0, "unparsable", "no answer in <answer> tags" if answer_tag else "no text after the reasoning")
    score = score_fns[name](answer=answer, entry=entry)
    return verdict(score, "ok" if score > 0 else "wrong", f"{name} gives {score:g} to {answer[:80]!r}")

  return verify


def _answer(completion: str, answer_tag: bool) -> str:
  text = answer_part(completion) or ""
  if not answer_tag:
    return text.strip()
  before, opened, rest = text.rpartition("<answer>")
  inside, closed, _ = rest.partition("</answer>")
  return inside.strip() if opened and closed else ""
