"""The state of a study that runs, for its researcher: who comes, who waits, what fails, what needs doing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import exists, func, or_, select

from edpbrl_gym.study.arms import kind_of
from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.export_tables import pseudonym
from edpbrl_gym.study.queue import StudyQueue, page_waits_of
from edpbrl_gym.study.quotas import idle
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.tables import answers, events, participants, questions
from edpbrl_gym.study.watching import LEAST_DISK, LEAST_MEMORY, available_memory, free_disk, used_memory

__all__ = ["ArmState", "Overview", "overview", "stuck"]

_NOW = 10  # minutes without anything after which somebody is not answering at the moment
_STUCK = 30  # minutes with a question open after which somebody probably won't go on
_SLOW = 1  # minutes that the study may take for a question


@dataclass(frozen=True)
class ArmState:
    """How far an arm is."""

    name: str
    finished: int
    answering: int
    target: int | None  # most people who finish in it; None: no limit


@dataclass(frozen=True)
class Overview:
    """The state of a study."""

    hours: tuple[int, ...]  # people who came in each of the last hours, the last one first
    answering: int  # people who did something in the last minutes
    arms: tuple[ArmState, ...]
    finished: int
    target: int | None  # most people who finish; None: no limit
    waiting: tuple[str, ...]  # pseudonyms of those for whom no question comes
    stuck: tuple[str, ...]  # of those who left a question open
    failures: Mapping[str, int]  # in the last hour
    disk: int | None  # bytes that are free
    memory: int | None  # bytes that the processes use
    available: int | None  # bytes that are left of the machine's memory
    pictures: int | None  # that wait to be drawn; None: options are texts
    workers: int
    lost: int  # worker processes that died
    to_do: tuple[str, ...]  # what needs doing, in words


def stuck(store: Store, config: StudyConfig) -> tuple[list[int], list[int]]:
    """Rows of people for whom no question comes, and of those who have left one open for long."""
    pilot = config.recruitment.pilot
    mine = participants.c.pilot.is_(pilot)
    own = participants.c.id
    waiting = exists().where(
        questions.c.participant == own,
        questions.c.struck_by.is_(None),
        ~exists().where(answers.c.question == questions.c.id),
    )
    since = _ago(_SLOW)
    recent = exists().where(answers.c.participant == own, answers.c.answered_at > since)
    shown = exists().where(events.c.participant == own, events.c.at > since)
    with store.database.reading() as connection:
        query = select(own).where(mine, participants.c.status == "asking", ~waiting, ~recent, ~shown)
        slow = list(connection.execute(query.order_by(own)).scalars())
        left = idle(connection, _ago(_STUCK), None, page_waits_of(config))
        ours = set(connection.execute(select(own).where(mine)).scalars())
        old = {row for row in ours if row in left}
    posted = {arm.name for arm in config.arms if kind_of(arm).posted}
    people = {one.id: one for one in store.participants()}
    slow = [one for one in slow if one not in old and one in people and people[one].arm not in posted]
    return slow, sorted(old)


def overview(queue: StudyQueue, failures: Mapping[str, int]) -> Overview:
    """The state of a study now; ``failures`` are those of the last hour."""
    config, store = queue.config, queue.store
    recruitment = config.recruitment
    own, mine = participants.c.id, participants.c.pilot.is_(recruitment.pilot)
    since = _ago(_NOW)
    active = or_(
        exists().where(answers.c.participant == own, answers.c.answered_at > since),
        exists().where(events.c.participant == own, events.c.at > since),
        participants.c.created_at > since,
    )
    with store.database.reading() as connection:
        came = [
            int(
                connection.execute(
                    select(func.count()).where(
                        mine,
                        participants.c.created_at > _ago(60 * hour + 60),
                        participants.c.created_at <= _ago(60 * hour),
                    )
                ).scalar_one()
            )
            for hour in range(3)
        ]
        by_arm = select(participants.c.arm, func.count()).where(mine).group_by(participants.c.arm)
        finished = {
            name: count for name, count in connection.execute(by_arm.where(participants.c.status == "finished"))
        }
        present = participants.c.status.in_(("enrolled", "consented", "asking"))
        answering = {name: count for name, count in connection.execute(by_arm.where(present, active))}
    slow, old = stuck(store, config)
    names = {one.id: pseudonym(store.secret, one) for one in store.participants()}
    disk = None
    with suppress(OSError):
        disk = free_disk(config.folder)
    found = Overview(
        hours=tuple(came),
        answering=sum(answering.values()),
        arms=tuple(
            ArmState(one.name, finished.get(one.name, 0), answering.get(one.name, 0), recruitment.arms.get(one.name))
            for one in config.arms
        ),
        finished=sum(finished.values()),
        target=recruitment.people,
        waiting=tuple(names[one] for one in slow if one in names),
        stuck=tuple(names[one] for one in old if one in names),
        failures=dict(failures),
        disk=disk,
        memory=used_memory(*queue.planning.pids()),
        available=available_memory(),
        pictures=None if queue.pictures is None else queue.pictures.waiting,
        workers=queue.planning.workers,
        lost=queue.planning.deaths,
        to_do=(),
    )
    return _with_words(found, queue)


def _with_words(state: Overview, queue: StudyQueue) -> Overview:
    words = []
    recruitment = queue.config.recruitment
    if state.waiting:
        words.append(f"{_people(state.waiting)} for a question that does not come: look at the log for why.")
    if state.failures.get("database"):
        words.append(
            "The database could not be reached in the last hour: look whether it is there, and keep its files."
        )
    if state.failures.get("pictures"):
        words.append("Pictures could not be drawn: look at the log, and open a picture in the preview.")
    if state.failures.get("planning"):
        words.append("Planning failed or lost a process: look at the log, and at the memory of the machine.")
    if state.failures.get("errors"):
        words.append("Pages failed: look at the log for the error.")
    if state.disk is not None and state.disk < LEAST_DISK:
        words.append("The disk is nearly full: free some space before answers can't be stored.")
    if state.available is not None and state.available < LEAST_MEMORY:
        words.append("The memory of the machine is nearly used up: take fewer --workers, or stop other programs.")
    if state.stuck and recruitment.time_out is None and (recruitment.people or recruitment.arms):
        words.append(
            f"{len(state.stuck)} left a question open and keep their places: set time_out in [recruitment] to give "
            "them to others."
        )
    full = state.target is not None and state.finished >= state.target
    closed = recruitment.closed(datetime.now(UTC))
    if full:
        words.append(f"All {state.target} have finished: stop the recruitment, then export.")
    elif closed == "closed":
        words.append("The study is closed since its closing time: nobody new is let in.")
    elif closed == "not_open":
        words.append("The study has not opened yet: nobody is let in.")
    if recruitment.pilot:
        words.append("This is the pilot: take pilot = true out before the study itself.")
    return replace(state, to_do=tuple(words))


def _people(names: tuple[str, ...]) -> str:
    return "1 person waits" if len(names) == 1 else f"{len(names)} people wait"


def _ago(minutes: int) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(timespec="microseconds")
