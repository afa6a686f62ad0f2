"""Participants of a study, facts about it and events, in its database."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError

from edpbrl_gym.study.database import Database
from edpbrl_gym.study.deletion import delete_participant
from edpbrl_gym.study.reading import event_of, participant_of, read_records
from edpbrl_gym.study.records import History, Participant, Record, Status, UnknownParticipantError
from edpbrl_gym.study.tables import configs, counters, events, facts, participants, questions
from edpbrl_gym.study.transactions import add_event_row, by_code, changed, history_of, locked, now

__all__ = ["ParticipantsStore"]


class ParticipantsStore:
    """What the study is, its participants, and what happened to them; ``Store`` adds questions and answers."""

    def __init__(self, url: str, *, config: str = "", document: str = "", create: bool = True) -> None:
        self.database = Database(url, create=create)
        self._origin = {"config": config, "code_version": _version()}
        if config:
            known = select(configs.c.fingerprint).where(configs.c.fingerprint == config)
            with self.database.reading() as connection:
                stored = connection.execute(known).first() is not None
            if not stored:
                self._try_insert(configs, {"fingerprint": config, "document": document, "first_used_at": now()})
        self.secret = self.claim("secret", secrets.token_urlsafe(32))

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def _try_insert(self, table: Any, row: dict[str, Any]) -> bool:
        """Insert a row; return False if another process had done so."""
        try:
            with self.database.writing() as connection:
                connection.execute(insert(table).values(**row))
        except IntegrityError:
            return False
        return True

    # what the study is

    def claim(self, name: str, value: str) -> str:
        """The value of a fact, which is ``value`` if it has none yet; it never changes."""
        query = select(facts.c.value).where(facts.c.name == name)
        with self.database.reading() as connection:
            stored = connection.execute(query).scalar()
        if stored is None:
            self._try_insert(facts, {"name": name, "value": value})
            with self.database.reading() as connection:
                stored = connection.execute(query).scalar_one()
        return str(stored)

    def counts(self) -> dict[str, int]:
        """Numbers of participants that ever arrived, and of those deleted on request."""
        with self.database.reading() as connection:
            return {row.name: row.value for row in connection.execute(select(counters))}

    # participants

    def enrol(self, external: Mapping[str, str], arm_of: Callable[[int], str], *, language: str = "en") -> Participant:
        """The participant with these external identifiers, a new one if there is none yet.

        Args:
            external: Identifiers by name, such as PROLIFIC_PID; without any, every call is a new participant. The
                SESSION_ID is kept but does not tell participants apart, unless it is the only one.
            arm_of: Name of the arm by the participant's number.
            language: Code of the language.
        """
        identity = None
        if external:  # a platform's session is new whenever somebody comes back
            names = [pair for pair in sorted(external.items()) if pair[0] != "SESSION_ID"]
            identity = hashlib.sha256(json.dumps(names or sorted(external.items())).encode()).hexdigest()
        same = participants.c.identity == identity
        with self.database.writing() as connection:
            counter = counters.c.name == "participants"
            number = connection.execute(select(counters.c.value).where(counter).with_for_update()).scalar_one()
            known = None if identity is None else connection.execute(select(participants).where(same)).first()
            if known is not None:
                return participant_of(known)
            connection.execute(update(counters).where(counter).values(value=number + 1))
            row = {
                "number": number,
                "code": secrets.token_urlsafe(16),
                "identity": identity,
                "external": dict(external),
                "arm": arm_of(number),
                "language": language,
                "status": "enrolled",
                "created_at": now(),
            }
            return participant_of(connection.execute(insert(participants).values(**row).returning(participants)).one())

    def participant(self, code: str) -> Participant:
        """The participant with a public code.

        Raises:
            UnknownParticipantError: There is none.
        """
        with self.database.reading() as connection:
            return participant_of(by_code(connection, code))

    def situation(self, code: str) -> tuple[Participant, History]:
        """The participant with a public code, and their ``history`` at the same moment; raises as ``participant``."""
        with self.database.reading() as connection:
            row = by_code(connection, code)
            return participant_of(row), history_of(connection, row.id, questions.c.struck_by.is_(None))

    def participants(self) -> list[Participant]:
        """All participants in the order of arrival."""
        with self.database.reading() as connection:
            rows = connection.execute(select(participants).order_by(participants.c.number)).all()
        return [participant_of(row) for row in rows]

    def records(self) -> list[Record]:
        """Everything about all participants, in the order of arrival, in one state of the database."""
        with self.database.reading() as connection:
            return read_records(connection)

    def record(self, participant: int) -> Record:
        """Everything about a participant.

        Raises:
            UnknownParticipantError: There is none.
        """
        with self.database.reading() as connection:
            found = read_records(connection, participant)
        if not found:
            raise UnknownParticipantError(f"Expected a participant of this study, got the unknown row {participant}")
        return found[0]

    def consent(self, participant: int, version: str) -> Participant:
        """Store that a participant agreed to a version of the consent text; the first consent counts."""
        with self.database.writing() as connection:
            row = locked(connection, participant)
            if row.consented_at is None:
                change = {"consent_version": version, "consented_at": now(), "status": "consented"}
                row = changed(connection, participant, change)
                add_event_row(connection, participant, "consent", {"version": version})
            return participant_of(row)

    def set_status(self, participant: int, status: Status) -> Participant:
        """Change the status of a participant; the change is kept as an event."""
        with self.database.writing() as connection:
            row = locked(connection, participant)
            if row.status != status:
                add_event_row(connection, participant, "status", {"from": row.status, "to": status})
                row = changed(connection, participant, {"status": status})
            return participant_of(row)

    def delete(self, participant: int) -> None:
        """Delete everything about a participant; only the counter of deleted ones remembers it.

        Raises:
            UnknownParticipantError: There is none.
        """
        with self.database.writing() as connection:
            locked(connection, participant)
            delete_participant(connection, participant)
        self.database.empty_log()

    # events

    def add_event(self, participant: int | None, kind: str, detail: Mapping[str, Any] | None = None) -> None:
        """Store something that happened, such as a checkpoint after a day or a change of tabs."""
        with self.database.writing() as connection:
            add_event_row(connection, participant, kind, dict(detail or {}))

    def first_event(self, participant: int, kind: str, detail: Mapping[str, Any]) -> dict[str, Any]:
        """Store something that happens to a participant once; the detail of the first time, whichever came first."""
        with self.database.writing() as connection:
            locked(connection, participant)
            same = select(events.c.detail).where(events.c.participant == participant, events.c.kind == kind)
            stored = connection.execute(same.order_by(events.c.id).limit(1)).scalar()
            if stored is None:
                add_event_row(connection, participant, kind, dict(detail))
            return dict(detail if stored is None else stored)

    def add_event_number(self, number: int, participant: int, kind: str, detail: Mapping[str, Any]) -> bool:
        """Store event ``number`` of a kind, counted from 0; False if there is one with this number already.

        Raises:
            ValueError: The events before it are missing.
        """
        count = select(func.count()).where(events.c.participant == participant, events.c.kind == kind)
        with self.database.writing() as connection:
            locked(connection, participant)
            there = int(connection.execute(count).scalar_one())
            if number > there:
                raise ValueError(f"Expected event {there} of the kind {kind}, got event {number}")
            if number == there:
                add_event_row(connection, participant, kind, dict(detail))
            return number == there

    def events(self, participant: int) -> list[dict[str, Any]]:
        """The events of a participant in order: kind, at, detail."""
        query = select(events).where(events.c.participant == participant).order_by(events.c.id)
        with self.database.reading() as connection:
            return [event_of(row) for row in connection.execute(query)]


def _version() -> str:
    from edpbrl_gym import __version__

    return __version__
