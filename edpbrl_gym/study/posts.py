"""Questions that oracles post for participants, and the answers that they take; one participant for each oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.database import Database
from edpbrl_gym.study.records import LoopError, Post
from edpbrl_gym.study.rows import now, post_of
from edpbrl_gym.study.tables import answers, oracles, participants, posts, questions

__all__ = ["Posts", "last_is_read"]

_GONE = {None: "was deleted", "failed": "failed a check", "withdrawn": "has withdrawn", "timed_out": "was timed out"}


class Posts:
    """The posted questions in a study's database; about a participant who answers no more they raise a LoopError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, name: str, arm: str, wanted: str | None) -> int | None:
        """The row of the participant whom an oracle asks, claimed for it if it has none yet; None: nobody is there."""
        while True:
            with self._database.reading() as connection:
                found, claimed = _find(connection, name, arm, wanted)
            if found is None or claimed:
                return found
            try:
                with self._database.writing() as connection:
                    found, claimed = _find(connection, name, arm, wanted)
                    if found is not None and not claimed:
                        connection.execute(insert(oracles).values(name=name, participant=found, claimed_at=now()))
                return found
            except IntegrityError:  # another oracle was faster
                continue

    def finish(self, name: str) -> None:
        """Store that an oracle posts no more questions."""
        change = update(oracles).where(oracles.c.name == name, oracles.c.finished_at.is_(None))
        with self._database.writing() as connection:
            connection.execute(change.values(finished_at=now()))

    def post(self, participant: int, wanted: Sequence[Post]) -> None:
        """Store questions; those that are stored already must be the same, and a finished oracle adds none."""
        with self._database.reading() as connection:
            if not _new(connection, participant, wanted):
                return
        with self._database.writing() as connection:
            _check_present(connection, participant, lock=True)
            new = _new(connection, participant, wanted)
            if new and _is_finished(connection, participant):
                raise LoopError(
                    "Expected no further question after finish(), got one; begin another loop with another name"
                )
            for post in new:
                connection.execute(insert(posts).values(participant=participant, posted_at=now(), **vars(post)))

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

    def replies(self, participant: int) -> tuple[int, int]:
        """Numbers of the participant's answers of any kind, and of those to questions that count."""
        stored = select(func.count()).select_from(answers).where(answers.c.participant == participant)
        with self._database.reading() as connection:
            _check_present(connection, participant)
            return int(connection.execute(stored).scalar_one()), len(_responses(connection, participant))

    def take(self, participant: int, start: int, count: int) -> tuple[Response, ...] | None:
        """Read the answers to the questions from ``start``; from then on they can't be taken back.

        None, and none is read, if there are not so many (any more).
        """
        among = (posts.c.participant == participant, posts.c.number >= start, posts.c.number < start + count)
        with self._database.writing() as connection:
            _check_present(connection, participant, lock=True)
            given = _responses(connection, participant)[start : start + count]
            if len(given) < count:
                return None
            connection.execute(update(posts).where(*among, posts.c.read_at.is_(None)).values(read_at=now()))
            return tuple(Response.from_json(response) for response in given)


def _find(connection: Connection, name: str, arm: str, wanted: str | None) -> tuple[int | None, bool]:
    """The row of the oracle's participant, and whether it is claimed already."""
    everyone = select(participants, oracles.c.name.label("oracle")).outerjoin(oracles)
    people = connection.execute(everyone.order_by(participants.c.number)).all()
    own = [row for row in people if row.oracle == name]
    if wanted is not None:
        found = [row for row in people if wanted in (row.code, *row.external.values())]
    else:
        free = [row for row in people if row.oracle is None and row.arm == arm and row.status == "asking"]
        found = own or free[:1]
    if len(found) > 1:
        raise ValueError(f"Expected the code of one participant, {wanted!r} is an identifier of {len(found)}")
    if own and found != own:
        raise LoopError(
            f"Expected the participant whom the oracle {name!r} has asked before, got {wanted!r}; give a new "
            "participant an oracle with another name"
        )
    if not found:
        return None, False
    [row] = found
    if row.arm != arm:
        raise ValueError(f"Expected a participant of the arm {arm!r}, got one of {row.arm!r}; choose another")
    if row.oracle not in (None, name):
        raise LoopError(
            f"Expected a participant whom no other oracle asks, {wanted!r} is asked by {row.oracle!r}; choose another"
        )
    return int(row.id), bool(own)


def last_is_read(connection: Connection, participant: int) -> bool:
    """Whether an oracle has read the participant's last answer to a question that counts."""
    number = len(_responses(connection, participant)) - 1
    wanted = select(posts.c.read_at).where(posts.c.participant == participant, posts.c.number == number)
    return connection.execute(wanted).scalar() is not None


def _responses(connection: Connection, participant: int) -> list[Any]:
    given = select(answers.c.response).join(questions, answers.c.question == questions.c.id)
    own = (questions.c.participant == participant, questions.c.kind == "normal", questions.c.struck_by.is_(None))
    return list(connection.execute(given.where(*own).order_by(questions.c.number)).scalars())


def _is_finished(connection: Connection, participant: int) -> bool:
    finished = select(oracles.c.finished_at).where(oracles.c.participant == participant)
    return connection.execute(finished).scalar() is not None


def _new(connection: Connection, participant: int, wanted: Sequence[Post]) -> list[Post]:
    """Those that are not stored yet."""
    numbers = [post.number for post in wanted]
    query = select(posts).where(posts.c.participant == participant, posts.c.number.in_(numbers))
    stored = {row.number: row.texts for row in connection.execute(query)}
    for post in wanted:
        if stored.get(post.number, post.texts) != post.texts:
            raise LoopError(
                f"Expected the question {stored[post.number]} that was asked as number {post.number + 1} before, got "
                f"{post.texts}: a loop that goes on must ask the same questions, given the same answers. Run it from "
                "its beginning with the seeds and settings of the first time, or begin another one with another name"
            )
    return [post for post in wanted if post.number not in stored]


def _check_present(connection: Connection, participant: int, *, lock: bool = False) -> None:
    """Raise a LoopError for a participant who answers no more; with a lock, other writes wait for this transaction."""
    query = select(participants.c.status).where(participants.c.id == participant)
    status = connection.execute(query.with_for_update() if lock else query).scalar()
    if status in _GONE:
        raise LoopError(
            f"Expected a participant who answers, this one {_GONE[status]}; begin another loop with another name and "
            "participant"
        )
