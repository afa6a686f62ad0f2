"""When a session stops asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count, check_number

__all__ = ["Left", "StoppingRule"]


class Left(NamedTuple):
    """How many questions are left until a rule says stop."""

    questions: int | None
    """The median; None: more than ``most``."""
    low: int | None
    """One future in ten has fewer."""
    high: int | None
    """One future in ten has more."""
    most: int
    """Largest number that is predicted."""

    @property
    def reach(self) -> tuple[str, str] | None:
        """The range in figures, a "+" behind what is more; None: it is one number."""
        if self.low == self.high:
            return None
        low, high = (f"{self.most}+" if count is None else str(count) for count in (self.low, self.high))
        return low, high

    def after(self, asked: int, *, at_most: int) -> Left:
        """The same after so many more questions, of at most ``at_most`` that can follow."""
        most = max(0, self.most - asked)

        def later(count: int | None) -> int | None:
            if count is None:
                return None if at_most > most else at_most
            return min(at_most, max(0, count - asked))

        return Left(later(self.questions), later(self.low), later(self.high), most)


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """Rule for when to stop asking.

    Attributes:
        target: Predicted accuracy at which to stop, in (0.5, 1].
        gain: Stop if the next ``lookahead`` questions are predicted to raise the accuracy by less than this, >= 0.
        lookahead: Number of questions for the gain, >= 1.
        minimum: Minimum number of answers: with fewer, the prior's scale is too uncertain.

    Raises:
        ValueError: A value is out of its range.
    """

    target: float = 0.9
    gain: float = 0.01
    lookahead: int = 30
    minimum: int = 24

    def __post_init__(self) -> None:
        if not 0.5 < check_number(self.target, "target") <= 1.0:
            raise ValueError(f"Expected target in (0.5, 1], got {self.target}; guessing reaches 0.5")
        check_number(self.gain, "gain", minimum=0.0)
        check_count(self.lookahead, "lookahead")
        check_count(self.minimum, "minimum", minimum=0)

    def decide(self, answers: int, accuracy: float, ahead: float) -> tuple[bool, str]:
        """Decide whether to stop, and give the reason.

        Args:
            answers: Number of answers so far.
            accuracy: Predicted accuracy now.
            ahead: Predicted accuracy after ``lookahead`` more questions.
        """
        gain = ahead - accuracy
        if answers < self.minimum:
            return False, f"{answers} of at least {self.minimum} answers"
        if accuracy >= self.target:
            return True, f"predicted accuracy {accuracy:.1%} has reached the target {self.target:.1%}"
        if gain < self.gain:
            return True, f"{self.lookahead} more questions would gain {gain:.1%}, less than {self.gain:.1%}"
        return False, f"predicted accuracy {accuracy:.1%}; {self.lookahead} more questions would gain {gain:.1%}"

    def left(self, answers: int, further: NDArray[np.int64], curve: Floats, paths: Floats) -> Left:
        """How many further answers it takes until the rule says stop, along each of some possible futures.

        Args:
            answers: Number of answers so far.
            further: Numbers of further questions, (m,), ascending from 0 to more than ``lookahead``.
            curve: Predicted accuracy after them, (m,); linear between them.
            paths: Accuracies along the futures, (s, m). The gain that is predicted in a future is the regression of the
                accuracy ``lookahead`` questions later on the present one, over all futures.
        """
        counts = np.arange(int(further[-1]) - self.lookahead + 1)
        now, ahead = (
            np.stack([np.interp(counts + more, further, path) for path in paths]) for more in (0, self.lookahead)
        )
        centred = now - now.mean(axis=0)
        slopes = (centred * ahead).sum(axis=0) / np.maximum((centred * centred).sum(axis=0), 1e-12)
        mean_now, mean_ahead = (np.interp(counts + more, further, curve) for more in (0, self.lookahead))
        gains = mean_ahead - mean_now + (slopes - 1.0) * centred
        stops = (answers + counts >= self.minimum) & ((now >= self.target) | (gains < self.gain))
        first = np.where(stops.any(axis=1), stops.argmax(axis=1), len(counts))
        low, middle, high = np.quantile(first, (0.1, 0.5, 0.9), method="nearest").tolist()
        most = len(counts) - 1
        found = [None if count > most else int(count) for count in (middle, low, high)]
        return Left(found[0], found[1], found[2], most)
