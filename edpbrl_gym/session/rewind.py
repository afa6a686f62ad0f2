"""A planner that can go back: by its saved states where it has them, else by living through the session again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.session.questions import Question
from edpbrl_gym.session.transcript import Transcript

__all__ = ["RewindablePlanner"]

_KEPT = 16  # states in memory: going back further replays the session


class RewindablePlanner:
    """Leads a planner along a transcript, forth and back.

    Args:
        planner: A planner, or a function without arguments that makes one.

    Raises:
        TypeError: Neither.
    """

    def __init__(self, planner: Planner | Callable[[], Planner]) -> None:
        self._make = None if isinstance(planner, Planner) else planner
        self.planner = planner if isinstance(planner, Planner) else _made(planner)
        self._beginning = self.planner.state()  # None of a planner that has no states
        self._states: dict[int, dict[str, Any]] = {}  # in which question number ... waits for its answer

    def state(self) -> dict[str, Any] | None:
        """The planner's state, None where it has none."""
        return self.planner.state()

    def teach(self, question: Question, response: Response) -> None:
        """Tell the planner an answer; a skip says nothing about the taste and is not told."""
        if response.kind != "skip":
            self.planner.tell(question.features[None], [response])

    def keep(self, number: int) -> None:
        """Remember the state in which question ``number`` waits for its answer."""
        state = self.state()
        if state is not None:
            self._states[number] = state
            self._states.pop(number - _KEPT, None)

    def check_can_go_back(self) -> None:
        """Raise a TypeError for a planner that can't."""
        if self._beginning is None and self._make is None and not self.planner.can_reset:
            raise TypeError(
                f"Expected a planner that can go back, {self.planner.name} has no reset() (nor state() and "
                "restore()); give the session a function that makes the planner"
            )

    def back_to(self, transcript: Transcript) -> None:
        """Go back to the transcript's last question, which waits for its answer again."""
        number = transcript.answered
        state = self._states.get(number)
        self._states = {key: kept for key, kept in self._states.items() if key <= number}
        if state is not None:
            self.planner.restore(state)
        else:
            self.replay(transcript)

    def replay(
        self,
        transcript: Transcript,
        *,
        state: dict[str, Any] | None = None,
        questions: int = 0,
        answers: int = 0,
        exact: bool = True,
    ) -> None:
        """Lead the planner through a transcript.

        Args:
            transcript: Where to.
            state: Of the planner after the first ``questions`` questions and ``answers`` answers; None begins at the
                beginning.
            questions: See ``state``.
            answers: See ``state``.
            exact: It must ask the questions that it asked.

        Raises:
            ValueError: ``exact``, and it asks other questions than it did.
        """
        if state is not None and self._beginning is not None:
            self.planner.restore(state)
        else:
            questions = answers = 0
            if transcript.questions:
                self._begin_again()
        for number in range(answers, len(transcript.questions)):
            question = transcript.questions[number]
            if number >= questions:
                tokens = np.asarray(self.planner.ask(question.prefixes))
                if exact:
                    _check_same(tokens, question)
            if number >= len(transcript.questions) - _KEPT:
                self.keep(number)
            if number < transcript.answered:
                self.teach(question, transcript.responses[number])

    def _begin_again(self) -> None:
        if self._beginning is not None:
            self.planner.restore(self._beginning)
        elif self._make is not None:
            self.planner = _made(self._make)
        elif self.planner.can_reset:
            self.planner.reset()  # else it was given fresh, to resume a session


def _made(make: Callable[[], Planner]) -> Planner:
    planner: object = make() if callable(make) else make
    if not isinstance(planner, Planner):
        raise TypeError(
            f"Expected a planner (with ask and tell) or a function that makes one, got {type(planner).__name__}; a "
            "planner of one's own inherits from edpbrl_gym.planners.Planner"
        )
    return planner


def _check_same(tokens: NDArray[Any], question: Question) -> None:
    if not np.array_equal(tokens, question.tokens[:, -1]):
        raise ValueError(
            f"Expected the planner to ask question {question.number} again as it did "
            f"({question.tokens[:, -1].tolist()}), it asks {tokens.tolist()}; give a planner with the arguments "
            "(prior, seed, ...) of the one with which the session began, or resume with exact=False"
        )
