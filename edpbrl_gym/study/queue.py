"""One queue in front of any planner: the next question of each participant, and what becomes of an answer."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.arms import arm_of
from edpbrl_gym.study.choosing import choose
from edpbrl_gym.study.config import ORACLE, Arm, StudyConfig
from edpbrl_gym.study.materials import FIXED, Materials
from edpbrl_gym.study.pictures import Pictures
from edpbrl_gym.study.posts import Posts
from edpbrl_gym.study.records import (
    AnswerReadError,
    History,
    HistoryChangedError,
    NotAskingError,
    NotReadyError,
    Participant,
    Receipt,
    StoredQuestion,
    Timing,
)
from edpbrl_gym.study.schedule import Slot, schedule
from edpbrl_gym.study.seats import INDEPENDENT, Seat
from edpbrl_gym.study.stopping import Stopping
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.style import STYLE, STYLE_CHOICE, Choice, Style, make_style
from edpbrl_gym.study.turns import Turns

__all__ = ["AnswerReadError", "NotAskingError", "NotReadyError", "StudyQueue"]

_log = logging.getLogger(__name__)
_SEATS = 512  # sessions kept in memory; others are made anew from the stored answers
_TRIES = 10  # to store a question while others change the participant's history
_NOT_ASKED = {
    "enrolled": "has not consented yet",
    "failed": "failed the comprehension check",
    "withdrawn": "has withdrawn",
}
_WAITED_FOR, _LAST, _AHEAD = 0, 1, 2  # whose turn it is first: a question, a learnt taste, planning ahead


class StudyQueue:
    """Asks the questions of a study and stores the answers.

    The database is the truth. Sessions are made anew from it by replay, so a server can be killed at any time, and
    several servers can share one database. After an answer the next question is chosen in a worker thread, while the
    page is on its way; while a question is read, its planner works ahead. Safe to use from several threads.

    Args:
        config: Configuration of the study.
        store: Its database.
        materials: What its questions are made of.
        workers: Number of worker threads.
        pictures: Draws the pictures of the options; None: they are shown as text.

    Raises:
        ValueError: The study in the database asked other questions: its configuration, vocabulary or encoder differ.
    """

    def __init__(
        self,
        config: StudyConfig,
        store: Store,
        materials: Materials,
        *,
        workers: int = 1,
        pictures: Pictures | None = None,
    ) -> None:
        self.pictures = pictures
        self.config, self.store, self.materials = config, store, materials
        self._posts = Posts(store.database)
        self._stopping = Stopping(config.questions.stopping, store)
        self._arms = {arm.name: arm for arm in config.arms}
        self._seats: OrderedDict[int, Seat] = OrderedDict()
        self._lock = threading.Lock()
        self._turns = Turns()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="edpbrl-study")
        asking = hashlib.sha256(json.dumps(
            [config.asking_fingerprint, materials.vocabulary.fingerprint, materials.encoder.fingerprint]
        ).encode()).hexdigest()  # fmt: skip
        if store.claim("asking", asking) != asking:
            raise ValueError(
                f"Expected the questions, arms, seed, vocabulary and encoder with which the study in "
                f"{store.database.name} began, got others; restore them, or begin a new study with another database"
            )
        for arm in config.arms:  # what all sessions of an arm share is made now, before people wait
            if arm.planner != ORACLE:
                materials.session(arm, 0)

    def close(self) -> None:
        """Wait for the worker threads; the store stays open."""
        self._pool.shutdown(cancel_futures=True)

    # participants

    def enrol(self, external: Mapping[str, str], *, language: str | None = None) -> Participant:
        """The participant with these external identifiers, assigned to an arm if new."""
        chosen = language if language in self.config.languages else self.config.languages[0]
        arms, seed = self.config.arms, self.config.seed
        return self.store.enrol(external, lambda number: arm_of(arms, number, seed).name, language=str(chosen))

    def consent(self, participant: Participant) -> Participant:
        """Store the consent to the current version of its text."""
        return self.store.consent(participant.id, self.config.consent_version)

    def check_comprehension(self, participant: Participant, answers: Sequence[int], attempt: int) -> bool:
        """Whether the participant has answered correctly about the instructions; too many attempts end it all.

        Args:
            participant: The participant.
            answers: A choice for each question.
            attempt: Number of the attempt, from 0; sent twice, it counts once, and its first answers count.

        Raises:
            NotAskingError: The participation has ended.
            ValueError: The attempts before it are missing.
        """
        self._check_asking(participant)
        practice = self.config.practice
        correct = list(answers) == [question.correct for question in practice.comprehension]
        detail = {"answers": list(answers), "correct": correct}
        self.store.add_event_number(attempt, participant.id, "comprehension", detail)
        attempts = [one["detail"] for one in self.store.events(participant.id) if one["kind"] == "comprehension"]
        passed = any(one["correct"] for one in attempts)
        if not passed and len(attempts) >= practice.attempts:
            self.store.set_status(participant.id, "failed")
        return passed

    def _check_asking(self, participant: Participant) -> Participant:
        return _asking(self.store.participant(participant.code))

    # questions and answers

    def next_question(self, participant: Participant) -> StoredQuestion | None:
        """The question that waits for an answer, a new one if there is none; None at the end.

        Raises:
            NotAskingError: There is no consent yet, or the participation has ended.
            NotReadyError: The next question comes from an oracle, which has not posted it yet.
        """
        current, history = self.store.situation(participant.code)
        _asking(current)
        question = _waiting(history)
        if question is None:
            question = self._prepare(participant)
        if question is None:
            return None
        if question.shown_at is None:
            self.store.mark_shown(question.id)
        if question.kind == "normal" and self._arms[participant.arm].planner not in (*INDEPENDENT, ORACLE):
            self._work(self._think, participant)
        return question

    def answer(self, participant: Participant, key: str, response: Response, timing: Timing | None = None) -> Receipt:
        """Store an answer; when this returns, it is on the disk. The same key answers once.

        Args:
            participant: The participant.
            key: Key of the question.
            response: The answer, about the options as ``StoredQuestion.texts`` numbers them.
            timing: What the browser measured.

        Raises:
            ValueError: An answer of another format than the study's.
            LookupError, RuntimeError: As for ``Store.answer``.
        """
        self._check_format(response)
        receipt = self.store.answer(participant.id, key, response, timing)
        if receipt.first:
            self._work(self._prepare, participant)
        return receipt

    def skip(self, participant: Participant, key: str, timing: Timing | None = None) -> Receipt:
        """Leave a question without an answer; as for ``answer``."""
        return self.answer(participant, key, Response.skip(), timing)

    def undo(self, participant: Participant, key: str) -> StoredQuestion | None:
        """Take back the answer to the question with ``key``, the last one; its question waits for an answer again.

        Raises:
            NotAskingError: The study allows no undo, or the participation has ended.
            UnknownQuestionError: It is not the last answer.
            AnswerReadError: An oracle's loop has gone on with the answer.
        """
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
        count = self.config.style
        if not count or self._is_oracle(participant):  # what was learnt is in the oracle's loop
            return None
        if self.store.participant(participant.code).status != "finished":
            return None
        seat = self._seat(participant)
        with seat.lock:
            shown = next((one for one in self.store.events(participant.id) if one["kind"] == STYLE), None)
            if shown is not None:
                return Style.from_json(shown["detail"])
            arm = self._arms[participant.arm]
            if arm.planner == FIXED:  # which learns nothing; random questions are learnt from in the same way
                seat = Seat(self.materials, participant, Arm(arm.name, "random", prior=arm.prior))
            session = seat.session(self.store.history(participant.id))
            with self._turns.turn(_LAST):
                style = make_style(self.materials, participant, session, count)
        if style is None:
            return None
        style = Style.from_json(self.store.first_event(participant.id, STYLE, style.as_json()))
        if self.pictures is not None:
            self.pictures.ahead([*style.learnt, *style.random])
        return style

    def prefer(self, participant: Participant, choice: Choice) -> str:
        """Store which group the participant prefers; the first choice counts and is returned.

        Raises:
            NotAskingError: No groups were shown.
        """
        if self.style(participant) is None:
            raise NotAskingError("Expected a participant who was shown a learnt taste, got one who was not")
        return str(self.store.first_event(participant.id, STYLE_CHOICE, {"chosen": choice})["chosen"])

    def _check_format(self, response: Response) -> None:
        questions = self.config.questions
        kinds = [*self.materials.model.kinds, *(["tie", "skip"] if questions.cant_tell else [])]
        if response.kind not in kinds:
            raise ValueError(f"Expected an answer of the kind {' or '.join(kinds)}, got {response.kind}")

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
        seat = self._seat(participant)
        with seat.lock:
            current, history = self.store.situation(participant.code)
            waiting, status = _waiting(history), current.status
            if waiting is not None:
                return waiting
            if status == "finished" or status in _NOT_ASKED:
                return None
            slots, place = self._slots(participant), len(history)
            slot = slots[place] if place < len(slots) else None
            if slot is None or self._is_over(participant, seat, slot, history):
                self.store.set_status(participant.id, "finished")
                self._work(self.style, participant)
                return None
            if status == "consented":
                self.store.set_status(participant.id, "asking")
            return self._add(participant, seat, slot, history)

    def _is_over(self, participant: Participant, seat: Seat, slot: Slot, history: History) -> bool:
        """Whether the stopping rule ends the questions before this one."""
        if not self._stopping.is_due(slot):
            return False
        with self._turns.turn(_WAITED_FOR):
            return self._stopping.decide(participant, seat.session(history).progress(), len(history))

    def _is_oracle(self, participant: Participant) -> bool:
        """Whether an oracle posts the participant's questions that count."""
        return self._arms[participant.arm].planner == ORACLE

    def _slots(self, participant: Participant) -> list[Slot]:
        """The order; when an oracle has finished, without what it didn't post."""
        slots = schedule(self.config, participant.number)
        count = self._posts.final_count(participant.id) if self._is_oracle(participant) else None
        if count is None:
            return slots
        return [slot for slot in slots if slot.kind not in ("normal", "repeat") or slot.index < count]

    def questions_left(self, participant: Participant, question: StoredQuestion) -> int | None:
        """About how many questions are left after this one; None: nobody knows."""
        most = len(self._slots(participant)) - question.number - 1
        return self._stopping.questions_left(participant, question, most)

    def known_next(self, participant: Participant, history: History) -> list[str]:
        """The options of the question after the one that waits, if the answer can't change them; otherwise none."""
        slots, place = self._slots(participant), len(history)
        if _waiting(history) is None or place >= len(slots):
            return []
        slot, seat = slots[place], self._seat(participant)
        if slot.kind == "normal" and not seat.is_independent:
            return []
        return choose(self.materials, participant, slot, history, seat.choose).texts

    def _add(self, participant: Participant, seat: Seat, slot: Slot, history: History) -> StoredQuestion:
        """Choose the question of a slot and store it."""
        post = None
        if slot.kind == "normal" and self._is_oracle(participant):
            post = self._posts.find(participant.id, slot.index)
            if post is None:
                raise NotReadyError("Expected a question that the oracle has posted, there is none yet; try again soon")
        planned = slot.kind == "normal" and post is None and not seat.is_independent
        with self._turns.turn(_WAITED_FOR) if planned else nullcontext():
            chosen = choose(self.materials, participant, slot, history, seat.choose, post)
        question = self.store.add_question(participant.id, len(history), **vars(chosen))
        if self.pictures is not None:
            self.pictures.ahead(question.texts)
        return question

    def _think(self, participant: Participant) -> None:
        """Let the planner work ahead while the question is read, unless somebody waits for a question."""
        seat = self._seat(participant)
        with self._turns.turn(_AHEAD):
            if not seat.lock.acquire(blocking=False):  # the next question is being chosen already
                return
            try:
                history = self.store.history(participant.id)
                waiting = _waiting(history)
                if waiting is not None and waiting.kind == "normal":
                    session = seat.session(history)
                    session.ask()
                    if self.config.questions.stopping is None:
                        session.planner.think()
                    else:
                        session.think()
            finally:
                seat.lock.release()

    # sessions and threads

    def _seat(self, participant: Participant) -> Seat:
        with self._lock:
            seat = self._seats.pop(participant.id, None)
            if seat is None:
                seat = Seat(self.materials, participant, self._arms[participant.arm])
            self._seats[participant.id] = seat
            while len(self._seats) > _SEATS:
                self._seats.popitem(last=False)
            return seat

    def _work(self, work: Callable[[Participant], object], participant: Participant) -> None:
        """Do something in a worker thread; what fails there is tried again, and raised, by ``next_question``."""
        try:
            future = self._pool.submit(work, participant)
        except RuntimeError:  # closed in the meantime: the answer is stored, and the next server goes on
            return
        future.add_done_callback(_report)


def _asking(participant: Participant) -> Participant:
    if participant.status in _NOT_ASKED:
        raise NotAskingError(f"Expected a participant who may be asked, got one who {_NOT_ASKED[participant.status]}")
    return participant


def _waiting(history: History) -> StoredQuestion | None:
    """The question that waits for an answer."""
    return history[-1][0] if history and history[-1][1] is None else None


def _report(future: Any) -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None and not isinstance(error, NotReadyError):
        _log.warning("A question could not be prepared in advance: %s", error)
