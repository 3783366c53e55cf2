"""One evaluation of a set of prompts, and the paired comparison of two."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from rlvr_jax.evals.calibration import agreement_share, brier_score, calibration_error
from rlvr_jax.evals.diversity import distinct_answers
from rlvr_jax.evals.intervals import Interval, bootstrap_interval, paired_bootstrap, sign_flip_test
from rlvr_jax.evals.majority import NO_ANSWER, maj_at_k
from rlvr_jax.evals.pass_at_k import avg_at_k, pass_at_k


class EvalResult(NamedTuple):
  """`p` prompts with `k` samples each. Samples without a verdict are NaN in `scores`: excluded everywhere, counted."""

  name: str
  num_prompts: int
  num_samples: int
  prompt_ids: np.ndarray  # Int["p"]
  scores: np.ndarray  # Float64["p k"] in [0, 1]; NaN: no verdict
  correct_at: float  # a sample is correct when its score is at least this
  accuracy: float  # share of correct samples, mean over prompts
  accuracy_interval: Interval
  pass_at_k: Mapping[int, Interval]
  avg_at_k: Interval  # mean score over prompts: the accuracy when scores are 0 or 1
  mean_length: float  # generated tokens per sample
  truncated_share: float
  num_without_verdict: int  # samples
  num_excluded_prompts: int  # prompts without a single verdict
  statuses: Mapping[str, Mapping[str, int]]  # component -> status -> count
  settings: Mapping[str, Any]  # what the samples were drawn with, as given
  of_answers: Mapping[str, Interval] = {}  # voting, diversity and calibration, where answers are told apart

  def correct(self) -> np.ndarray:
    """Share of correct samples of each prompt, Float["p"]; NaN where no sample has a verdict."""
    return avg_at_k(_correct(self.scores, self.correct_at))

  def scalars(self) -> dict[str, float]:
    """For the metric log, under this evaluation's name."""
    out = {
      "accuracy": self.accuracy,
      "accuracy_low": self.accuracy_interval.low,
      "accuracy_high": self.accuracy_interval.high,
      "avg_score": self.avg_at_k.value,
      "length": self.mean_length,
      "truncated": self.truncated_share,
      "num_prompts": float(self.num_prompts),
      "num_samples": float(self.num_samples),
      "without_verdict": float(self.num_without_verdict),
    }
    out |= {f"pass@{k}": interval.value for k, interval in self.pass_at_k.items()}
    out |= {name: interval.value for name, interval in self.of_answers.items()}
    return {f"{self.name}/{key}": value for key, value in out.items()}

  def to_json(self) -> dict[str, Any]:
    """Plain values only; None for a missing score."""
    scores = [[None if np.isnan(s) else float(s) for s in row] for row in self.scores]
    return self._asdict() | dict(
      prompt_ids=[int(i) for i in self.prompt_ids],
      scores=scores,
      accuracy_interval=list(self.accuracy_interval),
      pass_at_k={str(k): list(interval) for k, interval in self.pass_at_k.items()},
      avg_at_k=list(self.avg_at_k),
      statuses={label: dict(counts) for label, counts in self.statuses.items()},
      settings=dict(self.settings),
      of_answers={name: list(interval) for name, interval in self.of_answers.items()},
    )

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> "EvalResult":
    return cls(**values)._replace(
      prompt_ids=np.array(values["prompt_ids"], np.int64),
      scores=np.array(values["scores"], np.float64),  # None becomes NaN
      accuracy_interval=Interval(*values["accuracy_interval"]),
      pass_at_k={int(k): Interval(*interval) for k, interval in values["pass_at_k"].items()},
      avg_at_k=Interval(*values["avg_at_k"]),
      of_answers={name: Interval(*interval) for name, interval in values["of_answers"].items()},
    )


def _correct(scores: np.ndarray, correct_at: float) -> np.ndarray:
  return np.where(np.isnan(scores), np.nan, (scores >= correct_at).astype(np.float64))


def _check(prompt_ids, scores, lengths, truncated, expected) -> None:
  for name, array in (("scores", scores), ("lengths", lengths), ("truncated", truncated)):
    if array.ndim != 2 or array.shape != scores.shape or len(array) != len(prompt_ids):
      raise ValueError(
        f"summarise_eval: {name} must be [prompts, samples] for {len(prompt_ids)} prompts, got {array.shape}"
      )
  if not scores.size or (expected is not None and scores.shape != tuple(expected)):
    raise ValueError(f"summarise_eval: expected prompts x samples {expected or '>= 1 x 1'}, got {scores.shape}")
  ids, counts = np.unique(prompt_ids, return_counts=True)
  if (counts > 1).any():
    raise ValueError(f"summarise_eval: prompt_ids must be distinct, {ids[counts > 1][:5].tolist()} repeat")
  bad = scores[~np.isnan(scores)]
  bad = bad[(bad < 0) | (bad > 1)]
  if bad.size:
    raise ValueError(f"summarise_eval: scores must lie in [0, 1] or be NaN, got {bad[:5].tolist()}")
  if np.isnan(scores).all():
    raise ValueError("summarise_eval: no sample has a verdict, so there is nothing to measure")


