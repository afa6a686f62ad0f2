"""A study's database: participants, questions and answers; what was acknowledged is on the disk."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.database import Database
from edpbrl_gym.study.identifiers import identity_of
from edpbrl_gym.study.posts import last_is_read
from edpbrl_gym.study.quotas import GIVES_BACK, PageWaits, Quotas, idle, places_taken
from edpbrl_gym.study.records import (
    History,
    HistoryChangedError,
    NotAskingError,
    Participant,
    QuestionKind,
    Receipt,
    Record,
    Status,
    StoredQuestion,
    Timing,
    UnknownParticipantError,
    UnknownQuestionError,
)
from edpbrl_gym.study.rows import (
    START,
    add_event_row,
    answer_of,
    by_code,
    changed,
    delete_participant,
    event_of,
    history_of,
    is_answered,
    last_crowd,
    last_question,
    live_questions,
    locked,
    now,
    participant_of,
    question_of,
    read_records,
)
from edpbrl_gym.study.tables import answers, configs, counters, events, facts, participants, photos, questions

__all__ = ["Store"]


class Store:
    """The database of a study.

    Every method is one transaction; when one that writes returns, what it wrote survives a kill and a power cut. Safe
    to use from several threads, processes and, on PostgreSQL, servers: the writes of one participant wait for each
    other.

    Args:
        url: See ``Database``.
        config: Fingerprint of the configuration, written beside every question and answer; "" adds none of them.
        document: The configuration as text, stored once for each fingerprint.
        create: Create a file that isn't there.

    Raises:
        FileNotFoundError, ValueError, ConnectionError: As for ``Database``.
    """

    def __init__(self, url: str, *, config: str = "", document: str = "", create: bool = True) -> None:
        from edpbrl_gym import __version__

        self.database = Database(url, create=create)
        self._origin = {"config": config, "code_version": __version__}
        if config:
            known = select(configs.c.fingerprint).where(configs.c.fingerprint == config)
            with self.database.reading() as connection:
                stored = connection.execute(known).first() is not None
            if not stored:
                self._try_insert(configs, {"fingerprint": config, "document": document, "first_used_at": now()})
        self.secret = self.database.identity = self.claim("secret", secrets.token_urlsafe(32))

    def close(self) -> None:
        self.database.close()

    def _try_insert(self, table: Any, row: dict[str, Any]) -> bool:
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

    def enrol(
        self,
        external: Mapping[str, str],
        arm_of: Callable[[int], str],
        *,
        language: str = "en",
        quotas: Quotas | None = None,
        pilot: bool = False,
    ) -> Participant:
        """The participant with these external identifiers, a new one with a place of their own if there is none yet.

        Args:
            external: Identifiers by name, such as PROLIFIC_PID; without any, every call is a new participant. Those of
                a visit, such as the SESSION_ID, are kept but do not tell participants apart; see ``identity_of``.
            arm_of: Name of the arm of a place.
            language: Code of the language.
            quotas: Most people who may have a place; None: no limits.
            pilot: Whether a new participant tries the study out.

        Raises:
            NoPlaceError: There is no place for somebody new.
        """
        identity = _digest(external)
        same = participants.c.identity == identity
        with self.database.writing() as connection:
            counter = counters.c.name == "participants"
            number = connection.execute(select(counters.c.value).where(counter).with_for_update()).scalar_one()
            known = None if identity is None else connection.execute(select(participants).where(same)).first()
            if known is not None:
                return participant_of(known)
            place = (quotas or Quotas()).place(places_taken(connection, pilot=pilot), arm_of)
            connection.execute(update(counters).where(counter).values(value=number + 1))
            row = {
                "number": number,
                "code": secrets.token_hex(12),  # people write it in letters, researchers type it: no hyphen first
                "identity": identity,
                "external": dict(external),
                "arm": arm_of(place),
                "language": language,
                "status": "enrolled",
                "created_at": now(),
                "place": place,
                "pilot": pilot,
            }
            return participant_of(connection.execute(insert(participants).values(**row).returning(participants)).one())

    def is_known(self, external: Mapping[str, str]) -> bool:
        """Whether there is a participant with these external identifiers."""
        identity = _digest(external)
        with self.database.reading() as connection:
            query = select(participants.c.id).where(participants.c.identity == identity)
            return identity is not None and connection.execute(query).first() is not None

    def places(self, *, pilot: bool) -> dict[int, str]:
        """The arms by the places that are taken."""
        with self.database.reading() as connection:
            return places_taken(connection, pilot=pilot)

    def time_out(self, since: str, participant: int | None = None, page_waits: PageWaits | None = None) -> bool:
        """Give back the places of all, or of one, who were to do something and have not since a time (ISO 8601).

        Returns:
            Whether there were any.
        """
        with self.database.reading() as connection:
            found = idle(connection, since, participant, page_waits)
        ended = False
        for one in found:
            with suppress(UnknownParticipantError), self.database.writing() as connection:  # deleted meanwhile
                row = locked(connection, one)  # what was stored before is seen from here on, and nothing more is stored
                if idle(connection, since, one, page_waits):
                    _with_status(connection, row, "timed_out")
                    ended = True
        return ended

    def without_question(self) -> list[Participant]:
        """Those who are asked questions, none of which waits for them."""
        live = (questions.c.participant == participants.c.id, questions.c.struck_by.is_(None))
        waiting = exists().where(*live, ~exists().where(answers.c.question == questions.c.id))
        with self.database.reading() as connection:
            rows = connection.execute(select(participants).where(participants.c.status == "asking", ~waiting)).all()
        return [participant_of(row) for row in rows]

    def participant(self, code: str) -> Participant:
        with self.database.reading() as connection:
            return participant_of(by_code(connection, code))

    def situation(self, code: str) -> tuple[Participant, History]:
        """The participant with a public code, and their ``history`` at the same moment; raises as ``participant``."""
        with self.database.reading() as connection:
            row = by_code(connection, code)
            return participant_of(row), history_of(connection, row.id)

    def waiting(self, code: str) -> tuple[Participant, StoredQuestion | None]:
        """The participant with a public code, and the question that waits for an answer, as ``situation`` says.

        A long history takes milliseconds to read, so this is for those who need no more of it.
        """
        with self.database.reading() as connection:
            row = by_code(connection, code)
            last = last_question(connection, row.id)
            waits = last is not None and not is_answered(connection, last.id)
            return participant_of(row), question_of(last) if waits else None

    def participants(self) -> list[Participant]:
        with self.database.reading() as connection:
            rows = connection.execute(select(participants).order_by(participants.c.number)).all()
        return [participant_of(row) for row in rows]

    def records(self) -> list[Record]:
        """Everything about all participants, in the order of arrival, in one state of the database."""
        with self.database.reading() as connection:
            return read_records(connection)

    def record(self, participant: int) -> Record:
        with self.database.reading() as connection:
            found = read_records(connection, participant)
        if not found:
            raise UnknownParticipantError(f"Expected a participant of this study, got the unknown row {participant}")
        return found[0]

    def consent(self, participant: int, version: str, *, starts: bool = False) -> Participant:
        """Store that a participant agreed to a version of the consent text; the first consent counts.

        Args:
            participant: Row of the participant.
            version: Of the text.
            starts: Also store from which crowd the participant starts: the last one.
        """
        with self.database.writing() as connection:
            row = locked(connection, participant)
            if row.consented_at is None:
                change = {"consent_version": version, "consented_at": now(), "status": "consented"}
                row = changed(connection, participant, change)
                add_event_row(connection, participant, "consent", {"version": version})
                if starts:
                    crowd = last_crowd(connection, pilot=row.pilot)
                    known = {"crowd": None, "people": 0}
                    if crowd is not None:
                        known = {"crowd": crowd.id, "people": len(crowd.detail["people"])}
                    add_event_row(connection, participant, START, known)
            return participant_of(row)

    def set_status(self, participant: int, status: Status) -> Participant:
        """Change the status of a participant, whose place may be free then; the change is kept as an event."""
        with self.database.writing() as connection:
            return participant_of(_with_status(connection, locked(connection, participant), status))

    def delete(self, participant: int) -> None:
        """Delete everything about a participant; only the counter of deleted ones remembers it."""
        with self.database.writing() as connection:
            locked(connection, participant)
            delete_participant(connection, participant)
        self.database.empty_log()

    # events

    def add_event(self, participant: int | None, kind: str, detail: Mapping[str, Any] | None = None) -> None:
        """Store something that happened, such as a checkpoint after a day or a change of tabs."""
        with self.database.writing() as connection:
            add_event_row(connection, participant, kind, dict(detail or {}))

    def first_event(
        self,
        participant: int,
        kind: str,
        detail: Mapping[str, Any],
        *,
        about: str | None = None,
        refused: Collection[str] = (),
    ) -> dict[str, Any]:
        """Store something that happens to a participant once; the detail of the first time, whichever came first.

        Several events of a kind are told apart by the entry ``about`` of their detail.

        Raises:
            NotAskingError: The participant's status is among those ``refused``; nothing is stored.
        """
        with self.database.writing() as connection:
            status = locked(connection, participant).status
            if status in refused:
                raise NotAskingError(f"Expected a participant who may be asked, got one whose status is {status}")
            same = select(events.c.detail).where(events.c.participant == participant, events.c.kind == kind)
            for stored in connection.execute(same.order_by(events.c.id)).scalars():
                if about is None or stored.get(about) == detail[about]:
                    return dict(stored)
            add_event_row(connection, participant, kind, dict(detail))
            return dict(detail)

    def add_event_number(self, number: int, participant: int, kind: str, detail: Mapping[str, Any]) -> bool:
        """Store event ``number`` of a kind, counted from 0; False if there is one with this number already."""
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

    # questions and answers

    def history(self, participant: int) -> History:
        """The questions of a participant with their answers, in order, without those taken back."""
        with self.database.reading() as connection:
            return history_of(connection, participant)

    def answered(self, participant: int) -> int:
        """Number of answers of a participant, without those taken back."""
        query = (
            select(func.count())
            .select_from(answers.join(questions, questions.c.id == answers.c.question))
            .where(answers.c.participant == participant, questions.c.struck_by.is_(None))
        )
        with self.database.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def last_key(self, participant: int) -> str | None:
        """Key of the last answer, which can be taken back; None: there is none, or an oracle has read it."""
        query = (
            select(answers.c.key, questions.c.kind)
            .join(questions, questions.c.id == answers.c.question)
            .where(answers.c.participant == participant, questions.c.struck_by.is_(None))
            .order_by(questions.c.number.desc())
            .limit(1)
        )
        with self.database.reading() as connection:
            row = connection.execute(query).first()
            if row is None or (row.kind == "normal" and last_is_read(connection, participant)):
                return None
            return str(row.key)

    def add_question(
        self,
        participant: int,
        number: int,
        kind: QuestionKind,
        *,
        tokens: list[list[int]],
        texts: list[str],
        positions: list[int],
        expected: int | None = None,
        repeat_of: int | None = None,
    ) -> StoredQuestion:
        """Store the question with a number; if another process has, its question is returned.

        The number must be that of the next question: ``len(history)``, when all before it are answered.
        """
        with self.database.writing() as connection:
            locked(connection, participant)
            last = last_question(connection, participant)
            count = 0 if last is None else last.number + 1
            waiting = last is not None and not is_answered(connection, last.id)
            if waiting and number == last.number:
                return question_of(last)
            if waiting or number != count:
                raise HistoryChangedError(
                    f"Expected the next question of participant {participant}, all before it answered, got question "
                    f"{number} of {count}{', the last of which waits' if waiting else ''}"
                )
            row = {
                **{"number": number, "kind": kind, "tokens": tokens, "texts": texts, "positions": positions},
                **{"expected": expected, "repeat_of": repeat_of},
            }
            return self._insert_question(connection, participant, row)

    def _insert_question(self, connection: Connection, participant: int, row: dict[str, Any]) -> StoredQuestion:
        full = {
            **row,
            **self._origin,
            "participant": participant,
            "key": secrets.token_urlsafe(16),
            "created_at": now(),
        }
        return question_of(connection.execute(insert(questions).values(**full).returning(questions)).one())

    def replace(self, participant: int, question: int, kind: str, why: Mapping[str, Any]) -> bool:
        """Strike the question that waits, if nobody has seen it, by an event of a kind that tells all about it."""
        with self.database.writing() as connection:
            locked(connection, participant)
            row = connection.execute(select(questions).where(questions.c.id == question)).first()
            if row is None or row.struck_by is not None or row.shown_at is not None or is_answered(connection, row.id):
                return False
            told = {name: getattr(row, name) for name in ("number", "kind", "tokens", "texts", "positions")}
            event = add_event_row(connection, participant, kind, {**told, **why, "question": question, "at": now()})
            connection.execute(update(questions).where(questions.c.id == question).values(struck_by=event))
            return True

    def without_pictures(self, kind: str) -> dict[str, str]:
        """The texts for which questions were ever replaced by events of a kind, and why."""
        query = select(events.c.detail).where(events.c.kind == kind).order_by(events.c.id)
        with self.database.reading() as connection:
            return {text: why for detail in connection.execute(query).scalars() for text, why in detail["why"].items()}

    def mark_shown(self, question: int) -> None:
        """Store when a question was first shown."""
        with self.database.writing() as connection:
            change = update(questions).where(questions.c.id == question, questions.c.shown_at.is_(None))
            connection.execute(change.values(shown_at=now()))

    def answer(self, participant: int, key: str, response: Response, timing: Timing | None = None) -> Receipt:
        """Answer the question with a key; when this returns, the answer is on the disk.

        The same key answers once: a second time returns the first answer, whatever the second one says.

        Raises:
            NotAskingError: The participant has given the place back, such as by a time-out; nothing is stored.
        """
        with self.database.writing() as connection:
            status = locked(connection, participant).status
            wanted = select(questions).where(questions.c.key == key, questions.c.participant == participant)
            question = connection.execute(wanted).first()
            if question is not None:
                earlier = connection.execute(select(answers).where(answers.c.key == key)).first()
                if earlier is not None:
                    return Receipt(answer_of(earlier), first=False)
                if status in GIVES_BACK:
                    raise NotAskingError(f"Expected a participant who may be asked, got one whose status is {status}")
                if question.struck_by is None:
                    response.checked(len(question.texts))
                    timing = timing or Timing()
                    row = {
                        "participant": participant,
                        "question": question.id,
                        "key": key,
                        "response": response.as_json(),
                        "answered_at": now(),
                        "first_input_ms": timing.first_input_ms,
                        "answer_ms": timing.answer_ms,
                        "visibility_changes": timing.visibility_changes,
                        "viewport": None if timing.viewport is None else list(timing.viewport),
                        **self._origin,
                    }
                    stored = connection.execute(insert(answers).values(**row).returning(answers)).one()
                    return Receipt(answer_of(stored), first=True)
            why = "unknown" if question is None else "struck"
            add_event_row(connection, participant, "refused", {"why": why, "key": key[:40]})
        if question is None:
            raise UnknownQuestionError("Expected the key of a question of this participant, got another one")
        raise HistoryChangedError("Expected the question that waits for an answer, got one that was taken back")

    def undo(self, participant: int, key: str) -> StoredQuestion | None:
        """Take back the last answer, that to the question with ``key``: a copy of the question waits for an answer.

        Nothing is deleted: the answered question, and the one asked after it, are struck by an event.
        """
        with self.database.writing() as connection:
            locked(connection, participant)
            rows = live_questions(connection, participant)
            last = next((row for row in reversed(rows) if is_answered(connection, row.id)), None)
            pending = rows[-1] if rows and rows[-1] is not last else None
            if last is None or last.key != key:
                wanted = select(questions.c.struck_by).where(
                    questions.c.key == key, questions.c.participant == participant
                )
                if connection.execute(wanted).scalar() is None:
                    raise UnknownQuestionError("Expected the key of the last answer, got another one")
                return None if pending is None else question_of(pending)
            if last.kind == "normal" and last_is_read(connection, participant):
                raise UnknownQuestionError(
                    "Expected an answer that no oracle has read, this one can't be taken back any more"
                )
            event = add_event_row(connection, participant, "undo", {"number": last.number})
            struck = [row.id for row in (last, pending) if row is not None]
            connection.execute(update(questions).where(questions.c.id.in_(struck)).values(struck_by=event))
            names = ("number", "kind", "tokens", "texts", "positions", "expected", "repeat_of")
            return self._insert_question(connection, participant, {name: getattr(last, name) for name in names})


def _digest(external: Mapping[str, str]) -> str | None:
    """What the external identifiers tell a participant by; None without any."""
    return hashlib.sha256(json.dumps(identity_of(external)).encode()).hexdigest() if external else None


def _with_status(connection: Connection, row: Any, status: Status) -> Any:
    """The row of a participant after a change of the status; whoever has given the place back has ended for good.

    Their photos are deleted.
    """
    if row.status == status or row.status in GIVES_BACK:
        return row
    add_event_row(connection, row.id, "status", {"from": row.status, "to": status})
    if status in GIVES_BACK:
        connection.execute(delete(photos).where(photos.c.participant == row.id))
    return changed(connection, row.id, {"status": status, **({"place": None} if status in GIVES_BACK else {})})
