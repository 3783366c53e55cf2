"""Comparisons whose unit of replication is the training seed: one number per seed, paired by seed.

  difference = mean over seeds of (other - baseline),   interval = difference ± t_{s-1} sd / sqrt(s)

Prompts and samples of one trained model say nothing about the next training run, so only seeds are resampled.

With the handful of seeds that one can afford, a bootstrap interval is too narrow: resampling s values shrinks their
spread by sqrt((s - 1) / s) and ignores that it is itself estimated. For normal differences a nominal 95 % holds the
truth about 75 % of the time at s = 4, 83 % at 5 and 89 % at 10. Student's interval is exact there and is the default.

The sign-flip test is exact whatever the distribution, as long as it is symmetric under the null, but with s seeds its
p-value is at least 2 / 2^s: 0.25 at 3 seeds, 0.0625 at 5, 0.031 at 6. Student's test has no such floor and assumes
normal differences; choose before looking.

Ref: Student 1908, doi:10.1093/biomet/6.1.1. Fisher 1935, The Design of Experiments, section 21 (sign flips). Holm 1979,
Scandinavian Journal of Statistics 6, 65-70. Agarwal et al. 2021, arXiv:2108.13264 (few runs).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from rlvr_jax.core import nearest
from rlvr_jax.evals.intervals import Interval, bootstrap_interval, interval_of_equals, sign_flip_test

METHODS = ("t", "bootstrap")
TESTS = ("sign_flip", "t")
MAX_EXACT = 16  # seeds up to which all sign patterns are tried


class SeedComparison(NamedTuple):
  """Mean of other - baseline over seeds, its interval, and the p-value of no difference."""

  difference: float
  low: float
  high: float
  p_value: float
  num_seeds: int


def _choice(name: str, value: str, known: Sequence[str]) -> None:
  if value not in known:
    raise ValueError(f"{name} must be one of {tuple(known)}, got {value!r}{nearest(value, known)}")


def _equal(values: np.ndarray) -> bool:
  """All the same but for the rounding of a subtraction of shares."""
  return bool(np.ptp(values) <= 1e-12 * max(np.abs(values).max(), 1e-3))


def mean_over_seeds(
  values: Float[np.ndarray, "s"],
  level: float = 0.95,
  method: str = "t",
  bounds: tuple[float, float] = (0.0, 1.0),
  seed: int = 0,
) -> Interval:
  """Mean of one value per training seed with its interval, cut at `bounds`, beyond which no mean can lie.

  One seed has an interval from NaN to NaN: it says nothing of other seeds. Equal values get `interval_of_equals`.

  Args:
    method: "t", or "bootstrap" (BCa; too narrow for few seeds).
    bounds: what a value can be, infinite where it has no limit.
  """
  values = np.asarray(values, np.float64)
  _choice("method", method, METHODS)
  lowest, highest = bounds
  if values.ndim != 1 or not values.size or not np.isfinite(values).all():
    raise ValueError(f"need one finite value per seed, got shape {values.shape}: {values}")
  if values.min() < lowest or values.max() > highest:
    raise ValueError(f"values over seeds must lie in {bounds}, got {values.min()} to {values.max()}")
  mean, s = float(values.mean()), len(values)
  if s == 1:
    return Interval(mean, float("nan"), float("nan"))
  if _equal(values):
    return interval_of_equals(mean, s, level, bounds)
  if method == "bootstrap":
    return bootstrap_interval(values, level, seed, bounds=bounds)
  half = float(stats.t.ppf(0.5 + level / 2, s - 1) * values.std(ddof=1) / np.sqrt(s))
  return Interval(mean, max(mean - half, lowest), min(mean + half, highest))


def paired_over_seeds(
  baseline: Float[np.ndarray, "s"],
  other: Float[np.ndarray, "s"],
  level: float = 0.95,
  method: str = "t",
  test: str = "sign_flip",
  bounds: tuple[float, float] = (-1.0, 1.0),
  seed: int = 0,
) -> SeedComparison:
  """Mean of other - baseline, both with one value per seed in the same order; above 0 when `other` is higher.

  Args:
    method: of the interval, see `mean_over_seeds`.
    test:   "sign_flip": all 2^s sign patterns up to 16 seeds, 65536 sampled ones beyond; or "t", which equal
            differences do not have: they get the sign flips.
    bounds: what a difference can be.
    seed:   of resampling, not of training.
  """
  baseline, other = np.asarray(baseline, np.float64), np.asarray(other, np.float64)
  _choice("test", test, TESTS)
  if baseline.shape != other.shape:
    raise ValueError(f"paired_over_seeds: baseline has shape {baseline.shape}, other has {other.shape}")
  differences = other - baseline
  found = mean_over_seeds(differences, level, method, bounds, seed)
  if test == "t" and not _equal(differences):
    p_value = float(stats.ttest_1samp(differences, 0.0).pvalue)
  else:
    p_value = sign_flip_test(differences, seed, num_resamples=2**MAX_EXACT)
  return SeedComparison(found.value, found.low, found.high, p_value, len(differences))


def smallest_p_value(num_seeds: int) -> float:
  """What the sign-flip test gives when all differences have one sign: 2 / 2^s."""
  return min(2.0 ** (1 - num_seeds), 1.0)


def holm(p_values: Sequence[float] | Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
  """p-values adjusted by Holm's step-down, in the order given: no more than `a` of false claims at `adjusted <= a`.

  adjusted_(i) = max over j <= i of min(1, (m - j + 1) p_(j)),   p_(1) <= ... <= p_(m)
  """
  p = np.asarray(p_values, np.float64)
  if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
    raise ValueError(f"holm: p-values must lie in [0, 1], got {p_values}")
  order = np.argsort(p, kind="stable")
  steps = np.minimum((len(p) - np.arange(len(p))) * p[order], 1.0)
  adjusted = np.empty_like(p)
  adjusted[order] = np.maximum.accumulate(steps)
  return adjusted
