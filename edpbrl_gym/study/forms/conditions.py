"""What an answer must be: for a question or a page to be shown, or for a participant to go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["RATHER_NOT", "Answer", "Condition", "Test", "all_hold"]

Answer = Any
"""A text, a number, a list of texts, ``RATHER_NOT``, or None: left empty. What JSON can hold."""
RATHER_NOT = {"rather_not_say": True}
"""The answer of a participant who would rather not say."""


@dataclass(frozen=True)
class Test:
    """What an answer must be; all that is given must hold. An answer that was not given never passes."""

    __test__ = False  # of no test suite

    among: tuple[Any, ...] | None = None  # key "is": one of these texts or numbers; of several choices, any of them
    outside: tuple[Any, ...] | None = None  # key "is_not": none of these
    least: float | None = None  # key "at_least"
    most: float | None = None  # key "at_most"

    def passes(self, answer: Answer) -> bool:
        if answer is None or answer == RATHER_NOT:
            return False
        given = answer if isinstance(answer, list) else [answer]
        return (
            (self.among is None or any(one in self.among for one in given))
            and (self.outside is None or not any(one in self.outside for one in given))
            and (self.least is None or all(one >= self.least for one in given))
            and (self.most is None or all(one <= self.most for one in given))
        )


@dataclass(frozen=True)
class Condition:
    """An earlier answer and what it must be."""

    question: str  # PAGE.QUESTION
    test: Test

    def holds(self, answers: Mapping[str, Answer]) -> bool:
        """Whether it holds after answers, by PAGE.QUESTION; that of a question that was not asked is missing."""
        return self.test.passes(answers.get(self.question))


def all_hold(conditions: tuple[Condition, ...], answers: Mapping[str, Answer]) -> bool:
    """Whether all of them hold; without conditions true."""
    return all(one.holds(answers) for one in conditions)
