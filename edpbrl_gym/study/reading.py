"""What the rows of the database say, as records; all participants in one state of the database."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, select

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.records import History, Participant, Post, Record, StoredAnswer, StoredQuestion, Timing
from edpbrl_gym.study.tables import answers, events, participants, posts, questions

__all__ = ["answer_of", "event_of", "participant_of", "post_of", "question_of", "read_records"]


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
    names = ("id", "number", "code", "external", "arm", "language", "consent_version", "consented_at", "status")
    return Participant(**{name: getattr(row, name) for name in names}, created_at=row.created_at)


def question_of(row: Any) -> StoredQuestion:
    """A question of a row."""
    names = ("id", "number", "kind", "tokens", "texts", "positions", "key", "expected", "repeat_of")
    times = {"created_at": row.created_at, "shown_at": row.shown_at}
    return StoredQuestion(**{name: getattr(row, name) for name in names}, **times, struck=row.struck_by is not None)


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
