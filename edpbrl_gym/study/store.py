"""Questions and answers in a study's database: what was acknowledged is on the disk."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import Connection, insert, select, update

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.participants_store import ParticipantsStore
from edpbrl_gym.study.posts import last_is_read
from edpbrl_gym.study.reading import answer_of, question_of
from edpbrl_gym.study.records import (
    AnswerReadError,
    History,
    HistoryChangedError,
    QuestionKind,
    Receipt,
    StoredQuestion,
    StruckQuestionError,
    Timing,
    UnknownQuestionError,
)
from edpbrl_gym.study.tables import answers, questions
from edpbrl_gym.study.transactions import add_event_row, history_of, is_answered, live_questions, locked, now

__all__ = ["History", "Store"]


class Store(ParticipantsStore):
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

    def history(self, participant: int) -> History:
        """The questions of a participant with their answers, in order, without those taken back."""
        with self.database.reading() as connection:
            return history_of(connection, participant, questions.c.struck_by.is_(None))

    def full_history(self, participant: int) -> History:
        """All questions that a participant was ever asked with their answers, in the order of asking."""
        with self.database.reading() as connection:
            return history_of(connection, participant, questions.c.id.is_not(None), by=questions.c.id)

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

        Raises:
            HistoryChangedError: It isn't.
        """
        with self.database.writing() as connection:
            locked(connection, participant)
            rows = live_questions(connection, participant)
            waiting = bool(rows) and not is_answered(connection, rows[-1].id)
            if waiting and number == len(rows) - 1:
                return question_of(rows[-1])
            if waiting or number != len(rows):
                raise HistoryChangedError(
                    f"Expected the next question of participant {participant}, all before it answered, got question "
                    f"{number} of {len(rows)}{', the last of which waits' if waiting else ''}"
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

    def mark_shown(self, question: int) -> None:
        """Store when a question was first shown."""
        with self.database.writing() as connection:
            change = update(questions).where(questions.c.id == question, questions.c.shown_at.is_(None))
            connection.execute(change.values(shown_at=now()))

    def answer(self, participant: int, key: str, response: Response, timing: Timing | None = None) -> Receipt:
        """Answer the question with a key; when this returns, the answer is on the disk.

        The same key answers once: a second time returns the first answer, whatever the second one says.

        Raises:
            UnknownParticipantError: There is no such participant.
            UnknownQuestionError: The participant has no question with this key; refused posts are kept as events.
            StruckQuestionError: The question was taken back before it was answered; likewise.
            ValueError: The question doesn't have these options.
        """
        with self.database.writing() as connection:
            locked(connection, participant)
            wanted = select(questions).where(questions.c.key == key, questions.c.participant == participant)
            question = connection.execute(wanted).first()
            if question is not None:
                earlier = connection.execute(select(answers).where(answers.c.key == key)).first()
                if earlier is not None:
                    return Receipt(answer_of(earlier), first=False)
                if question.struck_by is None:
                    response.checked(len(question.texts))
                    row = self._answer_row(participant, question.id, key, response, timing or Timing())
                    return Receipt(answer_of(connection.execute(row).one()), first=True)
            why = "unknown" if question is None else "struck"
            add_event_row(connection, participant, "refused", {"why": why, "key": key[:40]})
        if question is None:
            raise UnknownQuestionError("Expected the key of a question of this participant, got another one")
        raise StruckQuestionError("Expected the question that waits for an answer, got one that was taken back")

    def _answer_row(self, participant: int, question: int, key: str, response: Response, timing: Timing) -> Any:
        return (
            insert(answers)
            .values(
                participant=participant,
                question=question,
                key=key,
                response=response.as_json(),
                answered_at=now(),
                first_input_ms=timing.first_input_ms,
                answer_ms=timing.answer_ms,
                visibility_changes=timing.visibility_changes,
                viewport=None if timing.viewport is None else list(timing.viewport),
                **self._origin,
            )
            .returning(answers)
        )

    def undo(self, participant: int, key: str) -> StoredQuestion | None:
        """Take back the last answer, that to the question with ``key``: a copy of the question waits for an answer.

        Nothing is deleted: the answered question, and the one asked after it, are struck by an event.

        Args:
            participant: The participant.
            key: Key of the last answered question. If it was taken back already, nothing changes.

        Returns:
            The question that waits for an answer now; None: there is none.

        Raises:
            UnknownQuestionError: It is not the key of the last answer, nor of one taken back.
            AnswerReadError: An oracle's loop has gone on with the answer.
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
                raise AnswerReadError(
                    "Expected an answer that no oracle has read, this one can't be taken back any more"
                )
            event = add_event_row(connection, participant, "undo", {"number": last.number})
            struck = [row.id for row in (last, pending) if row is not None]
            connection.execute(update(questions).where(questions.c.id.in_(struck)).values(struck_by=event))
            names = ("number", "kind", "tokens", "texts", "positions", "expected", "repeat_of")
            return self._insert_question(connection, participant, {name: getattr(last, name) for name in names})

    def question(self, participant: int, key: str) -> StoredQuestion | None:
        """The question of a participant with a key, also one taken back; None: there is none."""
        wanted = select(questions).where(questions.c.key == key, questions.c.participant == participant)
        with self.database.reading() as connection:
            row = connection.execute(wanted).first()
        return None if row is None else question_of(row)
