"""Deletion of one participant on request."""

from __future__ import annotations

from sqlalchemy import Connection, delete, update

from edpbrl_gym.study.tables import answers, counters, events, oracles, participants, posts, questions

__all__ = ["delete_participant"]


def delete_participant(connection: Connection, participant: int) -> None:
    """Delete all rows about a participant, and count the deletion."""
    for table in (answers, questions, events, posts, oracles):
        connection.execute(delete(table).where(table.c.participant == participant))
    connection.execute(delete(participants).where(participants.c.id == participant))
    counting = update(counters).where(counters.c.name == "deleted").values(value=counters.c.value + 1)
    connection.execute(counting)
