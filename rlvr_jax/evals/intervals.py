"""Intervals over prompts. Prompts are the independent unit: completions of one prompt are not."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

BATCH = 1000  # resamples held in memory at once


class Interval(NamedTuple):
  """An estimate and the ends of its confidence interval."""

  value: float
  low: float
  high: float


def wilson_interval(successes: int | float, total: int, level: float = 0.95) -> Interval:
  """Wilson's score interval of a share; never of zero width. Source: Wilson 1927, doi:10.2307/2276774."""
  if total < 1 or not 0 <= successes <= total:
    raise ValueError(f"wilson_interval: need 0 <= successes <= total and total >= 1, got {successes} of {total}")
  z = float(stats.norm.ppf(0.5 + level / 2))
  share = successes / total
  centre = (share + z * z / (2 * total)) / (1 + z * z / total)
  half = z / (1 + z * z / total) * np.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
  return Interval(share, float(max(centre - half, 0.0)), float(min(centre + half, 1.0)))


def interval_of_equals(value: float, count: int, level: float, bounds: tuple[float, float]) -> Interval:
  """Interval of a mean of `count` equal values, which resample to themselves: that would be an interval of no width.

  The share of the population that differs is known only to be below h = wilson_interval(0, count).high, and each could
  be as far off as `bounds` allow: [v - h (v - lowest), v + h (highest - v)].
  """
  lowest, highest = bounds
  h = wilson_interval(0, count, level).high
  return Interval(value, value - h * (value - lowest), value + h * (highest - value))


def bootstrap_interval(
  values: Float[np.ndarray, "p"],
  level: float = 0.95,
  seed: int = 0,
  num_resamples: int = 5000,
  bounds: tuple[float, float] = (0.0, 1.0),
) -> Interval:
  """Mean of one value per prompt with its bias-corrected and accelerated bootstrap interval, prompts resampled.

  Equal values get `interval_of_equals`; for all right or all wrong that is Wilson's interval.

  Source: Efron 1987, doi:10.1080/01621459.1987.10478410, as in `scipy.stats.bootstrap`.
  """
  values = np.asarray(values, np.float64)
  lowest, highest = bounds
  if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)):
    raise ValueError(f"bootstrap_interval needs one finite value per prompt, got shape {values.shape}: {values}")
  if values.min() < lowest or values.max() > highest:
    raise ValueError(f"bootstrap_interval: values must lie in {bounds}, got {values.min()} to {values.max()}")
  mean = float(values.mean())
  if np.ptp(values) == 0:
    return interval_of_equals(mean, len(values), level, bounds)
  found = stats.bootstrap(
    (values,), np.mean, n_resamples=num_resamples, batch=BATCH, confidence_level=level, method="BCa", axis=-1,
    random_state=np.random.default_rng(seed),
  ).confidence_interval  # fmt: skip
  return Interval(mean, float(found.low), float(found.high))


def ratio_interval(
  total: Float[np.ndarray, "p"],
  weight: Float[np.ndarray, "p"],
  level: float = 0.95,
  seed: int = 0,
  num_resamples: int = 5000,
  bounds: tuple[float, float] = (0.0, 1.0),
) -> Interval:
  """Mean over rows, sum(total) / sum(weight), with its bootstrap interval over prompts: the rows of one go together.

  Args:
    total:  sum over the rows of each prompt.
    weight: its number of rows; prompts with none are left out.
    bounds: what a row can be. Prompts with equal means get `interval_of_equals`.
  """
  total, weight = np.asarray(total, np.float64), np.asarray(weight, np.float64)
  if total.ndim != 1 or total.shape != weight.shape or not np.isfinite(total + weight).all() or not weight.sum() > 0:
    raise ValueError(f"ratio_interval needs one finite total and weight per prompt, some > 0: got {total}, {weight}")
  total, weight = total[weight > 0], weight[weight > 0]
  lowest, highest = bounds
  means = total / weight
  slack = 1e-9 * max(abs(lowest), abs(highest))  # rows were added up
  if means.min() < lowest - slack or means.max() > highest + slack:
    raise ValueError(f"ratio_interval: means must lie in {bounds}, got {means.min()} to {means.max()}")
  value = float(np.clip(total.sum() / weight.sum(), lowest, highest))
  if np.ptp(means) <= slack:
    return interval_of_equals(value, len(means), level, bounds)
  found = stats.bootstrap(
    (total, weight), lambda a, b, axis: a.sum(axis) / b.sum(axis), paired=True, vectorized=True, axis=-1,
    n_resamples=num_resamples, batch=BATCH, confidence_level=level, method="BCa",
    random_state=np.random.default_rng(seed),
  ).confidence_interval  # fmt: skip
  return Interval(value, float(found.low), float(found.high))


def paired_bootstrap(
  before: Float[np.ndarray, "p"],
  after: Float[np.ndarray, "p"],
  level: float = 0.95,
  seed: int = 0,
  num_resamples: int = 5000,
) -> Interval:
  """Mean of after - before, both in [0, 1] on the same prompts in the same order, with its bootstrap interval."""
  before, after = np.asarray(before, np.float64), np.asarray(after, np.float64)
  if before.shape != after.shape:
    raise ValueError(f"paired_bootstrap: before has shape {before.shape}, after has {after.shape}")
  return bootstrap_interval(after - before, level, seed, num_resamples, bounds=(-1.0, 1.0))


def sign_flip_test(differences: Float[np.ndarray, "p"], seed: int = 0, num_resamples: int = 9999) -> float:
  """Two-sided p-value of a mean difference of 0: the sign of each prompt's difference is a coin flip under the null.

  Exact when all 2^p sign patterns are no more than `num_resamples`, otherwise sampled. Source: Fisher 1935.
  """
  differences = np.asarray(differences, np.float64)
  if len(differences) == 1:
    return 1.0  # both signs are equally extreme
  return float(
    stats.permutation_test(
      (differences,), np.mean, permutation_type="samples", n_resamples=num_resamples, batch=BATCH, vectorized=True,
      random_state=np.random.default_rng(seed),
    ).pvalue
  )  # fmt: skip
