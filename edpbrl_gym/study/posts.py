"""Questions that oracles post for participants, and the answers that they take; one participant for each oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.database import Database
from edpbrl_gym.study.reading import post_of
from edpbrl_gym.study.records import (
    ChangedQuestionError,
    LoopFinishedError,
    ParticipantLeftError,
    ParticipantTakenError,
    Post,
)
from edpbrl_gym.study.tables import answers, oracles, participants, posts, questions
from edpbrl_gym.study.transactions import now

__all__ = ["Posts", "Replies", "last_is_read"]


@dataclass(frozen=True)
class Replies:
    """What an oracle's participant has answered.

    Attributes:
        status: Status of the participant.
        stored: Number of answers of any kind.
        responses: Answers to questions that count, in order, up to the first without one.
    """

    status: str
    stored: int
    responses: tuple[Response, ...]


class Posts:
    """The posted questions in a study's database.

    Every method is one transaction, as in ``Store``; what a method that writes has written survives a kill.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # whom an oracle asks

    def claim(self, name: str, arm: str, wanted: str | None) -> int | None:
        """The row of the participant whom the oracle with a name asks; claimed for it if it has none yet.

        Args:
            name: Name of the oracle.
            arm: Name of its arm.
            wanted: Code or external identifier of the participant; None: the first one of the arm who has come to the
                questions and whom no oracle asks.

        Returns:
            The row; None: there is no such participant yet.

        Raises:
            ParticipantTakenError: Another oracle asks this participant, or this oracle asks another one.
            ValueError: The participant is in another arm, or the identifier is that of several.
        """
        while True:
            with self._database.reading() as connection:
                found, claimed = self._find(connection, name, arm, wanted)
            if found is None or claimed:
                return found
            try:
                with self._database.writing() as connection:
                    found, claimed = self._find(connection, name, arm, wanted)
                    if found is not None and not claimed:
                        connection.execute(insert(oracles).values(name=name, participant=found, claimed_at=now()))
                return found
            except IntegrityError:  # another oracle was faster
                continue

    def _find(self, connection: Connection, name: str, arm: str, wanted: str | None) -> tuple[int | None, bool]:
        """The row of the oracle's participant, and whether it is claimed already."""
        everyone = select(participants.c.id, participants.c.arm, participants.c.code, participants.c.external)
        own = connection.execute(everyone.join(oracles).where(oracles.c.name == name)).first()
        if wanted is None and own is None:
            free = participants.c.id.not_in(select(oracles.c.participant))
            asking = everyone.where(participants.c.arm == arm, participants.c.status == "asking", free)
            return connection.execute(asking.order_by(participants.c.number).limit(1)).scalar(), False
        found = [own]
        if wanted is not None:
            found = [row for row in connection.execute(everyone) if wanted in (row.code, *row.external.values())]
        if len(found) > 1:
            raise ValueError(f"Expected the code of one participant, {wanted!r} is an identifier of {len(found)}")
        if own is not None and found != [own]:
            raise ParticipantTakenError(
                f"Expected the participant whom the oracle {name!r} has asked before, got {wanted!r}; give a new "
                "participant an oracle with another name"
            )
        if not found or found[0] is None:
            return None, False
        if found[0].arm != arm:
            raise ValueError(f"Expected a participant of the arm {arm!r}, got one of {found[0].arm!r}; choose another")
        taken = connection.execute(select(oracles.c.name).where(oracles.c.participant == found[0].id)).scalar()
        if taken not in (None, name):
            raise ParticipantTakenError(
                f"Expected a participant whom no other oracle asks, {wanted!r} is asked by {taken!r}; choose another"
            )
        return int(found[0].id), own is not None

    def finish(self, name: str) -> bool:
        """Store that an oracle posts no more questions; False if it has no participant yet."""
        change = update(oracles).where(oracles.c.name == name)
        with self._database.writing() as connection:
            connection.execute(change.where(oracles.c.finished_at.is_(None)).values(finished_at=now()))
            return connection.execute(select(oracles.c.name).where(oracles.c.name == name)).first() is not None

    # questions

    def post(self, participant: int, wanted: Sequence[Post]) -> None:
        """Store questions; those that are stored already must be the same.

        Raises:
            ChangedQuestionError: Another question has the number of one of them.
            LoopFinishedError: There is a new one, but the oracle has finished.
            ParticipantLeftError: There is a new one, but the participant answers no more.
        """
        with self._database.reading() as connection:
            if not _new(connection, participant, wanted):
                return
        with self._database.writing() as connection:
            _check_present(_status(connection, participant, lock=True))
            new = _new(connection, participant, wanted)
            if new and _is_finished(connection, participant):
                raise LoopFinishedError(
                    "Expected no further question after finish(), got one; begin another loop with another name"
                )
            for post in new:
                row = {"texts": post.texts, "episode": post.episode, "step": post.step, "posted_at": now()}
                connection.execute(insert(posts).values(participant=participant, number=post.number, **row))

    def find(self, participant: int, number: int) -> Post | None:
        """The question with a number; None if there is none yet."""
        wanted = select(posts).where(posts.c.participant == participant, posts.c.number == number)
        with self._database.reading() as connection:
            row = connection.execute(wanted).first()
        return None if row is None else post_of(row)

    def final_count(self, participant: int) -> int | None:
        """The number of questions when the participant's oracle has finished; None before."""
        count = select(func.count()).select_from(posts).where(posts.c.participant == participant)
        with self._database.reading() as connection:
            return int(connection.execute(count).scalar_one()) if _is_finished(connection, participant) else None

    def all(self, participant: int) -> list[Post]:
        """All questions for a participant in order."""
        query = select(posts).where(posts.c.participant == participant).order_by(posts.c.number)
        with self._database.reading() as connection:
            return [post_of(row) for row in connection.execute(query)]

    # answers

    def replies(self, participant: int) -> Replies:
        """What the participant has answered; nothing changes.

        Raises:
            ParticipantLeftError: The participant answers no more.
        """
        with self._database.reading() as connection:
            return _replies(connection, participant, _status(connection, participant))

    def take(self, participant: int, start: int, count: int) -> tuple[Response, ...] | None:
        """Read the answers to the questions from ``start``; from then on they can't be taken back.

        Returns:
            The answers; None, and none is read, if one of them was taken back in the meantime.
        """
        among = (posts.c.participant == participant, posts.c.number >= start, posts.c.number < start + count)
        with self._database.writing() as connection:
            found = _replies(connection, participant, _status(connection, participant, lock=True))
            if len(found.responses) < start + count:
                return None
            unread = update(posts).where(*among, posts.c.read_at.is_(None))
            connection.execute(unread.values(read_at=now()))
            return found.responses[start : start + count]


