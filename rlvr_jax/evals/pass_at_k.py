"""What several completions of one prompt say: pass@k and avg@k."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

Counts = int | Sequence[int] | np.ndarray


def pass_at_k(num_samples: Counts, num_correct: Counts, k: int) -> np.ndarray | np.floating:
  """Unbiased chance that at least one of `k` samples is right, from `num_samples` of which `num_correct` are.

  1 - C(n-c, k) / C(n, k) = 1 - prod_{j<k} (n-c-j) / (n-j)

  The product needs no factorials, so any n is exact to rounding. Arguments broadcast; prompts may differ in n.
  Raises ValueError when k > n: such a prompt has no unbiased estimate.

  Source: Chen et al. 2021, arXiv:2107.03374, section 2.1.
  """
  n, c = np.broadcast_arrays(np.asarray(num_samples), np.asarray(num_correct))
  if k < 1:
    raise ValueError(f"pass_at_k: k must be >= 1, got {k}")
  if np.any(n < k):
    raise ValueError(f"pass_at_k: k = {k} is more than the {int(n.min())} samples of a prompt")
  if np.any(c < 0) or np.any(c > n):
    raise ValueError(f"pass_at_k: num_correct must lie in [0, num_samples], got {c} of {n}")
  drawn = np.arange(k)
  left = np.maximum((n - c)[..., None] - drawn, 0)
  return 1.0 - np.prod(left / (n[..., None] - drawn), axis=-1)


def avg_at_k(scores: Float[np.ndarray, "p k"]) -> Float[np.ndarray, "p"]:
  """Mean score of each prompt over the samples that have one (not NaN); NaN where none has."""
  present = ~np.isnan(scores)
  count = present.sum(axis=1)
  total = np.where(present, scores, 0.0).sum(axis=1)
  return np.where(count > 0, total / np.maximum(count, 1), np.nan)
