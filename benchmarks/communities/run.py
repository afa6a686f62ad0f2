"""The study of communities as an experiment: its estimators, its preparation and a unit's work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.communities.community import NewPerson, known_people, load_world, measure, new_people, prepare_world
from benchmarks.communities.report import make_report
from benchmarks.communities.settings import CommunitySettings, CommunityUnit, plan_units
from benchmarks.kit.command import sorted_by
from benchmarks.people.data import Person
from benchmarks.people.estimators import Fit, WithPopulation, at_estimate
from benchmarks.people.replay import choose_question, follow
from edpbrl_gym._seeds import generator
from edpbrl_gym._threads import one_thread
from edpbrl_gym.estimation import Posterior, fit_prior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.experiments.framework import Experiment, Inputs, Run
from edpbrl_gym.features import load_encoder
from edpbrl_gym.likelihood import Terms

_DRAWS = 64  # of the taste, by which one of hundreds of questions is chosen


class Alone:
    """The library's default without other people: estimate and predictions of the vocabulary's prior."""

    def __init__(self, prior: VocabularyPrior) -> None:
        self.prior = prior

    def plan(self, answers: Terms) -> Posterior:
        """That under the prior from all embeddings, as `TasteFit.planned`."""
        return Posterior.from_estimate(fit_prior(answers, base=self.prior.base).estimate)

    def fit(self, answers: Terms) -> Fit:
        """The average of the estimates under all its priors."""
        if not len(answers):  # nobody knows the scale of an unknown taste: all options are equal
            return at_estimate(np.zeros(answers.dimension))
        found = self.prior.fit(answers)
        return Fit(found.theta, lambda options: found.posterior.choice_probabilities(options))


def make_estimator(name: str, settings: CommunitySettings, known: Sequence[Terms], prior: VocabularyPrior) -> Any:
    """An estimator of ``ESTIMATORS`` that has seen the answers of a community; prior: of the vocabulary."""
    if name == "alone":
        return Alone(prior)
    population = fit_population(known, kind="factors", factors=settings.factors, base=prior.base)
    return WithPopulation(population.with_fallback(prior))


def _inputs(settings: CommunitySettings) -> Inputs:
    encoder = load_encoder(settings.encoder)
    return Inputs(encoder, None, {"encoder_fingerprint": encoder.fingerprint}, {"encoder": encoder.name})


def _prepare(run: Run, todo: list[CommunityUnit]) -> None:
    for words in dict.fromkeys(unit.words for unit in todo):
        prepare_world(run.settings, words, run.encoder, run.folder.path, progress=run.progress)


def _run_unit(settings: CommunitySettings, unit: CommunityUnit, folder: Path, prepared: None) -> list[dict[str, Any]]:
    """Ask all new people of a regime with one estimator by all its rules."""
    world = load_world(settings, unit.words, folder)
    rows = []
    with one_thread():
        known = known_people(settings, unit, world)
        estimator = make_estimator(unit.estimator, settings, known, VocabularyPrior(world.tokens))
        del known
        for person in new_people(settings, unit, world):
            facts: dict[str, Any] = {"regime": unit.regime, "words": unit.words, "estimator": unit.estimator}
            facts |= {"kind": person.kind, "person": person.number}
            for rule in settings.rules:

                def choose(answers: Terms, left: Person, rule: str = rule, person: NewPerson = person) -> int:
                    rng = generator(0, "communities", rule, person.kind, person.number, len(answers))
                    return choose_question(rule, lambda: estimator.plan(answers), left, rng, draws=_DRAWS)

                for count, fit in follow(estimator, choose, person.candidates, settings.answers):
                    found = measure(fit, world, person.taste, unit.scale)
                    rows.append({**facts, "rule": rule, "answers": count, **found})
    return rows


COMMUNITIES = Experiment(
    kind="communities",
    command="python -m benchmarks.communities",
    settings=CommunitySettings,
    plan=plan_units,
    inputs=_inputs,
    prepare=_prepare,
    run_unit=_run_unit,
    report=make_report,
    table=sorted_by("regime", "estimator", "rule", "kind", "person", "answers"),
    units="communities",
)