def _of_answers(answers: np.ndarray, correct: np.ndarray, options: Mapping[str, Any]) -> dict[str, Interval]:
  """What several samples of a prompt say together. Confidence is the share of samples that agree."""
  judged = ~np.isnan(correct)
  if correct.shape[1] < 2 or not (judged & (answers != NO_ANSWER)).any():
    return {}
  agreed = agreement_share(answers)
  found = {f"maj@{k}": maj_at_k(answers, correct, k, **options) for k in _ks(correct.shape[1]) if k > 2}
  return found | {
    "distinct_answers": distinct_answers(answers, **options),
    "brier": brier_score(agreed, correct, **options),
    "calibration_error": calibration_error(agreed, correct, **options),
  }


def _ks(num_samples: int) -> list[int]:
  """1, 2, 4, ... and the number of samples itself."""
  return sorted({2**i for i in range(num_samples.bit_length())} | {num_samples})


def summarise_eval(
  prompt_ids: Int[np.ndarray, "p"] | Sequence[int],
  scores: Float[np.ndarray, "p k"],
  lengths: Int[np.ndarray, "p k"],
  truncated: Bool[np.ndarray, "p k"],
  statuses: Mapping[str, Mapping[str, int]],
  *,
  name: str = "eval",
  correct_at: float = 1.0,
  expected: tuple[int, int] | None = None,
  settings: Mapping[str, Any] | None = None,
  answers: Int[np.ndarray, "p k"] | None = None,
  level: float = 0.95,
  seed: int = 0,
) -> EvalResult:
  """Accuracy, pass@k for powers of two up to the number of samples, avg@k and lengths, with intervals over prompts.

  Args:
    prompt_ids: distinct ids by which two evaluations are paired.
    scores:     one per sample in [0, 1]; NaN where the verifier gave no verdict: left out and counted, never a zero.
    lengths:    generated tokens.
    truncated:  ended by the length limit.
    statuses:   component -> status -> count, carried along.
    correct_at: the score from which a sample counts as correct in accuracy and pass@k.
    expected:   (prompts, samples) that should be there; anything else is an error.
    settings:   how the samples were drawn, carried along so that a result says what it measured.
    answers:    ids of the answers, equal where answers to a prompt are, -1 for none: adds maj@k, the number of distinct
                answers, and the Brier score and calibration error of the share of samples that agree.

  Raises:
    ValueError: shapes disagree, ids repeat, a score is outside [0, 1], or no sample has a verdict.
  """
  prompt_ids, scores = np.asarray(prompt_ids), np.asarray(scores, np.float64)
  lengths, truncated = np.asarray(lengths), np.asarray(truncated)
  _check(prompt_ids, scores, lengths, truncated, expected)
  options = dict(level=level, seed=seed)
  judged = (~np.isnan(scores)).sum(axis=1)
  correct = _correct(scores, correct_at)
  num_correct = np.nansum(correct, axis=1)
  accuracy = bootstrap_interval(avg_at_k(correct)[judged > 0], **options)
  passes = {}
  for k in _ks(scores.shape[1]):
    enough = judged >= k
    if enough.any():
      passes[k] = bootstrap_interval(pass_at_k(judged[enough], num_correct[enough], k), **options)
  return EvalResult(
    name=name,
    num_prompts=scores.shape[0],
    num_samples=scores.shape[1],
    prompt_ids=prompt_ids,
    scores=scores,
    correct_at=correct_at,
    accuracy=accuracy.value,
    accuracy_interval=accuracy,
    pass_at_k=passes,
    avg_at_k=bootstrap_interval(avg_at_k(scores)[judged > 0], **options),
    mean_length=float(lengths.mean()),
    truncated_share=float(truncated.mean()),
    num_without_verdict=int((scores.shape[1] - judged).sum()),
    num_excluded_prompts=int((judged == 0).sum()),
    statuses={label: dict(counts) for label, counts in statuses.items()},
    settings=dict(settings or {}),
    of_answers={} if answers is None else _of_answers(np.asarray(answers), correct, options),
  )


class Comparison(NamedTuple):
  """Accuracy of two evaluations on the same prompts, paired by prompt."""

  before: float
  after: float
  difference: float  # after - before
  low: float
  high: float
  p_value: float  # sign-flip test of no difference
  num_prompts: int  # pairs
  num_excluded: int  # prompts without a verdict in one of the two

  def excludes_zero(self) -> bool:
    return self.low > 0 or self.high < 0


def compare(before: EvalResult, after: EvalResult, level: float = 0.95, seed: int = 0) -> Comparison:
  """Raises ValueError when the two did not see the same prompts, judge correctness alike, or share no judged prompt."""
  first = dict(zip(before.prompt_ids.tolist(), before.correct().tolist()))
  second = dict(zip(after.prompt_ids.tolist(), after.correct().tolist()))
  if first.keys() != second.keys():
    odd = sorted(first.keys() ^ second.keys())
    raise ValueError(f"compare: {len(odd)} prompt ids are in only one of the two evaluations, such as {odd[:5]}")
  if before.correct_at != after.correct_at:
    raise ValueError(f"compare: correct_at must be the same, got {before.correct_at} and {after.correct_at}")
  pairs = np.array([(first[i], second[i]) for i in sorted(first)])
  judged = pairs[~np.isnan(pairs).any(axis=1)]
  if not len(judged):
    raise ValueError("compare: no prompt has a verdict in both evaluations")
  found = paired_bootstrap(judged[:, 0], judged[:, 1], level, seed)
  return Comparison(
    before=float(judged[:, 0].mean()),
    after=float(judged[:, 1].mean()),
    difference=found.value,
    low=found.low,
    high=found.high,
    p_value=sign_flip_test(judged[:, 1] - judged[:, 0], seed),
    num_prompts=len(judged),
    num_excluded=len(pairs) - len(judged),
  )
