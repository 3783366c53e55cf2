"""Accuracy of the most frequent answer among k samples of a prompt, exactly, ties split evenly.

  maj@k = E over k-subsets S of the samples, E over the answers a most frequent in S, [correct share of a]

A k-subset holds c_a votes for answer a with the multivariate hypergeometric law, which is that of independent
Binomial(n_a, k/n) counts given that they add up to k. So the chance that a wins with t votes is a coefficient of a
product of polynomials, and no subset is ever enumerated.

Ref: Wang et al. 2022, Self-Consistency, arXiv:2203.11171, section 2 (voting). The expectation over subsets is the
counterpart of pass@k in Chen et al. 2021, arXiv:2107.03374, section 2.1.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from rlvr_jax.evals.intervals import Interval, bootstrap_interval

NO_ANSWER = -1


def _add_votes(chance: np.ndarray, votes: np.ndarray, tie_at: int | None) -> np.ndarray:
  """Law of [votes cast, answers level at `tie_at`] after one more answer, whose votes follow `votes`."""
  k, ties = chance.shape[0] - 1, chance.shape[1] - 1
  after = np.zeros_like(chance)
  for count, share in enumerate(votes[: k + 1]):
    step = int(count == tie_at)
    after[count:, step:] += share * chance[: k + 1 - count, : ties + 1 - step]
  return after


def vote_shares(counts: Sequence[int] | Int[np.ndarray, "a"], k: int, num_silent: int = 0) -> Float[np.ndarray, "a"]:
  """Chance of each answer to be the vote of `k` samples drawn without replacement; ties count as equal parts.

  Args:
    counts:     samples that gave each answer.
    num_silent: samples without an answer: drawn like the others, but cast no vote.

  Returns: chances that add up to one less the chance that no drawn sample has an answer.
  """
  counts = np.asarray(counts, np.int64)
  n = int(counts.sum()) + num_silent
  if not 1 <= k <= n or num_silent < 0 or (counts < 1).any():
    raise ValueError(f"vote_shares: need counts >= 1 and 1 <= k <= samples, got k = {k} of {counts} + {num_silent}")
  law = {m: stats.binom.pmf(np.arange(m + 1), m, k / n) for m in {*counts.tolist(), num_silent, n}}
  wins = {}
  for own in set(counts.tolist()):  # answers given equally often win equally often
    others = counts.tolist()
    others.remove(own)
    wins[own] = 0.0
    for t in range(1, min(own, k) + 1):
      chance = np.zeros((k + 1, min(len(others), k // t) + 1))
      chance[t, 0] = law[own][t]
      for m in others:
        chance = _add_votes(chance, law[m][: t + 1], t)
      chance = _add_votes(chance, law[num_silent], None)
      wins[own] += (chance[k] / np.arange(1, chance.shape[1] + 1)).sum()
  return np.array([wins[own] for own in counts.tolist()]) / law[n][k]


def _of_one_prompt(answers: np.ndarray, correct: np.ndarray, k: int | None) -> float:
  judged = ~np.isnan(correct)
  answers, correct = answers[judged], correct[judged]
  if len(answers) < max(k or 1, 1):
    return float("nan")
  voting = answers != NO_ANSWER
  if not voting.any():
    return 0.0
  _, index, counts = np.unique(answers[voting], return_inverse=True, return_counts=True)
  share = np.bincount(index, correct[voting]) / counts
  found = vote_shares(counts, k or len(answers), int((~voting).sum())) @ share
  return float(np.clip(found, 0.0, 1.0))  # sums of chances round past 1


def majority_accuracy(
  answers: Int[np.ndarray, "p k"], correct: Float[np.ndarray, "p k"] | Bool[np.ndarray, "p k"], k: int | None = None
) -> Float[np.ndarray, "p"]:
  """maj@k of each prompt; NaN where fewer than `k` samples have a verdict.

  Args:
    answers: id of each sample's answer, equal where the answers are; -1 where there is none: no vote, and a prompt
             with no vote at all is wrong.
    correct: in [0, 1]; NaN where there is no verdict: left out of the vote. Where a verifier judges one answer
             differently (by its format, say), the voted answer is as right as its samples are on average.
    k:       samples that vote; all that have a verdict when None.
  """
  answers, correct = np.asarray(answers), np.asarray(correct, np.float64)
  if answers.ndim != 2 or answers.shape != correct.shape:
    raise ValueError(f"maj_at_k: answers and correct must be [prompts, samples], got {answers.shape}, {correct.shape}")
  if k is not None and not 1 <= k <= answers.shape[1]:
    raise ValueError(f"maj_at_k: k must lie in [1, {answers.shape[1]}], the samples of a prompt, got {k}")
  if (answers < NO_ANSWER).any():
    raise ValueError(f"maj_at_k: answers must be ids >= 0, or -1 for none, got {int(answers.min())}")
  if ((correct < 0) | (correct > 1)).any():
    bad = correct[(correct < 0) | (correct > 1)]
    raise ValueError(f"maj_at_k: correct must lie in [0, 1] or be NaN, got {bad[:5].tolist()}")
  if (correct[answers == NO_ANSWER] > 0).any():
    raise ValueError("maj_at_k: a sample without an answer (-1) cannot be correct")
  return np.array([_of_one_prompt(a, c, k) for a, c in zip(answers, correct)], np.float64)


def maj_at_k(
  answers: Int[np.ndarray, "p k"],
  correct: Float[np.ndarray, "p k"] | Bool[np.ndarray, "p k"],
  k: int | None = None,
  level: float = 0.95,
  seed: int = 0,
  num_resamples: int = 5000,
) -> Interval:
  """Mean of `majority_accuracy` over the prompts with enough verdicts, with its bootstrap interval over prompts.

  Raises ValueError when no prompt has `k` samples with a verdict.
  """
  found = majority_accuracy(answers, correct, k)
  enough = found[~np.isnan(found)]
  if not enough.size:
    raise ValueError(f"maj_at_k: no prompt has {k or 1} samples with a verdict")
  return bootstrap_interval(enough, level, seed, num_resamples)
