"""Questions whose pictures can't all be shown are replaced before anybody sees them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

from edpbrl_gym.likelihood import Response
from edpbrl_gym.rendering import NotDrawn
from edpbrl_gym.rendering.base import OverBudget
from edpbrl_gym.study.records import History, NotReadyError, Participant, StoredAnswer, StoredQuestion, Timing

if TYPE_CHECKING:
    from edpbrl_gym.study.pictures import Pictures
    from edpbrl_gym.study.store import Store

__all__ = ["REPLACED", "Replacing", "as_planned", "number_replaced", "replaced_now"]

REPLACED = "replaced"
"""Kind of the event of a question that was replaced: which one, and why each text has no picture."""
_TRIES = 2  # to draw a text, before it is left out
_DRAWN = 5  # questions at one place that are replaced after a picture was tried
_MOST = 25  # at one place, those included that had a text which is left out already
_PLACES = 3  # in a row without pictures, after which nothing is replaced until a question has its pictures
_WAIT = 1.5  # seconds in which the pictures of most questions are drawn
_PATIENCE = 120.0  # seconds after which a question is shown without its pictures
_log = logging.getLogger(__name__)
_Detail = dict[str, Any]


def replaced_now(happened: Iterable[Mapping[str, Any]]) -> list[_Detail]:
    """The details of the questions that were replaced, of events in order; none of those after an answer taken back."""
    found: list[_Detail] = []
    for one in happened:
        if one["kind"] == REPLACED:
            found.append(one["detail"])
        elif one["kind"] == "undo":
            found = [detail for detail in found if detail["number"] <= one["detail"]["number"]]
    return found


def number_replaced(replaced: Sequence[_Detail], number: int) -> int:
    """How many questions were replaced at the place with a number."""
    return sum(detail["number"] == number for detail in replaced)


def as_planned(history: History, replaced: Sequence[_Detail]) -> History:
    """A history as planners are told it: those that were replaced are among it, each as a skip, so others are asked."""
    told = [(detail["number"], 0, _skipped(detail)) for detail in replaced if detail["kind"] == "normal"]
    if not told:
        return history
    told += [(question.number, 1, (question, answer)) for question, answer in history]
    return [pair for _, _, pair in sorted(told, key=lambda one: one[:2])]


def _skipped(detail: _Detail) -> tuple[StoredQuestion, StoredAnswer | None]:
    names = ("number", "kind", "tokens", "texts", "positions")
    row = detail["question"]
    question = StoredQuestion(
        **{name: detail[name] for name in names},
        **{"id": row, "key": "", "expected": None, "repeat_of": None, "created_at": detail["at"], "shown_at": None},
        struck=True,
    )
    return question, StoredAnswer(-row, row, Response.skip(), detail["at"], Timing(), "", "")


class Replacing:
    """Decides which questions are replaced, and remembers the texts without a picture, which the study leaves out.

    A text is left out for good when a safety checker withheld its picture, or its drawing failed twice for a reason of
    its own; not when the renderer as a whole can't draw, such as a service out of reach: that is waited for.

    Args:
        store: Of the study.
        pictures: Gives the pictures at the time; None: there are none.
        spare: How many questions that count of a participant can be replaced; None: any number.
    """

    def __init__(
        self,
        store: Store,
        pictures: Callable[[], Pictures | None],
        spare: Callable[[Participant], int | None],
    ) -> None:
        self._store, self._pictures, self._spare = store, pictures, spare
        self._left_out = store.without_pictures(REPLACED)
        self._tries = Counter[str]()
        self._fresh = set[str]()  # texts that were tried, and for which no question has been replaced yet
        self._since: dict[int, float] = {}  # when the pictures of a question were first waited for
        self._places = 0  # in a row without pictures
        self._told = ""

    def lacking(self, participant: Participant, question: StoredQuestion) -> dict[str, str]:
        """The texts for which a question that nobody has seen is to be replaced, and why; empty: it can be shown.

        Raises:
            NotReadyError: Its pictures are being drawn.
        """
        pictures = self._pictures()
        if pictures is None:
            return {}
        replaced = replaced_now(self._store.events(participant.id))
        here = [detail for detail in replaced if detail["number"] == question.number]
        spare = self._spare(participant) if question.kind == "normal" else None
        counted = sum(detail["kind"] == "normal" for detail in replaced)
        has_others = question.kind != "repeat" and (spare is None or counted < spare)
        is_worth_it = len(here) < _MOST and sum(detail["drawn"] for detail in here) < _DRAWN and self._places < _PLACES
        known = {text: self._left_out[text] for text in question.texts if text in self._left_out}
        if known and has_others and is_worth_it:
            return known
        lacking = self._drawn(pictures, question)
        if not lacking:
            self._places = 0
            return {}
        self._fresh |= lacking.keys() - self._left_out.keys()
        self._left_out |= lacking
        if has_others and not is_worth_it:
            self._complain(question, lacking)
        return lacking if has_others and is_worth_it else {}

    def _drawn(self, pictures: Pictures, question: StoredQuestion) -> dict[str, str]:
        """The texts of a question without a picture, and why; raises as ``lacking``."""
        until = time.monotonic() + _WAIT
        while True:
            futures = {
                text: state
                if self._tries[text] >= _TRIES and pictures.refused(text) and (state := pictures.state(text))
                else pictures.get(text)
                for text in question.texts
            }
            _, waited = wait(futures.values(), timeout=max(0.0, until - time.monotonic()))
            lacking, again = dict[str, str](), False
            for text, future in futures.items():
                if future in waited or future.cancelled():
                    continue
                error = future.exception()
                if error is None and future.result() is None:
                    lacking[text] = "withheld by the safety checker"
                elif isinstance(error, OverBudget):
                    return {}
                elif isinstance(error, NotDrawn):
                    self._tries[text] += 1
                    again |= self._tries[text] < _TRIES
                    lacking[text] = str(error)
                elif error is not None:  # of the renderer as a whole
                    waited.add(future)
            if not again and (lacking or not waited):
                self._since.pop(question.id, None)
                return lacking
            if time.monotonic() >= until or not again:
                if time.monotonic() - self._since.setdefault(question.id, time.monotonic()) > _PATIENCE:
                    self._since.pop(question.id)
                    return {}
                raise NotReadyError("Expected pictures that are drawn, these are being drawn; ask again in a second")

    def replace(self, participant: Participant, question: StoredQuestion, lacking: Mapping[str, str]) -> None:
        """Take a question away that nobody has seen, so that another one is chosen for its place."""
        drawn = self._fresh & lacking.keys()
        self._fresh -= drawn
        if self._store.replace(participant.id, question.id, REPLACED, {"why": dict(lacking), "drawn": bool(drawn)}):
            for text in drawn:
                _log.warning("Questions with %r are replaced, it has no picture: %s", text, lacking[text])

    def _complain(self, question: StoredQuestion, lacking: Mapping[str, str]) -> None:
        self._places += 1
        why = next(iter(lacking.values()))
        if why != self._told:
            self._told = why
            _log.error(
                "Expected a question whose pictures can all be drawn, found none at place %d (%s): people see signs in "
                "their place, and what they answer to these questions is stored as skips. See to [pictures], or stop "
                "the study",
                question.number + 1,
                why,
            )
