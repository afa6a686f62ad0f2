"""The questions and answers of a session as events that can be saved, and a planner moved along them, also back."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.session.questions import Question, QuestionMaker

__all__ = ["Event", "RewindablePlanner", "Transcript"]

_MAX_STATES = 16  # of a planner in memory; to go back further the session is replayed

Event = dict[str, Any]


class Transcript:
    """The questions of a session and their answers, independent of planners and files.

    A change has two steps: an ``..._event`` method describes it, and ``apply`` applies the event, whether it is new or
    comes from a journal.

    Args:
        maker: Maker of the questions.
        num_options: Number of options K.

    Attributes:
        questions: All questions, the pending one last, without those taken back.
        responses: Their answers, including skips.
        times: Times of the answers, ISO 8601 in UTC.
    """

    def __init__(self, maker: QuestionMaker, num_options: int) -> None:
        self.maker = maker
        self.num_options = num_options
        self.questions: list[Question] = []
        self.responses: list[Response] = []
        self.times: list[str] = []

    @property
    def answered(self) -> int:
        """Number of questions answered or skipped."""
        return len(self.responses)

    @property
    def pending(self) -> Question | None:
        """The question without an answer yet, or None."""
        return self.questions[-1] if len(self.questions) > len(self.responses) else None

    def next_prefixes(self) -> tuple[NDArray[np.int64], int]:
        """Prompts (K, h) that the next question extends, and its episode."""
        if not self.questions:
            return np.empty((self.num_options, 0), dtype=np.int64), 0
        last_question = self.questions[-1]
        if last_question.step + 1 == self.maker.vocabulary.horizon:
            return np.empty((self.num_options, 0), dtype=np.int64), last_question.episode + 1
        return last_question.tokens, last_question.episode

    @staticmethod
    def ask_event(question: Question) -> Event:
        """Event of asking a question; its new tokens (K,), or (K, H) of complete prompts."""
        rows = np.ascontiguousarray(question.features, dtype="<f4").tobytes()
        return {
            "type": "ask",
            "number": question.number,
            "tokens": (question.tokens[:, -1] if question.num_new == 1 else question.tokens).tolist(),
            "features": base64.b64encode(rows).decode("ascii"),
        }

    def tell_event(self, response: Response, time: str) -> Event:
        """Event of answering the pending question."""
        return {"type": "tell", "number": self.answered, "response": response.as_json(), "at": time}

    def undo_event(self) -> Event:
        """Event of taking back the last answer."""
        return {"type": "undo", "number": self.answered - 1}

    def apply(self, event: Event) -> None:
        """Apply an event.

        Raises:
            TypeError: A value has the wrong type.
            ValueError: The event lacks a field of its type, or can't follow those before it.
        """
        kind, number = _value(event, "type"), _value(event, "number")
        if kind == "ask" and self.pending is None and number == self.answered:
            self.questions.append(self._question(event))
        elif kind == "tell" and self.pending is not None and number == self.answered:
            response, time = Response.from_json(_value(event, "response")), _time(_value(event, "at"))
            self.responses.append(response)
            self.times.append(time)
        elif kind == "undo" and self.responses and number == self.answered - 1:
            del self.responses[number:], self.times[number:], self.questions[number + 1 :]
        else:
            raise ValueError(f"{kind!r} of question {number!r} does not follow from what came before it")

    def read(self, events: list[Event], position: int | None, *, name: str) -> tuple[int, int] | None:
        """Apply the events of a journal.

        Args:
            events: The events in order.
            position: Number of events after which to count, or None.
            name: Name of the journal, for messages.

        Returns:
            Numbers of questions and answers after ``position`` events; None without a position, and if one of those
            answers was taken back later.

        Raises:
            ValueError: The events do not form a session.
        """
        counts: tuple[int, int] | None = None
        for index in range(len(events) + 1):
            if index == position:
                counts = len(self.questions), self.answered
            if index == len(events):
                break
            try:
                self.apply(events[index])
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"Expected the events of a session in {name}, line {index + 1} is none that can come there: "
                    f"{error}; restore the file from a backup"
                ) from None
            if counts is not None and self.answered < counts[1]:
                counts = None
        return counts

    def _question(self, event: Event) -> Question:
        tokens, episode = self.next_prefixes()
        new_tokens = np.asarray(_value(event, "tokens"))
        if self.maker.num_new == 1:
            new_tokens = new_tokens[..., None]
        for column in check_integers(new_tokens, "tokens", shape=(self.num_options, self.maker.num_new), low=0).T:
            tokens = self.maker.extended(tokens, column)
        shape = (self.num_options, self.maker.encoder.dimension)
        raw = np.frombuffer(base64.b64decode(_value(event, "features"), validate=True), dtype="<f4").reshape(shape)
        features = check_array(raw.astype(np.float32), "features", shape=shape, dtype=np.float32)
        return self.maker.restored(tokens, features, number=event["number"], episode=episode)

    def comparisons(self, *, who: str, metadata: dict[str, Any]) -> Comparisons:
        """All answered and skipped questions."""
        questions = self.questions[: self.answered]
        if not questions:
            return Comparisons.empty(self.num_options, self.maker.encoder.dimension, who=who, metadata=metadata)
        return Comparisons(
            features=[question.features for question in questions],  # type: ignore[arg-type]
            responses=tuple(self.responses),
            episode=np.array([question.episode for question in questions]),
            step=np.array([question.step for question in questions]),
            texts=[list(question.texts) for question in questions],
            who=who,
            answered_at=np.array([np.datetime64(time.removesuffix("+00:00"), "us") for time in self.times]),
            metadata=metadata,
        )


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

    def teach(self, question: Question, response: Response) -> None:
        """Tell the planner an answer that is no skip, which says nothing about the taste."""
        if response.kind != "skip":
            self.planner.tell(question.features[None], [response])

    def keep(self, number: int) -> None:
        """Save the state in which question ``number`` is pending."""
        state = self.planner.state()
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
        state: dict[str, Any] | None = None,
        counts: tuple[int, int] = (0, 0),
        *,
        exact: bool = True,
    ) -> None:
        """Replay a transcript with the planner.

        Args:
            transcript: The transcript.
            state: State of the planner; None starts from the beginning.
            counts: Numbers of questions and answers after which it was in that state.
            exact: Require the planner to ask the questions of the transcript; False lets it follow them, which for
                most planners is much faster.

        Raises:
            ValueError: With ``exact``, the planner asks other questions.
        """
        questions, answers = counts
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


def _value(event: Event, key: str) -> Any:
    """A field of an event."""
    if key not in event:
        raise ValueError(f"it has no {key!r}")
    return event[key]


def _time(text: Any) -> str:
    """A checked time in ISO 8601."""
    try:
        datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"its time is no text in ISO 8601: {text!r}") from None
    return str(text)
