"""When a session stops asking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count, check_number

__all__ = ["StoppingRule"]


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

    def questions_left(self, answers: int, further: NDArray[np.int64], curve: Floats) -> int | None:
        """Number of further answers after which the rule is predicted to say stop; None if beyond the curve.

        Args:
            answers: Number of answers so far.
            further: Numbers of further questions, (m,), ascending from 0.
            curve: Predicted accuracy after them, (m,); linear between them.
        """
        counts = np.arange(int(further[-1]) - self.lookahead + 1)
        now, ahead = (np.interp(counts + more, further, curve) for more in (0, self.lookahead))
        stops = (answers + counts >= self.minimum) & ((now >= self.target) | (ahead - now < self.gain))
        return int(np.argmax(stops)) if stops.any() else None
