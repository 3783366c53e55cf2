"""How different the completions of one prompt are. Each is a mean over prompts with its bootstrap interval.

  distinct answers       number of different answers
  Simpson index          1 - sum_a n_a (n_a - 1) / (n (n - 1)): chance that two samples have different answers
  effective answers      1 / sum_a (n_a / n)^2: as many equally frequent answers would be as concentrated
  distinct completions   different token sequences / samples
  distinct-n             different n-grams / n-grams, of all completions of a prompt together
  token entropy          mean over tokens, in nats

All but the Simpson index depend on the number of samples, and distinct-n also on their lengths: compare at equal ones.

Ref: Simpson 1949, doi:10.1038/163688a0 (unbiased index, here its complement). Hill 1973, doi:10.2307/1934352 (effective
number of order 2). Li et al. 2016, arXiv:1510.03055, section 5 (distinct-n).
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

from rlvr_jax.evals.intervals import Interval, bootstrap_interval, ratio_interval
from rlvr_jax.evals.majority import NO_ANSWER


def _counts(answers: np.ndarray) -> list[np.ndarray]:
  """How often each answer occurs, per prompt; samples without an answer are left out."""
  answers = np.asarray(answers)
  if answers.ndim != 2 or not answers.size or (answers < NO_ANSWER).any():
    raise ValueError(f"answers must be ids >= 0, or -1 for none, [prompts, samples]; got {answers.shape}: {answers}")
  return [np.unique(row[row != NO_ANSWER], return_counts=True)[1] for row in answers]


def _over_prompts(name: str, values: list[float], bounds: tuple[float, float], options: dict) -> Interval:
  present = np.array([v for v in values if not np.isnan(v)], np.float64)
  if not present.size:
    raise ValueError(f"{name}: no prompt has enough samples")
  return bootstrap_interval(present, bounds=bounds, **options)


def distinct_answers(answers: Int[np.ndarray, "p k"], **options) -> Interval:
  """Different answers per prompt.

  Args:
    answers: id of each sample's answer, -1 where there is none, which is no answer.
    options: `level`, `seed`, `num_resamples` of `bootstrap_interval`, here and below.
  """
  counts = _counts(answers)
  return _over_prompts("distinct_answers", [float(len(c)) for c in counts], (0.0, float(answers.shape[1])), options)


def simpson_index(answers: Int[np.ndarray, "p k"], **options) -> Interval:
  """Chance that two samples of a prompt, drawn without replacement, have different answers.

  Unbiased, so it compares across numbers of samples. Prompts with fewer than two answered samples are left out.
  """

  def of_prompt(c: np.ndarray) -> float:
    n = c.sum()
    return 1.0 - float((c * (c - 1)).sum() / (n * (n - 1))) if n >= 2 else float("nan")

  return _over_prompts("simpson_index", [of_prompt(c) for c in _counts(answers)], (0.0, 1.0), options)


def effective_answers(answers: Int[np.ndarray, "p k"], **options) -> Interval:
  """Effective number of answers, between 1 and the samples of a prompt. Prompts without an answer are left out."""

  def of_prompt(c: np.ndarray) -> float:
    return float(c.sum() ** 2 / np.square(c).sum()) if c.size else float("nan")

  values = [of_prompt(c) for c in _counts(answers)]
  return _over_prompts("effective_answers", values, (1.0, float(answers.shape[1])), options)


def _per_prompt(
  name: str, tokens: np.ndarray, mask: np.ndarray, score: Callable[[list[list[np.ndarray]]], float], options: dict
) -> Interval:
  """Mean over prompts of `score(completions)`; a completion is its runs of neighbouring tokens under the mask."""
  tokens, mask = np.asarray(tokens), np.asarray(mask, bool)
  if tokens.ndim != 3 or tokens.shape != mask.shape:
    raise ValueError(f"{name}: tokens and mask must be [prompts, samples, tokens], got {tokens.shape}, {mask.shape}")

  def runs(row: np.ndarray, kept: np.ndarray) -> list[np.ndarray]:
    at = np.flatnonzero(kept)
    return np.split(row[at], np.flatnonzero(np.diff(at) > 1) + 1)

  values = [score([runs(r, m) for r, m in zip(rows, kept) if m.any()]) for rows, kept in zip(tokens, mask)]
  return _over_prompts(name, values, (0.0, 1.0), options)


def distinct_completions(tokens: Int[np.ndarray, "p k t"], mask: Bool[np.ndarray, "p k t"], **options) -> Interval:
  """Share of a prompt's completions that are different token sequences; 1 / k when all are the same.

  Args:
    mask: the generated tokens. A completion without any is a sample that is not there.
  """

  def score(completions: list[list[np.ndarray]]) -> float:
    whole = {tuple(tuple(run.tolist()) for run in runs) for runs in completions}
    return len(whole) / len(completions) if completions else float("nan")

  return _per_prompt("distinct_completions", tokens, mask, score, options)


def distinct_n(tokens: Int[np.ndarray, "p k t"], mask: Bool[np.ndarray, "p k t"], n: int, **options) -> Interval:
  """Different n-grams over all n-grams of a prompt's completions. An n-gram never spans a token outside the mask.

  Prompts without a single n-gram are left out.
  """
  if n < 1:
    raise ValueError(f"distinct_n: n must be >= 1, got {n}")

  def score(completions: list[list[np.ndarray]]) -> float:
    long = [run for runs in completions for run in runs if len(run) >= n]
    if not long:
      return float("nan")
    grams = np.concatenate([np.lib.stride_tricks.sliding_window_view(run, n) for run in long])
    return len(np.unique(grams, axis=0)) / len(grams)

  return _per_prompt("distinct_n", tokens, mask, score, options)


def mean_token_entropy(
  entropy: Float[np.ndarray, "p k t"], mask: Bool[np.ndarray, "p k t"], vocab_size: int, **options
) -> Interval:
  """Mean over all tokens under the mask, in nats; prompts resampled whole. What is outside the mask may be NaN.

  Args:
    vocab_size: entropies lie in [0, log vocab_size].
  """
  entropy, mask = np.asarray(entropy, np.float64), np.asarray(mask, bool)
  if entropy.ndim != 3 or entropy.shape != mask.shape:
    raise ValueError(
      f"mean_token_entropy: entropy and mask must be [prompts, samples, tokens], got {entropy.shape}, {mask.shape}"
    )
  inside, highest = entropy[mask], float(np.log(vocab_size))
  if not (inside.size and np.isfinite(inside).all() and inside.min() > -1e-3 and inside.max() < highest + 1e-3):
    found = f"{inside.min()} to {inside.max()}" if inside.size else "no token"
    raise ValueError(f"mean_token_entropy: entropy must lie in [0, log {vocab_size} = {highest:.4g}], got {found}")
  total = np.clip(np.where(mask, entropy, 0.0), 0.0, highest).sum(axis=(1, 2))  # float32 rounds past either end
  return ratio_interval(total, mask.sum(axis=(1, 2)).astype(np.float64), bounds=(0.0, highest), **options)
