"""How much people agree: Krippendorff's alpha for nominal values, with an interval over people."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym.study.reporting.intervals import Measured

__all__ = ["agreement", "krippendorff_alpha"]

_RESAMPLES = 1000


def krippendorff_alpha(values: Sequence[Sequence[Hashable | None]]) -> float:
    """Krippendorff's alpha for nominal values: 1 - observed / expected disagreement.

    1 is full agreement, 0 that of values drawn from all values together. Pairs of values of two people about one
    question are compared; a question weighs as much as it has values, and one with a single value is left out.

    Args:
        values: For each person the value for each question, or None, (people, questions).

    Returns:
        Alpha; NaN without two values of one question, and where all values are the same.
    """
    marks, weights = _marks(values), np.ones((1, len(values)))
    return float(_alphas(marks, weights)[0])


def agreement(values: Sequence[Sequence[Hashable | None]]) -> Measured:
    """Krippendorff's alpha with a 95% percentile bootstrap interval over people; see ``krippendorff_alpha``.

    A sample draws as many people as there are, with replacement. Two copies of one person agree by construction, so
    pairs of them are left out of the observed and of the expected disagreement; otherwise alpha would be too high.
    """
    marks, people = _marks(values), len(values)
    if people == 0:
        return Measured(math.nan, math.nan, math.nan, 0)
    value = float(_alphas(marks, np.ones((1, people)))[0])
    weights = np.random.default_rng(0).multinomial(people, np.full(people, 1.0 / people), size=_RESAMPLES)
    found = _alphas(marks, weights.astype(np.float64))
    found = found[np.isfinite(found)]
    if math.isnan(value) or people < 2 or not len(found):
        return Measured(value, math.nan, math.nan, people)
    low, high = np.quantile(found, (0.025, 0.975))
    return Measured(value, float(low), float(high), people)


def _marks(values: Sequence[Sequence[Hashable | None]]) -> NDArray[np.float64]:
    """1 where a person gave a value to a question, (people, questions, values)."""
    known = list(dict.fromkeys(value for row in values for value in row if value is not None))
    marks = np.zeros((len(values), len(values[0]) if values else 0, len(known)))
    for person, row in enumerate(values):
        for question, value in enumerate(row):
            if value is not None:
                marks[person, question, known.index(value)] = 1.0
    return marks


def _alphas(marks: NDArray[np.float64], weights: ArrayLike) -> Floats:
    """Alpha of each sample of people, who occur as often as the weights (samples, people) say; NaN where undefined."""
    times = np.asarray(weights)
    totals = np.tensordot(times, marks, axes=1)  # of each value, (samples, questions, values)
    given = totals.sum(axis=2)
    # pairs of values of two different people: all pairs without those of a person and its copies
    pairs = given**2 - np.tensordot(times**2, marks.sum(axis=2), axes=1)
    usable = pairs > 0
    unequal = given**2 - (totals**2).sum(axis=2)
    observed = np.where(usable, given * unequal / np.where(usable, pairs, 1.0), 0.0).sum(axis=1)
    whole = (totals * usable[:, :, None]).sum(axis=1)
    size = whole.sum(axis=1)
    copies = (usable * np.tensordot(times**2, marks.sum(axis=2), axes=1)).sum(axis=1)
    possible = size**2 - copies
    expected = size**2 - (whole**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected > 0, 1.0 - (observed / size) / (expected / possible), math.nan)
