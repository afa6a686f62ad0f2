"""Rows of the database: what a transaction does with those of a participant, and what they say as records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select, update

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.records import (
    History,
    Participant,
    Post,
    Record,
    StoredAnswer,
    StoredQuestion,
    Timing,
    UnknownParticipantError,
)
from edpbrl_gym.study.tables import answers, counters, events, oracles, participants, photos, posts, questions

__all__ = [
    "CROWD",
    "START",
    "add_event_row",
    "answer_of",
    "by_code",
    "changed",
    "delete_participant",
    "event_of",
    "history_of",
    "is_answered",
    "last_crowd",
    "last_question",
    "live_questions",
    "locked",
    "now",
    "participant_of",
    "post_of",
    "question_of",
    "read_records",
]

CROWD, START = "crowd", "start"
"""Kinds of events: the people who had finished at a time, of nobody; the crowd from which a participant starts."""


def now() -> str:
    """The time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def locked(connection: Connection, participant: int) -> Any:
    """The row of a participant, whose writes wait for each other until the transaction ends."""
    row = connection.execute(select(participants).where(participants.c.id == participant).with_for_update()).first()
    if row is None:
        raise UnknownParticipantError(f"Expected a participant of this study, got the unknown row {participant}")
    return row


def by_code(connection: Connection, code: str) -> Any:
    """The row of the participant with a public code."""
    row = connection.execute(select(participants).where(participants.c.code == code)).first()
    if row is None:
        raise UnknownParticipantError("Expected a participant of this study, got an unknown code")
    return row


def history_of(connection: Connection, participant: int) -> History:
    """The questions of a participant that were not taken back, in order, with their answers."""
    told = select(answers).where(answers.c.participant == participant)
    given = {row.question: answer_of(row) for row in connection.execute(told)}
    return [(question_of(row), given.get(row.id)) for row in live_questions(connection, participant)]


def changed(connection: Connection, participant: int, change: dict[str, Any]) -> Any:
    """The row of a participant after a change."""
    statement = update(participants).where(participants.c.id == participant).values(**change)
    return connection.execute(statement.returning(participants)).one()


def add_event_row(connection: Connection, participant: int | None, kind: str, detail: dict[str, Any]) -> int:
    """Store an event; its row."""
    row = {"participant": participant, "kind": kind, "at": now(), "detail": detail}
    return int(connection.execute(insert(events).values(**row).returning(events.c.id)).scalar_one())


def last_crowd(connection: Connection, *, pilot: bool) -> Any:
    """The last crowd of the study, or of its pilot, that was noted (see ``crowds``); None: there is none yet."""
    query = select(events).where(events.c.kind == CROWD).order_by(events.c.id.desc())
    found = connection.execute(query).all()
    return next((row for row in found if row.detail.get("pilot", False) == pilot), None)


def live_questions(connection: Connection, participant: int) -> list[Any]:
    """The questions that were not taken back, in order."""
    return list(connection.execute(_live(participant).order_by(questions.c.number)).all())


def last_question(connection: Connection, participant: int) -> Any:
    """The last of them, or None; they are numbered 0, 1, ..., so there are its number + 1."""
    return connection.execute(_live(participant).order_by(questions.c.number.desc()).limit(1)).first()


def _live(participant: int) -> Select[Any]:
    return select(questions).where(questions.c.participant == participant, questions.c.struck_by.is_(None))


def is_answered(connection: Connection, question: int) -> bool:
    """Whether a question has an answer."""
    return connection.execute(select(answers.c.id).where(answers.c.question == question)).first() is not None


def read_records(connection: Connection, participant: int | None = None) -> list[Record]:
    """The records of all participants, or of one, in the order of arrival, with five queries."""

    def rows(table: Any, order: Any, who: Any) -> Any:
        query = select(table).order_by(order)
        return connection.execute(query if participant is None else query.where(who == participant))

    people = rows(participants, participants.c.number, participants.c.id).all()
    given = {row.question: answer_of(row) for row in rows(answers, answers.c.id, answers.c.participant)}
    histories: dict[int, History] = defaultdict(list)
    for row in rows(questions, questions.c.id, questions.c.participant):
        histories[row.participant].append((question_of(row), given.get(row.id)))
    happened: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(events, events.c.id, events.c.participant):
        happened[row.participant].append(event_of(row))
    posted: dict[int, list[Post]] = defaultdict(list)
    for row in rows(posts, posts.c.number, posts.c.participant):
        posted[row.participant].append(post_of(row))
    return [Record(participant_of(row), histories[row.id], happened[row.id], tuple(posted[row.id])) for row in people]


def participant_of(row: Any) -> Participant:
    """A participant of a row."""
    return Participant(**{field.name: getattr(row, field.name) for field in fields(Participant)})


def question_of(row: Any) -> StoredQuestion:
    """A question of a row."""
    names = [field.name for field in fields(StoredQuestion) if field.name != "struck"]
    return StoredQuestion(**{name: getattr(row, name) for name in names}, struck=row.struck_by is not None)


def answer_of(row: Any) -> StoredAnswer:
    """An answer of a row."""
    viewport = None if row.viewport is None else (row.viewport[0], row.viewport[1])
    timing = Timing(row.first_input_ms, row.answer_ms, row.visibility_changes, viewport)
    response = Response.from_json(row.response)
    return StoredAnswer(row.id, row.question, response, row.answered_at, timing, row.config, row.code_version)


def post_of(row: Any) -> Post:
    """A question of an oracle of a row."""
    return Post(row.number, row.texts, row.episode, row.step)


def event_of(row: Any) -> dict[str, Any]:
    """An event of a row: kind, at, detail."""
    return {"kind": row.kind, "at": row.at, "detail": row.detail}


def delete_participant(connection: Connection, participant: int) -> None:
    """Delete all rows about a participant, and count the deletion; crowds go on without them."""
    for crowd in connection.execute(select(events).where(events.c.kind == CROWD)).all():
        others = [one for one in crowd.detail["people"] if one != participant]
        if others != crowd.detail["people"]:
            change = update(events).where(events.c.id == crowd.id)
            connection.execute(change.values(detail={**crowd.detail, "people": others}))
    for table in (answers, questions, events, posts, oracles, photos):
        connection.execute(delete(table).where(table.c.participant == participant))
    connection.execute(delete(participants).where(participants.c.id == participant))
    counting = update(counters).where(counters.c.name == "deleted").values(value=counters.c.value + 1)
    connection.execute(counting)
