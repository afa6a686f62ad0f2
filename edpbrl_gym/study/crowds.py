"""What the people of a study say about its pool: where ``prior = "study"`` starts a person, what the report shows.

A crowd is an event of nobody: the people who have finished, and the last answer that was stored then. One is noted when
enough people have finished, and again whenever a tenth more have. Whoever consents starts from the last one, as an
event beside the consent says. So a session can be made again at any time: undo strikes questions by later events, and
answers that are given again have later rows. Deleted people leave their crowds; what is then left of fewer than the
least number of people says nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from sqlalchemy import func, or_, select

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.items import ItemsPrior
from edpbrl_gym.estimation.population.items import fit_crowd
from edpbrl_gym.estimation.priors import MOST_ITEMS
from edpbrl_gym.likelihood import Response, Terms
from edpbrl_gym.study.config import OF_STUDY, Arm
from edpbrl_gym.study.export_tables import Rows, counts
from edpbrl_gym.study.records import Participant, Record
from edpbrl_gym.study.rows import CROWD, START, add_event_row, last_crowd
from edpbrl_gym.study.tables import answers, events, participants, questions

if TYPE_CHECKING:
    from edpbrl_gym.study.materials import Materials
    from edpbrl_gym.study.store import Store

__all__ = ["Crowds"]

_MORE = 10  # a crowd is noted when one in so many more people have finished: fitting hundreds takes seconds
_KEPT = 8  # fitted crowds in memory
_LEVEL = 0.9  # of the intervals of the items
Told = tuple[list[str], Response]
"""The texts of a question, and its answer."""


class Crowds:
    """Notes and fits the crowds of a study; safe to use from several threads.

    Args:
        materials: Of the study.
        store: Its database; None: there are no people yet.
    """

    def __init__(self, materials: Materials, store: Store | None = None) -> None:
        self._materials, self._store = materials, store
        self._fitted: OrderedDict[tuple[int, tuple[int, ...]], ItemsPrior] = OrderedDict()
        self._fitting, self._lock = threading.Lock(), threading.Lock()

    @property
    def are_used(self) -> bool:
        """Whether an arm starts people from others."""
        return any(arm.prior == OF_STUDY for arm in self._materials.config.arms)

    @property
    def has_pool(self) -> bool:
        """Whether people are asked about items that they can share, few enough for an effect of each."""
        sizes = self._materials.vocabulary.sizes
        return len(sizes) == 1 and sizes[0] <= MOST_ITEMS

    def arm(self, arm: Arm, participant: Participant) -> Arm:
        """The arm with the prior from which a participant started, which may have to be fitted.

        Raises:
            ValueError: The study has no pool.
        """
        if arm.prior != OF_STUDY:
            return arm
        noted = [one["detail"]["crowd"] for one in self._known.events(participant.id) if one["kind"] == START]
        return replace(arm, prior=self.prior(noted[0] if noted else None))

    def prior(self, crowd: int | None) -> ItemsPrior:
        """The prior of the pool with a crowd that was noted; None: before the first one."""
        plain = self._materials.items_prior
        if crowd is None:
            return plain
        with self._known.database.reading() as connection:
            detail = connection.execute(select(events.c.detail).where(events.c.id == crowd)).scalar_one()
        key = (crowd, tuple(detail["people"]))
        found = self._kept(key)
        if found is None:
            with self._fitting:  # one at a time; who waits for the same one finds it
                found = self._kept(key)
                if found is None:
                    found = self._fit(plain, self._answers(crowd, detail))
                    with self._lock:
                        self._fitted[key] = found
                        while len(self._fitted) > _KEPT:
                            self._fitted.popitem(last=False)
        return found

    def note(self) -> None:
        """Note the people who have finished, if they are enough, and a tenth more than last time."""
        least = self._materials.config.minimum_people
        pilot = self._materials.config.recruitment.pilot
        finished = select(participants.c.id).where(participants.c.status == "finished")
        finished = finished.where(participants.c.pilot.is_(pilot)).order_by(participants.c.id)
        with self._known.database.reading() as connection:
            if not _is_due(connection.execute(finished).all(), last_crowd(connection, pilot=pilot), least):
                return
        with self._known.database.writing() as connection:
            people = list(connection.execute(finished.with_for_update()).scalars())  # nobody undoes meanwhile
            if _is_due(people, last_crowd(connection, pilot=pilot), least):
                last = connection.execute(select(func.max(answers.c.id))).scalar_one()
                mark = {"pilot": True} if pilot else {}
                add_event_row(connection, None, CROWD, {"people": people, "answer": last, **mark})

    def last_prior(self) -> ItemsPrior:
        """The prior with the last crowd that was noted, fitted if it is not yet."""
        with self._known.database.reading() as connection:
            crowd = last_crowd(connection, pilot=self._materials.config.recruitment.pilot)
        return self.prior(None if crowd is None else crowd.id)

    def table(self, records: Iterable[Record]) -> tuple[Rows, dict[str, Any]]:
        """What those who have finished like: rows of ``CROWD``, best first, and facts about all of them."""
        told = [
            [
                (question.texts, answer.response)
                for question, answer in record.live
                if answer and counts(question, answer)
            ]
            for record in records
            if record.participant.status == "finished"
        ]
        plain, least = self._materials.items_prior, self._materials.config.minimum_people
        prior = self._fit(plain, told)
        facts: dict[str, Any] = {"minimum_people": least, "finished": len(told), "people": 0}
        if prior.crowd is None:
            return [], facts
        liking, crowd = prior.liking(), prior.crowd
        unit = float(np.sqrt(sum(liking.values())))
        means = (prior.shared() - prior.shared().mean()) / unit
        half = float(ndtri((1.0 + _LEVEL) / 2)) * np.sqrt(crowd.variances) / unit
        names = self._materials.vocabulary.tokens[0]
        rows = [
            {
                "item": names[item],
                "people": int(crowd.seen[item]),
                "mean": round(float(means[item]), 4),
                "low": round(float(means[item] - half[item]), 4),
                "high": round(float(means[item] + half[item]), 4),
            }
            for item in np.argsort(-means, kind="stable").tolist()
            if crowd.seen[item] >= least
        ]
        shares = {name: round(value / unit**2, 4) for name, value in liking.items()}
        return rows, {**facts, "people": crowd.people, "items": len(names), **shares}

    @property
    def _known(self) -> Store:
        if self._store is None:
            raise RuntimeError("Expected materials that know the study's database; call their rest_on(store) first")
        return self._store

    def _kept(self, key: tuple[int, tuple[int, ...]]) -> ItemsPrior | None:
        with self._lock:
            if key in self._fitted:
                self._fitted.move_to_end(key)
            return self._fitted.get(key)

    def _answers(self, crowd: int, detail: dict[str, Any]) -> list[list[Told]]:
        """The answers that count of each person of a crowd, as they stood when it was noted."""
        query = (
            select(questions.c.participant, questions.c.texts, answers.c.response)
            .join(answers, answers.c.question == questions.c.id)
            .where(
                questions.c.participant.in_(detail["people"]),
                questions.c.kind == "normal",
                answers.c.id <= detail["answer"],
                or_(questions.c.struck_by.is_(None), questions.c.struck_by > crowd),
            )
            .order_by(questions.c.participant, questions.c.number, answers.c.id)
        )
        told: dict[int, list[Told]] = {}
        with self._known.database.reading() as connection:
            for row in connection.execute(query):
                told.setdefault(row.participant, []).append((row.texts, Response.from_json(row.response)))
        return list(told.values())

    def _fit(self, plain: ItemsPrior, people: Sequence[Sequence[Told]]) -> ItemsPrior:
        """The prior of the pool with what people answered; without it where too few answered anything."""
        least = self._materials.config.minimum_people
        terms = [one for person in people if (one := self._terms(plain, person)) is not None]
        if len(terms) < least:
            return plain
        return plain.with_crowd(fit_crowd(terms, plain, minimum_people=least))

    def _terms(self, plain: ItemsPrior, told: Sequence[Told]) -> Terms | None:
        """The answers of a person to questions about the pool (an oracle may post others); None: they say nothing.

        As in the person's session, "can't tell" teaches nothing.
        """
        places, model = self._materials.places, self._materials.model
        known = [
            (self._materials.tokens[[places[text] for text in texts]], response)
            for texts, response in told
            if response.kind in model.kinds and all(text in places for text in texts)
        ]
        if not known:
            return None
        features, responses = zip(*known, strict=True)
        index = np.arange(len(known))
        return plain.mapped(Comparisons(list(features), responses, index, index * 0)).terms(model)  # type: ignore[arg-type]


def _is_due(people: Sequence[Any], last: Any, least: int) -> bool:
    """Whether a crowd of these people is to be noted after the last one, None: there is none."""
    before = 0 if last is None else len(last.detail["people"])
    return len(people) >= max(least, before + max(1, before // _MORE))
