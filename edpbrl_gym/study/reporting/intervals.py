"""Values with 95% intervals, over participants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from edpbrl_gym._arrays import Floats
from edpbrl_gym.reporting.statistics import interval

__all__ = ["Measured", "difference_of_means", "mean_of", "share_of", "wilson"]

_RESAMPLES = 2000


@dataclass(frozen=True)
class Measured:
    """A value with its 95% interval.

    Attributes:
        value: The value; NaN without participants.
        low: Lower end; NaN for fewer than two participants.
        high: Upper end.
        people: Number of participants behind it.
    """

    value: float
    low: float
    high: float
    people: int


_NOTHING = Measured(math.nan, math.nan, math.nan, 0)


def wilson(successes: int, total: int) -> tuple[float, float]:
    """Wilson's score interval of a share (1927), 95%; NaN for a total of 0."""
    if total == 0:
        return math.nan, math.nan
    z = float(ndtri(0.975))
    share, weight = successes / total, z**2 / total
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / total + weight / (4 * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def share_of(successes: Sequence[int], totals: Sequence[int]) -> Measured:
    """The share of all successes in all trials, with a bootstrap interval over participants.

    Where all participants succeeded always, or never, a bootstrap says nothing: the interval is then Wilson's, as if
    each participant had tried once, since the trials of one resemble each other.

    Args:
        successes: Of each participant.
        totals: Trials of each participant; those without any are left out.
    """
    rows = np.array([pair for pair in zip(successes, totals, strict=True) if pair[1]], dtype=np.float64)
    if not len(rows):
        return _NOTHING
    share = float(rows[:, 0].sum() / rows[:, 1].sum())
    if share in (0.0, 1.0):
        low, high = wilson(round(share * len(rows)), len(rows))
    else:
        low, high = interval(rows, lambda means: means[..., 0] / means[..., 1])
    return Measured(share, low, high, len(rows))


def mean_of(values: Sequence[float]) -> Measured:
    """The mean over participants with its bootstrap interval."""
    if not len(values):
        return _NOTHING
    return Measured(float(np.mean(values)), *interval(values), len(values))


def difference_of_means(first: Sequence[float], second: Sequence[float]) -> Measured:
    """Mean of the first minus mean of the second group of participants, both resampled on their own."""
    if not len(first) or not len(second):
        return _NOTHING
    value, people = float(np.mean(first) - np.mean(second)), len(first) + len(second)
    if len(first) < 2 or len(second) < 2:
        return Measured(value, math.nan, math.nan, people)
    rng = np.random.default_rng(0)
    low, high = np.quantile(_resampled(first, rng) - _resampled(second, rng), (0.025, 0.975))
    return Measured(value, float(low), float(high), people)


def _resampled(values: Sequence[float], rng: np.random.Generator) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.asarray(array[rng.integers(len(array), size=(_RESAMPLES, len(array)))].mean(axis=1))
