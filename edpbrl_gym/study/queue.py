"""One queue in front of any planner: the next question of each participant, and what becomes of an answer."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any

from edpbrl_gym.likelihood import Response
from edpbrl_gym.session.outlook import Progress
from edpbrl_gym.session.stopping import Left, StoppingRule
from edpbrl_gym.study.arms import ArmKind, kind_of
from edpbrl_gym.study.config import OF_STUDY, StudyConfig
from edpbrl_gym.study.forms.pages import CHECKED, PAGE, PageForm, due_among_choices, entries_of
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.pictures import Pictures
from edpbrl_gym.study.planning import Planning
from edpbrl_gym.study.posts import Posts
from edpbrl_gym.study.quotas import NoPlaceError, PageWaits, Quotas
from edpbrl_gym.study.records import (
    History,
    HistoryChangedError,
    NotAskingError,
    NotReadyError,
    Participant,
    Receipt,
    StoredQuestion,
    Timing,
)
from edpbrl_gym.study.recruitment import Closed
from edpbrl_gym.study.replacing import Replacing, as_planned, number_replaced, replaced_now
from edpbrl_gym.study.schedule import Slot, arm_of, choose, schedule
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.style import STYLE_CHOICE, Choice, Style, Styles
from edpbrl_gym.study.visits import Visit, Visits

__all__ = ["StudyQueue", "page_waits_of"]

_EVERY = 6  # questions between two looks at the rule
_SURE, _FORECAST = "sure", "forecast"  # kinds of events
_log = logging.getLogger(__name__)
_TRIES = 10  # to store a question while others change the participant's history
_NOT_ASKED = {
    "enrolled": "has not consented yet",
    "failed": "gave answers on a page that were not accepted",
    "withdrawn": "has withdrawn",
    "timed_out": "was timed out",
}
_WAITED_FOR, _AHEAD = 0, 1  # who computes first: for a question, ahead


class Stopping:
    """Applies a study's stopping rule; what it says is kept as events."""

    def __init__(self, rule: StoppingRule | None, store: Store) -> None:
        self._rule, self._store = rule, store

    def is_due(self, slot: Slot) -> bool:
        """Whether the rule is to be asked before a question."""
        if self._rule is None or slot.kind != "normal" or slot.index < self._rule.minimum:
            return False
        return (slot.index - self._rule.minimum) % _EVERY == 0

    def decide(self, participant: Participant, progress: Progress, number: int) -> bool:
        """Whether the questions end before the one with a number, which is due."""
        assert self._rule is not None
        detail: dict[str, Any] = {"questions": progress.questions, "accuracy": progress.accuracy}
        if progress.should_stop:
            self._store.add_event(participant.id, _SURE, {**detail, "reason": progress.reason})
        else:
            left = progress.left
            detail |= {"number": number, "left": left.questions, "low": left.low, "high": left.high, "most": left.most}
            self._store.add_event(participant.id, _FORECAST, detail)
        return progress.should_stop

    def questions_left(self, participant: Participant, question: StoredQuestion, most: int) -> Left | None:
        """About how many of at most ``most`` questions follow this one, by the last forecast.

        None: there is no forecast yet, or it does not reach so far.
        """
        if self._rule is None:
            return Left(most, most, most, most)
        made = [one["detail"] for one in self._store.events(participant.id) if one["kind"] == _FORECAST]
        made = [one for one in made if one["number"] <= question.number]
        if not made or made[-1]["left"] is None:
            return None
        last = made[-1]
        forecast = Left(
            last["left"], *(last.get(name, last["left"]) for name in ("low", "high", "most"))
        )  # older: none
        return forecast.after(question.number - last["number"] + 1, at_most=most)


