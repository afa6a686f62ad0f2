"""What was learnt about a participant, beside prompts drawn at random: the last question, without names."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.exc import SQLAlchemyError

from edpbrl_gym._seeds import generator
from edpbrl_gym._threads import give_back
from edpbrl_gym.session import Session
from edpbrl_gym.study.arms import kind_of
from edpbrl_gym.study.config import Arm
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.pictures import Pictures
from edpbrl_gym.study.records import History, NotReadyError, Participant, UnknownParticipantError
from edpbrl_gym.study.store import Store

__all__ = ["STYLE", "STYLE_CHOICE", "Choice", "Style", "Styles", "make_style"]

_log = logging.getLogger(__name__)

STYLE, STYLE_CHOICE = "style", "style_choice"
"""Kinds of events: the two groups as they were shown, and which one the participant preferred."""

Choice = Literal["learnt", "random", "tie"]

Make = Callable[[Participant, Arm, History], "Style | None"]
_TRIES = 200  # random prompts drawn at most
_ANSWER = "answer"  # row of the last answer, in the event


@dataclass(frozen=True)
class Style:
    """Two groups of prompts."""

    learnt: tuple[str, ...]  # prompts of the learnt taste, best first
    random: tuple[str, ...]  # as many prompts drawn at random
    learnt_first: bool  # whether the page shows the learnt ones first

    @property
    def groups(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Name and prompts of the groups in the order of the page."""
        groups = (("learnt", self.learnt), ("random", self.random))
        return groups if self.learnt_first else groups[::-1]

    def as_json(self) -> dict[str, Any]:
        return {"learnt": list(self.learnt), "random": list(self.random), "learnt_first": self.learnt_first}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Style:
        return cls(tuple(value["learnt"]), tuple(value["random"]), bool(value["learnt_first"]))


def make_style(materials: Materials, participant: Participant, session: Session, count: int) -> Style | None:
    """The groups of a participant; None if the vocabulary has no prompt beside those that were learnt."""
    learnt = tuple(one.text for one in session.recommend(count))
    rng = generator(materials.config.seed, "style", participant.number)
    drawn: list[str] = []
    for _ in range(_TRIES):
        text = materials.vocabulary.prompt(rng.integers(materials.vocabulary.sizes))
        if len(drawn) < len(learnt) and text not in (*learnt, *drawn):
            drawn.append(text)
    number = len(drawn)  # fewer than asked for in a vocabulary of a few prompts
    return Style(learnt[:number], tuple(drawn), bool(rng.integers(2))) if number else None


class Styles:
    """Makes the groups of those who have finished, one after the other in a thread of its own.

    Nobody waits for it: a page asks ``find``, and asks again while they are being made. The first groups that are
    stored are those that are shown, whichever server made them; what a killed server was making is made when it is
    asked for again. The session is made anew from the stored answers, and let go afterwards.
    """

    def __init__(self, materials: Materials, store: Store, pictures: Pictures | None, make: Make) -> None:
        self._materials, self._store, self._pictures, self._make_style = materials, store, pictures, make
        self._arms = {arm.name: arm for arm in materials.config.arms}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="edpbrl-style")
        self._work: dict[tuple[int, int | None], Future[None]] = {}  # by participant and last answer
        self._lock = threading.Lock()

    def close(self) -> None:
        """Wait for the groups that are being made; those whose turn has not come are not made."""
        self._pool.shutdown(cancel_futures=True)

    def find(self, participant: Participant) -> Style | None:
        """The groups of a participant; None: there is nothing to show."""
        if not self._materials.config.style or self._learner(participant) is None:
            return None
        current, history = self._store.situation(participant.code)
        learns = any(
            question.kind == "normal" and answer is not None and answer.response.kind not in ("skip", "tie")
            for question, answer in history
        )
        if current.status != "finished" or not learns:
            return None
        shown = self._stored(participant, _last(history))
        if shown is not None:
            return shown
        if not self._begin(current, _last(history)).done():
            raise NotReadyError("Expected groups that are made, these are being made; ask again in a second")
        return self._stored(participant, _last(history))

    def _learner(self, participant: Participant) -> Arm | None:
        arm = self._arms.get(participant.arm)
        return None if arm is None else kind_of(arm).learner(arm)

    def _stored(self, participant: Participant, last: int | None) -> Style | None:
        """The groups that were made of all answers up to the last one; events of before do not name it."""
        for event in self._store.events(participant.id):
            if event["kind"] == STYLE and event["detail"].get(_ANSWER, last) == last:
                return Style.from_json(event["detail"])
        return None

    def _begin(self, participant: Participant, last: int | None) -> Future[None]:
        """Make the groups after an answer, once."""
        key = (participant.id, last)
        with self._lock:
            if key not in self._work:
                try:
                    self._work[key] = self._pool.submit(self._make, participant, key)
                except RuntimeError:  # closed in the meantime: the next server makes them
                    return Future()
            return self._work[key]

    def _make(self, participant: Participant, key: tuple[int, int | None]) -> None:
        try:
            if self._stored(participant, key[1]) is None and (history := self._unchanged(participant, key[1])):
                style = self._style(participant, history)
                if style is None:
                    return
                if self._unchanged(participant, key[1]):  # also while it was made
                    detail = {**style.as_json(), _ANSWER: key[1]}
                    style = Style.from_json(self._store.first_event(participant.id, STYLE, detail, about=_ANSWER))
                    if self._pictures is not None:
                        self._pictures.ahead([*style.learnt, *style.random], soon=False)
        except UnknownParticipantError:  # deleted while it was made
            pass
        except NotReadyError as error:  # of dying processes
            _log.warning("A learnt taste could not be made; it is tried again when it is asked for: %s", error)
        except (OSError, SQLAlchemyError) as error:  # of the database
            _log.error("A learnt taste could not be stored; it is made again when it is asked for: %s", error)
        except Exception as error:  # of these answers, also the next time; the completion code is shown all the same
            _log.error("A learnt taste could not be made, so none is shown", exc_info=error)
            return
        finally:
            give_back()
        with self._lock:
            self._work.pop(key, None)

    def _unchanged(self, participant: Participant, last: int | None) -> History:
        """The history of somebody who has finished with this answer; empty after they took it back or withdrew."""
        current, history = self._store.situation(participant.code)
        return history if current.status == "finished" and _last(history) == last else []

    def _style(self, participant: Participant, history: History) -> Style | None:
        arm = self._learner(participant)
        assert arm is not None  # see ``find``
        return self._make_style(participant, arm, history)


def _last(history: History) -> int | None:
    """Row of the last answer; None: there is none."""
    return max((answer.id for _, answer in history if answer is not None), default=None)
