"""Places: who may come, which arm they are in, and when a place is free for the next person.

Places are numbered. Blocks of the balanced assignment are blocks of places, and whoever comes takes the lowest free
one, so blocks count people who finish: a place is given back by those whose answers on a page are not accepted, who
withdraw, are timed out or are deleted. People of a pilot have places of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, exists, func, or_, select

from edpbrl_gym.study.recruitment import Closed
from edpbrl_gym.study.rows import event_of, history_of
from edpbrl_gym.study.tables import answers, events, participants, questions

__all__ = ["GIVES_BACK", "NoPlaceError", "PageWaits", "Quotas", "idle", "places_taken"]

GIVES_BACK = ("failed", "withdrawn", "timed_out")
"""Statuses of people whose place is free."""
PageWaits = Callable[[list[dict[str, Any]], int], bool]
"""Whether a page of questions waits for somebody who is asked, by their events and their number of answers."""
_WAITED_FOR = ("enrolled", "consented", "asking")  # those who may be timed out


class NoPlaceError(RuntimeError):
    """Nobody new is let in, for the reason ``why``."""

    def __init__(self, why: Closed) -> None:
        super().__init__(f"Expected a study that lets people in, got one that is {why.replace('_', ' ')}")
        self.why = why


@dataclass(frozen=True)
class Quotas:
    """Most people who may have a place at a time."""

    people: int | None = None  # of all; None: no limit
    arms: Mapping[str, int | None] = field(default_factory=dict)  # of all arms, by name; of no arm: they have no limit

    @property
    def are_set(self) -> bool:
        """Whether there is any limit."""
        return self.people is not None or any(most is not None for most in self.arms.values())

    def place(self, taken: Mapping[int, str], arm_of: Callable[[int], str]) -> int:
        """The lowest free place whose arm is not full.

        Args:
            taken: The names of the arms by the places that are taken.
            arm_of: Name of the arm of a place.

        Raises:
            NoPlaceError: There is none.
        """
        held = Counter(taken.values())
        full = {name for name, most in self.arms.items() if most is not None and held[name] >= most}
        if (self.people is not None and len(taken) >= self.people) or (self.arms and len(full) == len(self.arms)):
            raise NoPlaceError("full")
        place = 0
        while place in taken or (full and arm_of(place) in full):
            place += 1
        return place


def places_taken(connection: Connection, *, pilot: bool) -> dict[int, str]:
    """The arms by the places that are taken."""
    query = select(participants.c.place, participants.c.arm)
    query = query.where(participants.c.place.is_not(None), participants.c.pilot.is_(pilot))
    return {row.place: row.arm for row in connection.execute(query)}


def idle(
    connection: Connection, since: str, participant: int | None = None, page_waits: PageWaits | None = None
) -> list[int]:
    """Rows of the people for whom something has waited, and who have done nothing since a time (ISO 8601).

    Whoever waits for the study, because the next question is not there yet and no page of questions waits, is not idle.
    """
    own = participants.c.id
    live = and_(questions.c.participant == own, questions.c.struck_by.is_(None))
    waiting = exists().where(live, ~exists().where(answers.c.question == questions.c.id))
    recent: list[Any] = [
        exists().where(answers.c.participant == own, answers.c.answered_at > since),
        exists().where(events.c.participant == own, events.c.at > since),
    ]
    query = select(own, or_(waiting, participants.c.status != "asking").label("is_waited_for")).where(
        participants.c.status.in_(_WAITED_FOR),
        func.coalesce(participants.c.consented_at, participants.c.created_at) <= since,
        *(~one for one in recent),
    )
    if participant is not None:
        query = query.where(own == participant)
    found = []
    for row in connection.execute(query.order_by(own)).all():
        is_waited_for = bool(row.is_waited_for)
        if not is_waited_for and page_waits is not None:
            happened = connection.execute(select(events).where(events.c.participant == row.id).order_by(events.c.id))
            answered = sum(given is not None for _, given in history_of(connection, row.id))
            is_waited_for = page_waits([event_of(one) for one in happened], answered)
        if is_waited_for:
            found.append(row.id)
    return found