class StudyQueue:
    """Asks the questions of a study and stores the answers.

    The database is the truth. Sessions are made anew from it by replay, so a server can be killed at any time, and
    several servers can share one database. After an answer the next question is chosen in a thread, while the page is
    on its way; while a question is read, its options are embedded and its planner works ahead. ``planning`` says where;
    it is closed by whoever made it. Safe to use from several threads.

    Errors of its methods are those of ``records``, and a ``ValueError`` for an answer of another format.

    Raises:
        ValueError: The study in the database asked other questions: its configuration, vocabulary or encoder differ.
    """

    def __init__(
        self,
        config: StudyConfig,
        store: Store,
        materials: Materials,
        *,
        planning: Planning | None = None,
        pictures: Pictures | None = None,
    ) -> None:
        self.pictures, self.planning = pictures, planning or Planning(materials)
        self.resources = ExitStack()  # closed with the queue
        self.config, self.store, self.materials = config, store, materials
        self._posts = Posts(store.database)
        self._stopping = Stopping(config.questions.stopping, store)
        self._arms = {arm.name: arm for arm in config.arms}
        self._visits = Visits(lambda one: Visit(materials, one, self._arms[one.arm]))
        self._styles = Styles(materials, store, pictures, self.planning.style)
        self._replacing = Replacing(store, lambda: self.pictures, self._spare)
        materials.rest_on(store)
        self._fitting = ThreadPoolExecutor(1, thread_name_prefix="edpbrl-crowd")
        self._pool = ThreadPoolExecutor(self.planning.threads, thread_name_prefix="edpbrl-study")
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="edpbrl-ahead")
        self._queued: set[tuple[Callable[[Participant], object], int]] = set()  # for a thread of the pool
        self._lock = threading.Lock()
        asking = hashlib.sha256(json.dumps(
            [config.asking_fingerprint, materials.vocabulary.fingerprint, materials.encoder.fingerprint]
        ).encode()).hexdigest()  # fmt: skip
        if store.claim("asking", asking) != asking:
            raise ValueError(
                f"Expected the questions, arms, seed, vocabulary and encoder with which the study in "
                f"{store.database.name} began, got others; restore them, or begin a new study with another database"
            )
        for arm in config.arms if not self.planning.workers else ():  # otherwise they are prepared
            kind_of(arm).prepare(arm, materials)
        self._quotas = Quotas(
            config.recruitment.people, {arm.name: config.recruitment.arms.get(arm.name) for arm in config.arms}
        )
        self._note()
        for participant in store.without_question():  # after a kill: nobody but the study is waited for
            self._work(self._prepare, participant)

    def close(self) -> None:
        """Wait for the worker threads; the store stays open."""
        self.resources.close()
        for pool in (self._ahead, self._pool):  # the first gives work to the second
            pool.shutdown(cancel_futures=True)
        self._fitting.shutdown(cancel_futures=True)
        self._styles.close()

    # participants

    def enrol(self, external: Mapping[str, str], *, language: str | None = None) -> Participant:
        """The participant with these external identifiers, assigned to an arm if new.

        Raises:
            NoPlaceError: Nobody new is let in.
        """
        why = self.why_closed(external)
        if why is not None:
            raise NoPlaceError(why)
        chosen = language if language in self.config.languages else self.config.languages[0]
        return self.store.enrol(
            external, self._arm_of, language=str(chosen), quotas=self._quotas, pilot=self.config.recruitment.pilot
        )

    def _arm_of(self, place: int) -> str:
        return arm_of(self.config.arms, place, self.config.seed).name

    def why_closed(self, external: Mapping[str, str]) -> Closed | None:
        """Why somebody with these external identifiers is not let in; None: they are, or take part already."""
        recruitment = self.config.recruitment
        if (since := recruitment.idle_since) is not None:
            self.store.time_out(since, None, page_waits_of(self.config))
        why = recruitment.closed(datetime.now(UTC))
        if why is None and self._quotas.are_set:
            try:
                self._quotas.place(self.store.places(pilot=recruitment.pilot), self._arm_of)
            except NoPlaceError as error:
                why = error.why
        return None if why is None or self.store.is_known(external) else why

    def in_time(self, participant: Participant) -> Participant:
        """The participant, whose place is given back if it was time for that."""
        since = self.config.recruitment.idle_since
        if since is None or participant.place is None or participant.status == "finished":
            return participant
        ended = self.store.time_out(since, participant.id, page_waits_of(self.config))
        return self.store.participant(participant.code) if ended else participant

    def consent(self, participant: Participant) -> Participant:
        """Store the consent to the current version of its text."""
        starts = self._arms[participant.arm].prior == OF_STUDY
        return self.store.consent(participant.id, self.config.consent_version, starts=starts)

    def check_page(self, participant: Participant, key: str, read: PageForm, attempt: int, attempts: int) -> int | None:
        """How many attempts at a page are left after one whose answers are not accepted; None: they are.

        Without any the participation ends. An attempt that is sent again, under its number, counts once.
        """
        self._check_asking(participant)
        detail = {"page": key, "answers": read.answers, "correct": not read.wrong}
        self.store.add_event_number(attempt, participant.id, CHECKED, detail)
        tried = [one["detail"] for one in self.store.events(participant.id) if one["kind"] == CHECKED]
        tried = [one for one in tried if one.get("page") == key]
        if any(one["correct"] for one in tried):
            return None
        left = max(0, attempts - len(tried))
        if left == 0:
            self.store.set_status(participant.id, "failed")
            self._let_go(participant)
        return left

    def is_screened(self, participant: Participant) -> bool:
        """Whether the page whose answers were not accepted allowed one attempt only: nothing was to be understood."""
        tried = [one["detail"].get("page") for one in self.store.events(participant.id) if one["kind"] == CHECKED]
        return any(page.attempts == 1 for page in self.config.pages if tried and page.name == tried[-1])

    def store_page(self, participant: Participant, key: str, answers: Mapping[str, Any], timing: Timing) -> None:
        """Store what was answered on a page, under its key; the first time counts, and none after a time-out."""
        measured = {name: value for name, value in asdict(timing).items() if value is not None}
        detail = {"page": key, "answers": dict(answers), "timing": measured, "config": self.config.fingerprint[:16]}
        self.store.first_event(participant.id, PAGE, detail, about="page", refused=_NOT_ASKED)

    def withdraw(self, participant: Participant, *, asked_on: bool = False) -> None:
        """End a participation for good; without effect when it has ended already.

        Args:
            participant: Who withdraws.
            asked_on: Whether pages after the choices wait, until which nobody who made them has ended.
        """
        ended = ("failed", "timed_out") if asked_on else ("finished", "failed", "timed_out")
        if self.store.participant(participant.code).status not in ended:
            self.store.set_status(participant.id, "withdrawn")
        self._let_go(participant)

    def _check_asking(self, participant: Participant) -> Participant:
        return _asking(self.store.participant(participant.code))

    # questions and answers

    def next_question(self, participant: Participant) -> StoredQuestion | None:
        """The question that waits for an answer, a new one if there is none; None at the end."""
        current, question = self.store.waiting(participant.code)
        _asking(current)
        if question is None:
            question = self._prepare(participant)
        while question is not None and question.shown_at is None:
            lacking = self._replacing.lacking(participant, question)
            if not lacking:
                self.store.mark_shown(question.id)
                break
            self._replacing.replace(participant, question, lacking)
            question = self._prepare(participant)
        if question is None:
            return None
        if question.kind == "normal" and self._kind(participant).thinks(self._arms[participant.arm]):
            self._work(self._embed if self.planning.embeds else self._think, participant)
        return question

    def answer(self, participant: Participant, key: str, response: Response, timing: Timing | None = None) -> Receipt:
        """Store an answer, or a skip where a picture could not be seen; then it is on the disk. A key counts once."""
        questions = self.config.questions
        kinds = [*self.materials.model.kinds, *(["tie", "skip"] if questions.cant_tell else [])]
        if response.kind not in kinds:
            raise ValueError(f"Expected an answer of the kind {' or '.join(kinds)}, got {response.kind}")
        if self.pictures is not None:  # of what nobody could see nothing is told
            asked = self.store.waiting(participant.code)[1]
            if asked and asked.key == key and asked.expected is None and any(map(self.pictures.refused, asked.texts)):
                response = Response.skip()
        receipt = self.store.answer(participant.id, key, response, timing)
        if receipt.first:
            self._work(self._prepare, participant)
        return receipt

    def undo(self, participant: Participant, key: str) -> StoredQuestion | None:
        """Take back the answer to the question with ``key``, the last one; its question waits for an answer again."""
        if not self.config.questions.undo:
            raise NotAskingError("Expected a study whose answers can be taken back, this one has undo = false")
        current = self._check_asking(participant)
        question = self.store.undo(participant.id, key)
        if question is not None and current.status == "finished":
            self.store.set_status(participant.id, "asking")
        return question

    # the last question

    def style(self, participant: Participant) -> Style | None:
        """The learnt taste of a participant who has finished, beside random prompts; None: there is nothing to show."""
        return self._styles.find(participant)

    def prefer(self, participant: Participant, choice: Choice) -> str:
        """Store which group the participant prefers; the first choice counts and is returned."""
        if self.style(participant) is None:
            raise NotAskingError("Expected a participant who was shown a learnt taste, got one who was not")
        return str(self.store.first_event(participant.id, STYLE_CHOICE, {"chosen": choice})["chosen"])

    # the next question

    def _prepare(self, participant: Participant) -> StoredQuestion | None:
        """The question that waits for an answer; chosen and stored if there is none. None at the end."""
        for _ in range(_TRIES):
            try:
                return self._prepare_once(participant)
            except HistoryChangedError as error:  # by another tab, or another server
                changed = error
        raise changed

    def _prepare_once(self, participant: Participant) -> StoredQuestion | None:
        visit = self._visits.of(participant)
        with visit.lock:
            waiting = self.store.waiting(participant.code)[1]
            if waiting is not None:
                return waiting
            current, history = self.store.situation(participant.code)
            waiting, status = _waiting(history), current.status
            if waiting is not None:  # since, from another server
                return waiting
            if status == "finished" or status in _NOT_ASKED:
                self._let_go(participant)
                return None
            slots, place = self._slots(participant), len(history)
            slot = slots[place] if place < len(slots) else None
            if slot is None or self._is_over(participant, visit, slot, history):
                self.store.set_status(participant.id, "finished")
                self._note()  # before the visit is let go: who waits for its end then finds the crowd
                self._let_go(participant)
                self._work(self.style, participant)
                return None
            if status == "consented":
                self.store.set_status(participant.id, "asking")
            return self._add(participant, visit, slot, history)

    def _is_over(self, participant: Participant, visit: Visit, slot: Slot, history: History) -> bool:
        """Whether the stopping rule ends the questions before this one."""
        if not self._stopping.is_due(slot):
            return False
        visit.start()  # where others must be fitted, nobody else waits
        with self.planning.turn(visit, _WAITED_FOR):
            planned = as_planned(history, self._replaced(participant))
            return self._stopping.decide(participant, self.planning.progress(visit, planned), len(history))

    def _spare(self, participant: Participant) -> int | None:
        """How many questions that count can be replaced; none where they are steps of prompts that grow."""
        return self._kind(participant).spare(self._arms[participant.arm], self.materials) if self._is_whole else 0

    @property
    def _is_whole(self) -> bool:
        return self.materials.per_episode == 1

    def _replaced(self, participant: Participant) -> list[dict[str, Any]]:
        """What was replaced and is not taken back."""
        return [] if self.pictures is None else replaced_now(self.store.events(participant.id))

    def _kind(self, participant: Participant) -> ArmKind:
        return kind_of(self._arms[participant.arm])

    def _slots(self, participant: Participant) -> list[Slot]:
        """The order; when an oracle has finished, without what it didn't post."""
        count = self._kind(participant).count(lambda: self._posts.final_count(participant.id))
        return schedule(self.config, participant.number, count)

    def questions_left(self, participant: Participant, question: StoredQuestion) -> Left | None:
        """About how many questions are left after this one; None: nobody knows."""
        most = len(self._slots(participant)) - question.number - 1
        return self._stopping.questions_left(participant, question, most)

    def known_next(self, participant: Participant, history: History) -> list[str]:
        """The options of the question after the one that waits, if the answer can't change them; otherwise none."""
        slots, place = self._slots(participant), len(history)
        if _waiting(history) is None or place >= len(slots):
            return []
        slot, visit = slots[place], self._visits.of(participant)
        if slot.kind == "normal" and not visit.is_independent:
            return []
        replaced = self._replaced(participant)
        return choose(
            self.materials, participant, slot, history, lambda before: visit.choose(as_planned(before, replaced))
        ).texts

    def _add(self, participant: Participant, visit: Visit, slot: Slot, history: History) -> StoredQuestion:
        post = None
        if slot.kind == "normal":
            post = self._kind(participant).post(lambda number: self._posts.find(participant.id, number), slot.index)
        planned = slot.kind == "normal" and post is None and not visit.is_independent
        if planned:
            visit.start()
        by = partial(self.planning.choose, visit) if planned else visit.choose
        with self.planning.turn(visit, _WAITED_FOR) if planned else nullcontext():
            replaced = self._replaced(participant)
            chosen = choose(
                self.materials,
                participant,
                slot,
                history,
                lambda before: by(as_planned(before, replaced)),
                post,
                number_replaced(replaced, len(history)),
            )
        question = self.store.add_question(participant.id, len(history), **vars(chosen))
        if self.pictures is not None:
            self.pictures.ahead(question.texts)
        return question

    def _embed(self, participant: Participant) -> None:
        """Embed the options that are being read, then let the planner work ahead; nobody waits for either."""
        question = self.store.waiting(participant.code)[1]
        if question is not None and question.kind == "normal":  # otherwise it is answered already
            self.planning.embed(question.texts)
            self._work(self._think, participant)

    def _think(self, participant: Participant) -> None:
        """Let the planner work ahead while the question is read, unless somebody waits for a question."""
        visit = self._visits.of(participant)
        visit.start()
        with self.planning.turn(visit, _AHEAD):
            if not visit.lock.acquire(blocking=False):  # the next question is being chosen already
                return
            try:
                current, history = self.store.situation(participant.code)
                if current.status == "finished" or current.status in _NOT_ASKED:
                    self._let_go(participant)
                    return
                waiting = _waiting(history)
                if waiting is not None and waiting.kind == "normal":
                    self.planning.think(visit, as_planned(history, self._replaced(participant)))
            finally:
                visit.lock.release()

    # sessions and threads

    def _let_go(self, participant: Participant) -> None:
        self._visits.let_go(participant)
        self.planning.let_go(participant)

    def _note(self) -> None:
        """Note a crowd if it is time for one, and fit the last one before somebody starts from it."""
        crowds = self.materials.crowds
        if not crowds.are_used:
            return
        crowds.note()
        try:
            self._fitting.submit(crowds.last_prior).add_done_callback(_report)
        except RuntimeError:  # closed in the meantime: it is fitted when it is needed
            pass

    def _work(self, work: Callable[[Participant], object], participant: Participant) -> None:
        """Do something in a worker thread; what fails there is tried again, and raised, where somebody asks for it.

        What waits for a thread already is not added again: on a machine that is too busy the list would grow.
        """
        key = work, participant.id
        with self._lock:
            if key in self._queued:
                return
            self._queued.add(key)

        def begin() -> None:
            with self._lock:
                self._queued.discard(key)
            work(participant)

        try:
            future = (self._ahead if work == self._embed else self._pool).submit(begin)
        except RuntimeError:  # closed in the meantime: the answer is stored, and the next server goes on
            return
        future.add_done_callback(_report)


def page_waits_of(config: StudyConfig) -> PageWaits:
    """Tells whether a page of questions is due after events and so many answers."""

    def waits(happened: list[dict[str, Any]], answered: int) -> bool:
        return due_among_choices(config.pages, entries_of(happened), answered, config.most_choices) is not None

    return waits


def _asking(participant: Participant) -> Participant:
    if participant.status in _NOT_ASKED:
        raise NotAskingError(f"Expected a participant who may be asked, got one who {_NOT_ASKED[participant.status]}")
    return participant


def _waiting(history: History) -> StoredQuestion | None:
    return history[-1][0] if history and history[-1][1] is None else None


def _report(future: Any) -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None and not isinstance(error, NotReadyError):
        _log.warning("A question could not be prepared in advance: %s", error)
