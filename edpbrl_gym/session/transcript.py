"""What has been asked and answered in a session, as a sequence of events that can be written down and read again."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.likelihood import Response
from edpbrl_gym.session.questions import Question, QuestionMaker

__all__ = ["Event", "Transcript"]

Event = dict[str, Any]


class Transcript:
    """The questions of a session and their answers; knows nothing of planners and files.

    A change is made in two steps: an ``..._event`` method describes it, and ``apply`` does what an event says, whether
    it has just been made or comes from a journal.

    Args:
        maker: Shows questions as they were.
        num_options: K.

    Attributes:
        questions: All questions that count, the pending one last.
        responses: Their answers, skips included.
        times: When each was given, ISO 8601 in UTC.
    """

    def __init__(self, maker: QuestionMaker, num_options: int) -> None:
        self.maker = maker
        self.num_options = num_options
        self.questions: list[Question] = []
        self.responses: list[Response] = []
        self.times: list[str] = []

    @property
    def answered(self) -> int:
        """Number of questions that were answered or skipped."""
        return len(self.responses)

    @property
    def pending(self) -> Question | None:
        """The question that waits for an answer."""
        return self.questions[-1] if len(self.questions) > len(self.responses) else None

    def next_prefixes(self) -> tuple[NDArray[np.int64], int]:
        """Prompts (K, h) that the next question extends, and its episode."""
        if not self.questions:
            return np.empty((self.num_options, 0), dtype=np.int64), 0
        last = self.questions[-1]
        if last.step + 1 == self.maker.vocabulary.horizon:
            return np.empty((self.num_options, 0), dtype=np.int64), last.episode + 1
        return last.tokens, last.episode

    @staticmethod
    def ask_event(question: Question) -> Event:
        """That this question was asked."""
        rows = np.ascontiguousarray(question.features, dtype="<f4").tobytes()
        return {
            "type": "ask",
            "number": question.number,
            "tokens": question.tokens[:, -1].tolist(),
            "features": base64.b64encode(rows).decode("ascii"),
        }

    def tell_event(self, response: Response, time: str) -> Event:
        """That the pending question was answered."""
        return {"type": "tell", "number": self.answered, "response": response.as_json(), "at": time}

    def undo_event(self) -> Event:
        """That the last answer was taken back."""
        return {"type": "undo", "number": self.answered - 1}

    def apply(self, event: Event) -> None:
        """Do what an event says.

        Raises:
            TypeError: A value of a wrong kind.
            ValueError: An event without what belongs to its type, or that does not follow from those before it.
        """
        kind, number = _part(event, "type"), _part(event, "number")
        if kind == "ask" and self.pending is None and number == self.answered:
            self.questions.append(self._question(event))
        elif kind == "tell" and self.pending is not None and number == self.answered:
            response, time = Response.from_json(_part(event, "response")), _time(_part(event, "at"))
            self.responses.append(response)
            self.times.append(time)
        elif kind == "undo" and self.responses and number == self.answered - 1:
            del self.responses[number:], self.times[number:], self.questions[number + 1 :]
        else:
            raise ValueError(f"{kind!r} of question {number!r} does not follow from what came before it")

    def read(self, events: list[Event], mark: int | None, *, name: str) -> tuple[int, int] | None:
        """Do what the events of a journal say.

        Args:
            events: In their order.
            mark: A number of events.
            name: Of the journal, for messages.

        Returns:
            Questions and answers that there were after ``mark`` events; None without a mark, and where one of those
            answers was taken back later.

        Raises:
            ValueError: Events that make no session.
        """
        seen: tuple[int, int] | None = None
        for place in range(len(events) + 1):
            if place == mark:
                seen = len(self.questions), self.answered
            if place == len(events):
                break
            try:
                self.apply(events[place])
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"Expected the events of a session in {name}, line {place + 1} is none that can come there: "
                    f"{error}; restore the file from a backup"
                ) from None
            if seen is not None and self.answered < seen[1]:
                seen = None
        return seen

    def _question(self, event: Event) -> Question:
        prefixes, episode = self.next_prefixes()
        step = prefixes.shape[1]
        high = self.maker.vocabulary.sizes[step] - 1
        new = check_integers(_part(event, "tokens"), "tokens", shape=(self.num_options,), low=0, high=high)
        tokens = np.concatenate([prefixes, new[:, None]], axis=1)
        shape = (self.num_options, self.maker.encoder.dimension)
        raw = np.frombuffer(base64.b64decode(_part(event, "features"), validate=True), dtype="<f4").reshape(shape)
        features = check_array(raw.astype(np.float32), "features", shape=shape, dtype=np.float32)
        for array in (tokens, features):
            array.flags.writeable = False
        return Question(event["number"], episode, step, tokens, self.maker.texts(tokens), features)

    def comparisons(self, *, who: str, metadata: dict[str, Any]) -> Comparisons:
        """All answered and skipped questions."""
        asked = self.questions[: self.answered]
        if not asked:
            return Comparisons.empty(self.num_options, self.maker.encoder.dimension, who=who, metadata=metadata)
        return Comparisons(
            features=np.stack([question.features for question in asked]),
            responses=tuple(self.responses),
            episode=np.array([question.episode for question in asked]),
            step=np.array([question.step for question in asked]),
            texts=[list(question.texts) for question in asked],
            who=who,
            answered_at=np.array([np.datetime64(time.removesuffix("+00:00"), "us") for time in self.times]),
            metadata=metadata,
        )


def _part(event: Event, name: str) -> Any:
    """What belongs to an event."""
    if name not in event:
        raise ValueError(f"it has no {name!r}")
    return event[name]


def _time(text: Any) -> str:
    """A time as ``tell_event`` was given it."""
    try:
        datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"its time is no text in ISO 8601: {text!r}") from None
    return str(text)
