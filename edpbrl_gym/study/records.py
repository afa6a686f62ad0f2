"""What the store gives back: participants, questions as they were shown, answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from edpbrl_gym.likelihood import Response

__all__ = [
    "AnswerTimeoutError",
    "History",
    "HistoryChangedError",
    "LoopError",
    "NotAskingError",
    "NotReadyError",
    "Participant",
    "Post",
    "QuestionKind",
    "Receipt",
    "Record",
    "Status",
    "StoredAnswer",
    "StoredQuestion",
    "Timing",
    "UnknownParticipantError",
    "UnknownQuestionError",
]

QuestionKind = Literal["practice", "normal", "attention", "repeat", "test"]
Status = Literal["enrolled", "consented", "asking", "finished", "failed", "withdrawn", "timed_out"]


class UnknownParticipantError(LookupError):
    """There is no such participant, or the token was not signed by this study."""


class UnknownQuestionError(LookupError):
    """The participant was never asked this question, or its answer can't be taken back (any more)."""


class HistoryChangedError(RuntimeError):
    """Another tab or server went on in the meantime: the history is not what it was, or the question was taken back."""


class NotAskingError(RuntimeError):
    """The participant is asked no questions: no consent yet, or the participation has ended."""


class NotReadyError(RuntimeError):
    """A question or a learnt taste that is not there yet; try again in a second.

    It is posted by an oracle or being made, or the worker processes that were to make it died.
    """


class LoopError(RuntimeError):
    """The loop of a ``HumanOracle`` can't go on as it is: the message says why, and what to do."""


class AnswerTimeoutError(TimeoutError):
    """Nobody answered an oracle's question in time. The answers so far are stored.

    Attributes:
        oracle: Name of the oracle.
        answered: Number of its questions with an answer.
    """

    def __init__(self, message: str, *, oracle: str, answered: int) -> None:
        super().__init__(message)
        self.oracle = oracle
        self.answered = answered


@dataclass(frozen=True)
class Participant:
    """A participant."""

    id: int  # row in the database
    number: int  # number in the order of arrival, from 0; never given again
    code: str  # random public name
    external: dict[str, str]  # identifiers with which the participant arrived, by name
    arm: str  # name of the arm
    language: str  # code of the language
    consent_version: str | None  # version of the consent text that was agreed to; None: no consent yet
    consented_at: str | None  # when, ISO 8601 in UTC
    # "enrolled", "consented", "asking", "finished", "failed" (a check), "withdrawn" or "timed_out"
    status: Status
    created_at: str  # time of arrival
    place: int | None  # of the balanced assignment, from 0; None: given back
    pilot: bool  # whether the study was being tried out


@dataclass(frozen=True)
class Timing:
    """What the browser measured while a question was answered; None where it could not.

    Raises:
        ValueError: A value is negative, or beyond a day or a million pixels.
    """

    first_input_ms: int | None = None  # milliseconds from the question's appearance to the first input
    answer_ms: int | None = None  # milliseconds to the answer
    visibility_changes: int | None = None  # how often the page was hidden or shown again
    viewport: tuple[int, int] | None = None  # width and height of the page

    def __post_init__(self) -> None:
        values = [self.first_input_ms, self.answer_ms, self.visibility_changes, *(self.viewport or ())]
        for value in values:
            if value is not None and not 0 <= value <= _DAY:
                raise ValueError(f"Expected times, counts and sizes in 0..{_DAY} (a day in ms), got {value}")


_DAY = 86_400_000


@dataclass(frozen=True)
class StoredQuestion:
    """A question as it was shown."""

    id: int  # row in the database
    number: int  # place in the participant's sequence, from 0; a question taken back leaves its place to its copy
    kind: QuestionKind  # "practice", "normal", "attention", "repeat" or "test"
    tokens: list[list[int]]  # token indices of each option, K lists
    texts: list[str]  # K texts
    positions: list[int]  # the option at each position of the page, K numbers
    key: str  # random idempotency key of its answer
    expected: int | None  # option that an attention check asks for; None for others
    repeat_of: int | None  # row of the question that is asked again; None for others
    created_at: str  # when it was chosen, ISO 8601 in UTC
    shown_at: str | None  # when it was first shown, ISO 8601 in UTC; None: not yet
    struck: bool  # whether it was taken back


@dataclass(frozen=True)
class StoredAnswer:
    """An answer: its options are those of ``StoredQuestion.texts``, whatever their positions were."""

    id: int  # row in the database
    question: int  # row of its question
    response: Response
    answered_at: str  # when it was stored, ISO 8601 in UTC
    timing: Timing  # what the browser measured
    config: str  # fingerprint of the configuration at that time
    code_version: str  # version of this package at that time


History = list[tuple[StoredQuestion, StoredAnswer | None]]
"""Questions with their answers; None: not answered."""


@dataclass(frozen=True)
class Receipt:
    """What became of an answer: the one that counts, and whether it is this one or an earlier one with its key."""

    answer: StoredAnswer
    first: bool


@dataclass(frozen=True)
class Post:
    """A question of an oracle."""

    number: int  # its number among the questions that count, from 0
    texts: list[str]  # K texts
    episode: int  # episode of the environment
    step: int  # step of the episode


@dataclass(frozen=True)
class Record:
    """Everything that is stored about a participant."""

    participant: Participant
    history: History  # all questions ever asked with their answers, in the order of asking
    events: list[dict[str, Any]]  # events in order: kind, at, detail
    posts: tuple[Post, ...] = ()  # questions that an oracle posted, in order; none in other arms

    @property
    def live(self) -> History:
        """The questions in order, without those taken back."""
        return sorted([pair for pair in self.history if not pair[0].struck], key=lambda pair: pair[0].number)
