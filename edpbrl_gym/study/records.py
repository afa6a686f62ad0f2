"""What the store gives back: participants, questions as they were shown, answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from edpbrl_gym.likelihood import Response

__all__ = [
    "AnswerReadError",
    "AnswerTimeoutError",
    "ChangedQuestionError",
    "History",
    "HistoryChangedError",
    "LoopFinishedError",
    "NotAskingError",
    "NotReadyError",
    "Participant",
    "ParticipantLeftError",
    "ParticipantTakenError",
    "Post",
    "QuestionLimitError",
    "QuestionKind",
    "Receipt",
    "Record",
    "Status",
    "StoredAnswer",
    "StoredQuestion",
    "StruckQuestionError",
    "Timing",
    "UnknownParticipantError",
    "UnknownQuestionError",
]

QuestionKind = Literal["practice", "normal", "attention", "repeat", "test"]
Status = Literal["enrolled", "consented", "asking", "finished", "failed", "withdrawn"]


class UnknownParticipantError(LookupError):
    """There is no such participant, or the token was not signed by this study."""


class UnknownQuestionError(LookupError):
    """The participant was never asked this question."""


class HistoryChangedError(RuntimeError):
    """Another tab or server went on in the meantime: the participant's history is not what it was."""


class StruckQuestionError(RuntimeError):
    """The question was taken back before it was answered: another one waits for an answer."""


class NotAskingError(RuntimeError):
    """The participant is asked no questions: no consent yet, or the participation has ended."""


class AnswerReadError(NotAskingError):
    """The answer can't be taken back: the environment's loop has gone on with it."""


class NotReadyError(RuntimeError):
    """The next question comes from an oracle, which has not posted it yet; try again in a second."""


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


class ChangedQuestionError(RuntimeError):
    """The oracle is asked another question than the one stored with its number: the loop was not repeated exactly."""


class QuestionLimitError(RuntimeError):
    """The oracle is asked more questions than the study's participants answer."""


class ParticipantTakenError(RuntimeError):
    """The participant is asked by another oracle, or the oracle asks another participant."""


class ParticipantLeftError(RuntimeError):
    """The oracle's participant answers no more questions: withdrawn, failed the comprehension check, or deleted."""


class LoopFinishedError(RuntimeError):
    """The oracle was told that its loop is finished, and is asked a further question."""


@dataclass(frozen=True)
class Participant:
    """A participant.

    Attributes:
        id: Row in the database.
        number: Number in the order of arrival, from 0; never given again.
        code: Random public name.
        external: Identifiers with which the participant arrived, by name.
        arm: Name of the arm.
        language: Code of the language.
        consent_version: Version of the consent text that was agreed to; None: no consent yet.
        consented_at: When, ISO 8601 in UTC.
        status: "enrolled", "consented", "asking", "finished", "failed" (the comprehension check) or "withdrawn".
        created_at: Time of arrival.
    """

    id: int
    number: int
    code: str
    external: dict[str, str]
    arm: str
    language: str
    consent_version: str | None
    consented_at: str | None
    status: Status
    created_at: str


@dataclass(frozen=True)
class Timing:
    """What the browser measured while a question was answered; None where it could not.

    Attributes:
        first_input_ms: Milliseconds from the question's appearance to the first input.
        answer_ms: Milliseconds to the answer.
        visibility_changes: How often the page was hidden or shown again.
        viewport: Width and height of the page.

    Raises:
        ValueError: A value is negative, or beyond a day or a million pixels.
    """

    first_input_ms: int | None = None
    answer_ms: int | None = None
    visibility_changes: int | None = None
    viewport: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        values = [self.first_input_ms, self.answer_ms, self.visibility_changes, *(self.viewport or ())]
        for value in values:
            if value is not None and not 0 <= value <= _DAY:
                raise ValueError(f"Expected times, counts and sizes in 0..{_DAY} (a day in ms), got {value}")


_DAY = 86_400_000


@dataclass(frozen=True)
class StoredQuestion:
    """A question as it was shown.

    Attributes:
        id: Row in the database.
        number: Place in the participant's sequence, from 0; a question taken back leaves its place to its copy.
        kind: "practice", "normal", "attention", "repeat" or "test".
        tokens: Token indices of each option, K lists.
        texts: K texts.
        positions: The option at each position of the page, K numbers.
        key: Random idempotency key of its answer.
        expected: Option that an attention check asks for; None for others.
        repeat_of: Row of the question that is asked again; None for others.
        created_at: When it was chosen, ISO 8601 in UTC.
        shown_at: When it was first shown, ISO 8601 in UTC; None: not yet.
        struck: Whether it was taken back.
    """

    id: int
    number: int
    kind: QuestionKind
    tokens: list[list[int]]
    texts: list[str]
    positions: list[int]
    key: str
    expected: int | None
    repeat_of: int | None
    created_at: str
    shown_at: str | None
    struck: bool


@dataclass(frozen=True)
class StoredAnswer:
    """An answer: its options are those of ``StoredQuestion.texts``, whatever their positions were.

    Attributes:
        id: Row in the database.
        question: Row of its question.
        response: The answer.
        answered_at: When it was stored, ISO 8601 in UTC.
        timing: What the browser measured.
        config: Fingerprint of the configuration at that time.
        code_version: Version of this package at that time.
    """

    id: int
    question: int
    response: Response
    answered_at: str
    timing: Timing
    config: str
    code_version: str


History = list[tuple[StoredQuestion, StoredAnswer | None]]
"""Questions with their answers; None: not answered."""


@dataclass(frozen=True)
class Receipt:
    """What became of an answer: the one that counts, and whether it is this one or an earlier one with its key."""

    answer: StoredAnswer
    first: bool


@dataclass(frozen=True)
class Post:
    """A question of an oracle.

    Attributes:
        number: Its number among the questions that count, from 0.
        texts: K texts.
        episode: Episode of the environment.
        step: Step of the episode.
    """

    number: int
    texts: list[str]
    episode: int
    step: int


@dataclass(frozen=True)
class Record:
    """Everything that is stored about a participant.

    Attributes:
        participant: The participant.
        history: All questions ever asked with their answers, in the order of asking.
        events: Events in order: kind, at, detail.
        posts: Questions that an oracle posted, in order; none in other arms.
    """

    participant: Participant
    history: History
    events: list[dict[str, Any]]
    posts: tuple[Post, ...] = ()

    @property
    def live(self) -> History:
        """The questions in order, without those taken back."""
        return sorted([pair for pair in self.history if not pair[0].struck], key=lambda pair: pair[0].number)
