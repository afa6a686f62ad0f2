"""Who chooses the questions that follow answers: this process, or worker processes beside it.

A worker holds nothing that is not made again: it is told a participant's stored answers with every request, and brings
its session to where they are, as this process does. So the questions are the same wherever they are chosen, a worker
that dies is replaced and asked again, and all that is lost is the time.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.estimation.items import ItemsPrior
from edpbrl_gym.session.outlook import Progress
from edpbrl_gym.study.arms import kind_of
from edpbrl_gym.study.config import OF_STUDY, Arm
from edpbrl_gym.study.materials import Materials, PriorityLock
from edpbrl_gym.study.records import History, NotReadyError, Participant
from edpbrl_gym.study.style import Style, make_style
from edpbrl_gym.study.visits import Visit, Visits
from edpbrl_gym.workers.forked import ForkedWorker, Nursery, NurseryGoneError, WorkerDiedError, can_fork
from edpbrl_gym.workers.processes import LocalProcesses

__all__ = ["Planning", "WorkerPlanning", "make_planning"]

_log = logging.getLogger(__name__)
_PATIENCE = 120.0  # seconds for an answer, after which a worker counts as dead
_TRIES = 3  # workers that may die of one request before whoever asks is told to come again
_KEPT = 8  # priors from other people's answers, in a worker
_WANTED = "prior"  # what a worker answers that needs the prior from which a participant starts


def make_planning(materials: Materials, workers: int | None = None) -> Planning:
    """Who chooses the questions of a study that is served; to be made before there are threads.

    Args:
        materials: Of the study.
        workers: Number of processes; None: one for each core but that of the pages, at least one, and none where
            processes can't be forked or no question follows answers.

    Raises:
        ValueError: As for ``WorkerPlanning``.
    """
    if workers is None:
        follows = any(kind_of(arm).learner(arm) is not None for arm in materials.config.arms)
        workers = max(1, LocalProcesses().count - 1) if follows and can_fork() else 0
    return WorkerPlanning(materials, workers) if workers else Planning(materials)


class Planning:
    """Chooses in this process, for one participant after the other; each is held by their visit's lock meanwhile.

    Attributes:
        threads: How many can usefully wait for it.
        workers: Number of processes that choose questions.
        embeds: Whether another process embeds options while they are read.
        deaths: How often one died, or could not be had.
    """

    threads, workers, deaths, embeds = 1, 0, 0, False

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._turn = PriorityLock()

    @contextmanager
    def turn(self, visit: Visit, priority: int) -> Iterator[None]:
        """To be held while something is asked for a participant; the lowest priority comes first."""
        with self._turn.held(priority):
            yield

    def choose(self, visit: Visit, history: History) -> NDArray[np.int64]:
        """Prompts (K, h + 1) of the next question that counts."""
        return visit.choose(history)

    def progress(self, visit: Visit, history: History) -> Progress:
        """How sure the session is."""
        return visit.session(history).progress()

    def embed(self, texts: list[str]) -> None:
        """Embed options that are being read; without ``embeds`` that is left to ``think``. One thread at a time."""

    def think(self, visit: Visit, history: History) -> None:
        """Compute ahead while the last question is read."""
        session = visit.session(history)
        session.ask()
        if self._materials.config.questions.stopping is None:
            session.planner.think()
        else:
            session.think()

    def style(self, participant: Participant, arm: Arm, history: History) -> Style | None:
        """The learnt taste of a participant by an arm, beside random prompts."""
        session = Visit(self._materials, participant, arm).session(history)
        return make_style(self._materials, participant, session, self._materials.config.style)

    def let_go(self, participant: Participant) -> None:
        """Forget the session of a participant who is asked no more."""

    def pids(self) -> list[int]:
        """The processes that there are beside this one."""
        return []

    def close(self) -> None:
        """End the processes."""


class _Place:
    """The place of a worker; there is one when somebody has asked for it. A nice one lets others go first."""

    def __init__(self, *, nice: bool = False) -> None:
        self.nice, self.turn = nice, PriorityLock()
        self.worker: ForkedWorker | None = None
        self.gone: set[int] = set()  # participants whose sessions it may forget


class WorkerPlanning(Planning):
    """Chooses in worker processes, a participant's questions always in the same one. To be made before threads.

    Where no process can be had any more it goes on in this one, and the log says so. Where processes die one after the
    other, of the request or for want of memory, its methods raise ``NotReadyError``, and can be called again.

    Raises:
        ValueError: Processes can't be forked from this one, or an arm can't ask.
    """

    def __init__(self, materials: Materials, count: int) -> None:
        super().__init__(materials)
        for arm in materials.config.arms:
            kind_of(arm).prepare(arm, materials)  # once, for all workers
        self.workers, self.threads, self.embeds = count, 2 * count, materials.embeds
        self._nursery = Nursery(partial(_Handler, materials), materials.load)
        self._places, self._embedding = [_Place() for _ in range(count)], _Place(nice=True)
        self._lock = threading.Lock()

    @property
    def _all(self) -> list[_Place]:
        return [*self._places, self._embedding]

    def _place(self, participant: Participant) -> _Place:
        return self._places[participant.id % self.workers]

    @contextmanager
    def turn(self, visit: Visit, priority: int) -> Iterator[None]:
        with self._place(visit.participant).turn.held(priority):
            yield

    def choose(self, visit: Visit, history: History) -> NDArray[np.int64]:
        chosen: NDArray[np.int64] = self._ask("choose", visit, history)
        return chosen

    def progress(self, visit: Visit, history: History) -> Progress:
        found: Progress = self._ask("progress", visit, history)
        return found

    def embed(self, texts: list[str]) -> None:
        """In a process of low priority; those that choose questions find the rows in the cache, or make them."""
        try:
            self._asked(self._embedding, ("embed", texts))
        except (WorkerDiedError, NurseryGoneError, OSError) as error:
            self._note(error)

    def think(self, visit: Visit, history: History) -> None:
        self._ask("think", visit, history)

    def _ask(self, kind: str, visit: Visit, history: History) -> Any:
        """What a worker answers, or this process where there is none to be had."""
        place, normal = self._place(visit.participant), [one for one in history if one[0].kind == "normal"]

        def ask() -> Any:
            with self._lock:
                gone, place.gone = place.gone, set()
            answer = self._asked(place, (kind, visit.participant, normal, gone))
            if isinstance(answer, str):
                assert answer == _WANTED
                answer = self._asked(place, (kind, visit.participant, normal, self._others(visit.start())))
            return answer

        return self._tried(ask, partial(getattr(super(), kind), visit, history))

    def _asked(self, place: _Place, request: tuple[Any, ...]) -> Any:
        """What the worker of a place answers, a new one if there is none."""
        if place.worker is None:
            place.worker = self._nursery.worker(nice=place.nice)
        try:
            return place.worker.call(request, patience=_PATIENCE)
        except WorkerDiedError:
            place.worker = None
            raise

    def _tried(self, ask: Callable[[], Any], here: Callable[[], Any]) -> Any:
        """What workers are asked for, or what this process computes where there is none to be had."""
        for _ in range(_TRIES):
            try:
                return ask()
            except WorkerDiedError as error:
                self._note(error)
            except (NurseryGoneError, OSError) as error:
                self._note(error)
                return here()
        raise NotReadyError(f"Expected a worker process that answers, {_TRIES} died; ask again in a second")

    def _note(self, error: Exception) -> None:
        self.deaths += 1
        _log.warning("A worker process was lost; what it was asked is asked again: %s", error)

    def style(self, participant: Participant, arm: Arm, history: History) -> Style | None:
        """As that of ``Planning``; in a process that ends with it, and lets those go first who choose questions."""
        started = self._materials.crowds.arm(arm, participant)
        more = arm, self._others(started) if arm.prior == OF_STUDY else None

        def ask() -> Style | None:
            with closing(self._nursery.worker(nice=True)) as worker:
                made: Style | None = worker.call(("style", participant, history, more), patience=_PATIENCE)
                return made

        made: Style | None = self._tried(ask, partial(super().style, participant, arm, history))
        return made

    def _others(self, started: Arm) -> bytes:
        """What other people said of the pool, where somebody starts from them; they are fitted in this process."""
        return pickle.dumps(cast(ItemsPrior, started.prior).crowd)

    def let_go(self, participant: Participant) -> None:
        place = self._place(participant)
        with self._lock:
            if place.worker is not None:
                place.gone.add(participant.id)

    def pids(self) -> list[int]:
        return [self._nursery.pid, *(one.worker.pid for one in self._all if one.worker is not None)]

    def close(self) -> None:
        for place in self._all:
            if place.worker is not None:
                place.worker.close()
        self._nursery.close()


class _Handler:
    """Answers requests in a worker."""

    def __init__(self, materials: Materials) -> None:
        self._materials, self._planning = materials, Planning(materials)
        arms = {arm.name: arm for arm in materials.config.arms}
        self._visits = Visits(lambda one: Visit(materials, one, arms[one.arm]))
        self._priors: OrderedDict[str, ItemsPrior] = OrderedDict()

    def __call__(self, request: tuple[Any, ...]) -> Any:
        if request[0] == "embed":
            for one in self._materials.caches:
                one.encode(request[1])
            return None
        kind, participant, history, more = request
        if kind == "style":
            arm, others = more
            return self._planning.style(
                participant, arm if others is None else replace(arm, prior=self._prior(others)), history
            )
        if isinstance(more, set):
            self._visits.forget(more)
        visit = self._visits.of(participant)
        if isinstance(more, bytes):
            visit.start(self._prior(more))
        if visit.waits_for_others:
            return _WANTED
        return getattr(self._planning, kind)(visit, history)

    def _prior(self, others: bytes) -> ItemsPrior:
        """The prior of the pool with other people's answers, which all who start from them share."""
        key = hashlib.sha256(others).hexdigest()
        if key not in self._priors:
            crowd = pickle.loads(others)
            plain = self._materials.items_prior
            self._priors[key] = plain if crowd is None else plain.with_crowd(crowd)
            while len(self._priors) > _KEPT:
                self._priors.popitem(last=False)
        self._priors.move_to_end(key)
        return self._priors[key]
