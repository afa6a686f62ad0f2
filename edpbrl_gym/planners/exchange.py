"""Coordinate exchange: replace the options of a question one by one with the best token of the whole vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans

__all__ = ["ReplacementScore", "exchange"]


_GAIN = 1e-9  # relative: smaller ones are rounding


class ReplacementScore(Protocol):
    """A score of questions that can try all candidates in the place of one option."""

    def replacements(self, question: NDArray[np.int64], lane: int) -> NDArray[np.float64]:
        """The values of the question with each candidate in place of option ``lane``, (n,)."""


def exchange(
    score: ReplacementScore,
    allowed: Callable[[int, NDArray[np.int64]], Booleans],
    start: NDArray[np.int64],
    *,
    sweeps: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], float]:
    """Improve a question option by option until a sweep gains nothing.

    Args:
        score: Prepared for the candidates of the step.
        allowed: Called with a lane and the candidates of all lanes (K,), returns which candidates the lane may take,
            (n,). The lane's current candidate must be allowed.
        start: First candidates, (K,), allowed.
        sweeps: Sweeps over the lanes at most, >= 1.
        rng: Draws the order of the lanes.

    Returns:
        The candidates, (K,), and the value of the question, never below that of the start.
    """
    question = np.array(start, dtype=np.int64)
    value = -np.inf
    searched: dict[int, tuple[bytes, float]] = {}  # the question that each lane's last search left, and its value
    for _ in range(sweeps):
        before = value
        for lane in rng.permutation(len(question)).tolist():
            left, known = searched.get(lane, (b"", value))
            if left == question.tobytes():  # no other option has changed: the same values again
                value = known
                continue
            values = score.replacements(question, lane)
            values = np.where(allowed(lane, question), values, -np.inf)
            best = int(values.argmax())
            if values[best] > values[question[lane]]:
                question[lane] = best
            value = float(values[question[lane]])
            searched[lane] = question.tobytes(), value
        if value <= before + _GAIN * abs(before):
            break
    return question, value
