"""Simulated people who take part in a study as it is configured, through its real queue, into a database of their own.

They answer by the model of the study: a taste is drawn from the population of an arm, else from the prior of
`edpbrl estimate`, and answers are drawn by the likelihood of the answer format. Everybody is asked many test questions,
of which no estimate learns, so that a few people say how arms differ at any number of them. The n-th person of each arm
has the same taste, and gives the same answers to the test questions: so fewer people say how the arms differ.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.study.arms import kind_of
from edpbrl_gym.study.config import NAMED_PRIORS, StudyConfig
from edpbrl_gym.study.export import gather
from edpbrl_gym.study.export_tables import StudyTables, pseudonym
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import Participant
from edpbrl_gym.study.recruitment import Recruitment
from edpbrl_gym.study.store import Store
from edpbrl_gym.vocabulary import SEPARATOR

__all__ = ["SimulatedPeople", "simulate", "simulated_config", "tastes_of"]

Track = Callable[[str, int, Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True)
class SimulatedPeople:
    """Who takes part.

    Attributes:
        people: Number in each arm; in an arm of a larger weight so many times more.
        scale: Factor of all utilities: 1 is as the prior has it, less is more noise, 0 answers at random.
        seed: Of tastes and answers.
    """

    people: int = 12
    scale: float = 1.0
    seed: int = 0


def simulated_config(config: StudyConfig, database: Path, *, test: int | None = None) -> StudyConfig:
    """The study for simulated people: its questions and arms, without a last page and limits of who comes when.

    Args:
        config: Of the study.
        database: File of the simulated answers.
        test: Number of test questions; None: as it is.

    Raises:
        ValueError: Fewer than two arms, or one whose questions come from elsewhere.
    """
    if len(config.arms) < 2:
        raise ValueError(f"Expected a study with two arms or more to compare, got {len(config.arms)}")
    for arm in config.arms:
        if kind_of(arm).posted:
            raise ValueError(
                f"Expected arms that choose questions themselves, those of {arm.name!r} come from HumanOracle; "
                "simulate that arm with a planner"
            )
    checks = config.checks if test is None else replace(config.checks, test=test)
    return replace(
        config, checks=checks, style=0, recruitment=Recruitment(), database=f"sqlite:///{database.absolute()}"
    )


def tastes_of(materials: Materials) -> tuple[TastePrior, str]:
    """The prior from which tastes are drawn, and what it is."""
    for arm in materials.config.arms:
        if isinstance(arm.prior, Path) and str(arm.prior) not in NAMED_PRIORS:
            prior = materials.given_prior(arm)
            assert prior is not None
            return prior, f"the population of the arm {arm.name}"
    prior = materials.once("simulated", lambda: materials.estimate_prior(materials.tokens, materials.others))
    return prior, "the prior of `edpbrl estimate` for the vocabulary"


class _PatientQueue(StudyQueue):
    """A queue that chooses a question when it is asked for: nobody reads in the meantime."""

    def _work(self, work: Callable[[Participant], object], participant: Participant) -> None:
        pass


def _alone(name: str, total: int, steps: Iterable[Any]) -> Iterable[Any]:
    return steps


def simulate(
    materials: Materials, who: SimulatedPeople, *, track: Track = _alone
) -> tuple[StudyTables, dict[str, int]]:
    """Let people take part, those who have not finished yet in the study's database, and gather the tables.

    Args:
        materials: Of a ``simulated_config``.
        who: The people; the same in every call on a database, but for a larger number.
        track: Wraps the people while they answer, and while they are estimated: name, number, steps.

    Returns:
        The tables, and the number of each person's taste.

    Raises:
        ValueError: The database holds another study, or people of another scale or seed.
    """
    config = materials.config
    with closing(Store(config.database_url, config=config.fingerprint)) as store:
        said = json.dumps({"scale": who.scale, "seed": who.seed})
        known = store.claim("simulated people", said)
        if known != said:
            raise ValueError(f"Expected the people who were simulated there before, {known}, got {said}")
        total = who.people * sum(arm.weight for arm in config.arms)
        tastes: dict[str, int] = {}
        seen: Counter[str] = Counter()
        with closing(_PatientQueue(config, store, materials)) as queue:
            for number in track("People", total, range(total)):
                person = queue.enrol({"participant": f"simulated {number}"})
                taste = tastes[pseudonym(store.secret, person)] = seen[person.arm]
                seen[person.arm] += 1
                _take_part(queue, person, taste, who)
        tables, _ = gather(store, materials, track=lambda records: track("Estimates", len(records), records))
    return tables, tastes


def _take_part(queue: StudyQueue, person: Participant, taste: int, who: SimulatedPeople) -> None:
    materials = queue.materials
    if person.status == "enrolled":
        person = queue.consent(person)
    prior, _ = tastes_of(materials)
    start = materials.once("simulated tastes", prior.start)
    theta = who.scale * start.draws(1, generator(who.seed, "simulated taste", taste))[0]
    while (question := queue.next_question(person)) is not None:
        about = SEPARATOR.join(question.texts) if question.kind == "test" else str(question.number)
        rng = generator(who.seed, "simulated answer", taste, question.kind, about)
        options = prior.feature_map(materials.encoder.encode(question.texts))
        queue.answer(person, question.key, materials.model.sample(options[None], theta, rng.random(1))[0])