def last_is_read(connection: Connection, participant: int) -> bool:
    """Whether an oracle has read the participant's last answer to a question that counts."""
    answered = select(func.count()).select_from(questions).join(answers, answers.c.question == questions.c.id)
    own = questions.c.participant == participant
    number = answered.where(own, questions.c.kind == "normal", questions.c.struck_by.is_(None)).scalar_subquery() - 1
    wanted = select(posts.c.read_at).where(posts.c.participant == participant, posts.c.number == number)
    return connection.execute(wanted).scalar() is not None


def _is_finished(connection: Connection, participant: int) -> bool:
    own = oracles.c.participant == participant
    return connection.execute(select(oracles.c.finished_at).where(own)).scalar() is not None


def _new(connection: Connection, participant: int, wanted: Sequence[Post]) -> list[Post]:
    """Those that are not stored yet."""
    numbers = [post.number for post in wanted]
    query = select(posts).where(posts.c.participant == participant, posts.c.number.in_(numbers))
    stored = {row.number: row.texts for row in connection.execute(query)}
    for post in wanted:
        if stored.get(post.number, post.texts) != post.texts:
            raise ChangedQuestionError(
                f"Expected the question {stored[post.number]} that was asked as number {post.number + 1} before, got "
                f"{post.texts}: a loop that goes on must ask the same questions, given the same answers. Run it from "
                "its beginning with the seeds and settings of the first time, or begin another one with another name"
            )
    return [post for post in wanted if post.number not in stored]


def _replies(connection: Connection, participant: int, status: str | None) -> Replies:
    _check_present(status)
    own = questions.c.participant == participant
    live = select(answers.c.response).select_from(questions).outerjoin(answers, answers.c.question == questions.c.id)
    counting = live.where(own, questions.c.kind == "normal", questions.c.struck_by.is_(None)).order_by(
        questions.c.number
    )
    given = [row.response for row in connection.execute(counting) if row.response is not None]
    stored = select(func.count()).select_from(answers).where(answers.c.participant == participant)
    total = connection.execute(stored).scalar_one()
    return Replies(str(status), total, tuple(Response.from_json(response) for response in given))


def _status(connection: Connection, participant: int, *, lock: bool = False) -> Any:
    """The status of a participant, None if there is none; with a lock, other writes wait for this transaction."""
    query = select(participants.c.status).where(participants.c.id == participant)
    return connection.execute(query.with_for_update() if lock else query).scalar()


def _check_present(status: str | None) -> None:
    if status in (None, "failed", "withdrawn"):
        why = {None: "was deleted", "failed": "failed the comprehension check", "withdrawn": "has withdrawn"}[status]
        raise ParticipantLeftError(
            f"Expected a participant who answers, this one {why}; begin another loop with another name and participant"
        )
