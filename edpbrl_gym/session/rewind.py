"""A planner that can go back, by its saved states or by replaying the session."""

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

_MAX_STATES = 16  # in memory; to go back further the session is replayed


class RewindablePlanner:
    """Moves a planner forwards and backwards along a transcript.

    Args:
        planner: A planner, or a function without arguments that creates one.

    Raises:
        TypeError: It is neither.
    """

    def __init__(self, planner: Planner | Callable[[], Planner]) -> None:
        self._make = None if isinstance(planner, Planner) else planner
        self.planner = planner if isinstance(planner, Planner) else _create(planner)
        self._initial_state = self.planner.state()  # None if the planner has no states
        self._states: dict[int, dict[str, Any]] = {}  # by the number of the pending question

    def state(self) -> dict[str, Any] | None:
        """The planner's state, or None if it has none."""
        return self.planner.state()

    def teach(self, question: Question, response: Response) -> None:
        """Tell the planner an answer; a skip only if it says something about the taste by the planner's model."""
        if response.kind != "skip" or "skip" in self.planner.model.kinds:
            self.planner.tell(question.features[None], [response])

    def keep(self, number: int) -> None:
        """Save the state in which question ``number`` is pending."""
        state = self.state()
        if state is not None:
            self._states[number] = state
            self._states.pop(number - _MAX_STATES, None)

    def check_can_go_back(self) -> None:
        """Raise a TypeError if the planner can't go back."""
        if self._initial_state is None and self._make is None and not self.planner.can_reset:
            raise TypeError(
                f"Expected a planner that can go back, {self.planner.name} has no reset() (nor state() and "
                "restore()); give the session a function that makes the planner"
            )

    def back_to(self, transcript: Transcript) -> None:
        """Go back to the transcript's last question, which is pending again."""
        number = transcript.answered
        state = self._states.get(number)
        self._states = {key: saved_state for key, saved_state in self._states.items() if key <= number}
        if state is not None:
            self.planner.restore(state)
        else:
            self.replay(transcript, exact=False)

    def replay(
        self,
        transcript: Transcript,
        *,
        state: dict[str, Any] | None = None,
        questions: int = 0,
        answers: int = 0,
        exact: bool = True,
    ) -> None:
        """Replay a transcript with the planner.

        Args:
            transcript: The transcript.
            state: State of the planner after the first ``questions`` questions and ``answers`` answers; None starts
                from the beginning.
            questions: See ``state``.
            answers: See ``state``.
            exact: Require the planner to ask the questions of the transcript; False lets it follow them, which for
                most planners is much faster.

        Raises:
            ValueError: With ``exact``, the planner asks other questions.
        """
        if state is not None and self._initial_state is not None:
            self.planner.restore(state)
        else:
            questions = answers = 0
            if transcript.questions:
                self._restart()
        for number in range(answers, len(transcript.questions)):
            question = transcript.questions[number]
            if number >= questions:
                for step in range(question.prefixes.shape[1], question.step + 1):
                    if exact:
                        _check_same(np.asarray(self.planner.ask(question.tokens[:, :step])), question, step)
                    else:
                        self.planner.follow(question.tokens[:, :step], question.tokens[:, step])
            if number >= len(transcript.questions) - _MAX_STATES:
                self.keep(number)
            if number < transcript.answered:
                self.teach(question, transcript.responses[number])

    def _restart(self) -> None:
        if self._initial_state is not None:
            self.planner.restore(self._initial_state)
        elif self._make is not None:
            self.planner = _create(self._make)
        elif self.planner.can_reset:
            self.planner.reset()  # otherwise it is a new planner, to resume a session


def _create(make: Callable[[], Planner]) -> Planner:
    planner: object = make() if callable(make) else make
    if not isinstance(planner, Planner):
        raise TypeError(
            f"Expected a planner (with ask and tell) or a function that makes one, got {type(planner).__name__}; a "
            "planner of your own inherits from edpbrl_gym.planners.Planner"
        )
    return planner


def _check_same(tokens: NDArray[Any], question: Question, step: int) -> None:
    if not np.array_equal(tokens, question.tokens[:, step]):
        raise ValueError(
            f"Expected the planner to ask question {question.number} again as it did "
            f"({question.tokens[:, step].tolist()}), it asks {tokens.tolist()}; give a planner with the arguments "
            "(prior, seed, ...) of the one with which the session began, or resume with exact=False"
        )
