"""What a transaction of a study does with the rows of a participant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from edpbrl_gym.study.reading import answer_of, question_of
from edpbrl_gym.study.records import History, UnknownParticipantError
from edpbrl_gym.study.tables import answers, events, participants, questions

__all__ = [
    "add_event_row",
    "by_code",
    "changed",
    "history_of",
    "is_answered",
    "live_questions",
    "locked",
    "now",
]


def now() -> str:
    """The time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def locked(connection: Connection, participant: int) -> Any:
    """The row of a participant, whose writes wait for each other until the transaction ends.

    Raises:
        UnknownParticipantError: There is none.
    """
    row = connection.execute(select(participants).where(participants.c.id == participant).with_for_update()).first()
    if row is None:
        raise UnknownParticipantError(f"Expected a participant of this study, got the unknown row {participant}")
    return row


def by_code(connection: Connection, code: str) -> Any:
    """The row of the participant with a public code.

    Raises:
        UnknownParticipantError: There is none.
    """
    row = connection.execute(select(participants).where(participants.c.code == code)).first()
    if row is None:
        raise UnknownParticipantError("Expected a participant of this study, got an unknown code")
    return row


def history_of(connection: Connection, participant: int, condition: Any, by: Any = questions.c.number) -> History:
    """The questions of a participant that meet a condition, with their answers."""
    asked = select(questions).where(questions.c.participant == participant, condition).order_by(by)
    told = select(answers).where(answers.c.participant == participant)
    given = {row.question: answer_of(row) for row in connection.execute(told)}
    return [(question_of(row), given.get(row.id)) for row in connection.execute(asked)]


def changed(connection: Connection, participant: int, change: dict[str, Any]) -> Any:
    """The row of a participant after a change."""
    statement = update(participants).where(participants.c.id == participant).values(**change)
    return connection.execute(statement.returning(participants)).one()


def add_event_row(connection: Connection, participant: int | None, kind: str, detail: dict[str, Any]) -> int:
    """Store an event; its row."""
    row = {"participant": participant, "kind": kind, "at": now(), "detail": detail}
    return int(connection.execute(insert(events).values(**row).returning(events.c.id)).scalar_one())


def live_questions(connection: Connection, participant: int) -> list[Any]:
    """The questions that were not taken back, in order."""
    live = select(questions).where(questions.c.participant == participant, questions.c.struck_by.is_(None))
    return list(connection.execute(live.order_by(questions.c.number)).all())


def is_answered(connection: Connection, question: int) -> bool:
    """Whether a question has an answer."""
    return connection.execute(select(answers.c.id).where(answers.c.question == question)).first() is not None
