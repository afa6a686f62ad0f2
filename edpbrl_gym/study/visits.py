"""The sessions of participants, each brought to where the stored answers are."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.session import Session
from edpbrl_gym.session.questions import check_distinct
from edpbrl_gym.session.transcript import Transcript
from edpbrl_gym.study.arms import kind_of
from edpbrl_gym.study.config import OF_STUDY, Arm
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.records import History, Participant

__all__ = ["Visit", "Visits"]

_MOST = 128  # visits in memory; with an adaptive planner and 384 features one takes about 10 MB
_IDLE = 600.0  # seconds without a request after which a visit is let go


class Visit:
    """A participant's session in this process. The database is the truth: the session follows it, or is made anew."""

    def __init__(self, materials: Materials, participant: Participant, arm: Arm) -> None:
        self.lock = threading.RLock()  # to be held while the session is used
        self._materials = materials
        self.participant, self._number = participant, participant.number
        self._arm = arm
        self._started: Arm | None = None
        self._session: Session | None = None
        self._told: list[int] = []  # rows of the answers that the session knows

    def start(self, prior: TastePrior | None = None) -> Arm:
        """The arm with the prior from which the participant starts; other people's answers may have to be fitted.

        ``prior`` is the one, where another process has fitted it.
        """
        if self._started is None:
            crowds, arm = self._materials.crowds, self._arm
            self._started = crowds.arm(arm, self.participant) if prior is None else replace(arm, prior=prior)
        return self._started

    @property
    def waits_for_others(self) -> bool:
        """Whether it is not known yet from which people the participant starts."""
        return self._started is None and self._arm.prior == OF_STUDY

    @property
    def is_independent(self) -> bool:
        """Whether questions depend on their number alone, not on answers."""
        return kind_of(self._arm).is_independent(self._arm) and self._materials.config.questions.stopping is None

    def choose(self, history: History) -> NDArray[np.int64]:
        """Prompts (K, h + 1) of the next question that counts, after a history without a waiting question.

        Of an independent arm a question may wait: answers are not told, and nothing is embedded.
        """
        if not self.is_independent:
            return self.session(history).choose()
        asked = [question for question, _ in history if question.kind == "normal"]
        planner = kind_of(self._arm).planner(self._arm, self._materials, self._number)
        maker = self._materials.maker
        horizon = maker.vocabulary.horizon
        before = np.empty((planner.num_options, 0), dtype=np.int64)
        for question in asked:
            tokens = np.array(question.tokens, dtype=np.int64)
            for step in range(tokens.shape[1] - maker.num_new, tokens.shape[1]):
                planner.follow(tokens[:, :step], tokens[:, step])
            before = tokens if tokens.shape[1] < horizon else before[:, :0]
        for _ in range(maker.num_new):
            before = maker.extended(before, planner.ask(before))
        check_distinct(maker.texts(before), planner.name, number=len(asked), step=before.shape[1] - 1)
        return before

    def session(self, history: History) -> Session:
        """The session, told all answers of the history to questions that count."""
        normal = [(question, answer) for question, answer in history if question.kind == "normal"]
        rows = [answer.id for _, answer in normal if answer is not None]
        if self._session is None or not self._follow(self._session, normal, rows):
            self._session = self._rebuilt(normal)
        self._told = rows
        return self._session

    def _follow(self, session: Session, normal: History, rows: list[int]) -> bool:
        """Undo and tell what has changed since; False if the session was asked something else than the history."""
        common = 0
        while common < min(len(rows), len(self._told)) and rows[common] == self._told[common]:
            common += 1
        if len(self._told) - common > 1:
            return False
        self._told = []  # if a step fails, the session is made anew
        if session.answered > common:
            session.undo()
        for question, answer in normal[common : len(rows)]:
            if session.ask().tokens.tolist() != question.tokens:
                return False
            assert answer is not None
            session.tell(answer.response if answer.response.kind in session.model.kinds else None)
        return True

    def _rebuilt(self, normal: History) -> Session:
        session = self._materials.session(self.start(), self._number)
        transcript, events = Transcript(session.maker, session.num_options), []
        for question, answer in normal:
            _, episode = transcript.next_prefixes()
            tokens: Any = np.array(question.tokens, dtype=np.int64)
            asked = transcript.maker.make(tokens, number=transcript.answered, episode=episode)
            events.append(Transcript.ask_event(asked))
            transcript.apply(events[-1])
            if answer is None:
                break
            response = answer.response
            if response.kind not in session.model.kinds:
                response = type(response).skip()
            events.append(transcript.tell_event(response, answer.answered_at))
            transcript.apply(events[-1])
        session.replay(events, exact=False)
        return session


class Visits:
    """The visits of those who answer at the moment.

    A session takes megabytes, and a tenth of a second to be made anew from sixty stored answers, so not all are kept:
    those of the people who were here last.
    """

    def __init__(self, make: Callable[[Participant], Visit]) -> None:
        self._make = make
        self._visits: OrderedDict[int, tuple[Visit, float]] = OrderedDict()  # the one used last at the end
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._visits)

    def of(self, participant: Participant) -> Visit:
        now = time.monotonic()
        with self._lock:
            known = self._visits.pop(participant.id, None)
            visit = self._make(participant) if known is None else known[0]
            self._visits[participant.id] = (visit, now)
            while len(self._visits) > _MOST or next(iter(self._visits.values()))[1] < now - _IDLE:
                self._visits.popitem(last=False)
        return visit

    def let_go(self, participant: Participant) -> None:
        """Forget the session of a participant who is asked no more."""
        self.forget([participant.id])

    def forget(self, participants: Iterable[int]) -> None:
        """Forget the sessions of participants, by their rows."""
        with self._lock:
            for one in participants:
                self._visits.pop(one, None)
