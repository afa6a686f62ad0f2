"""The estimators of the study, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.estimation import Posterior, fit_prior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.experiments.communities.averaged_models import AveragedModels
from edpbrl_gym.experiments.communities.prototypes import Prototypes
from edpbrl_gym.experiments.communities.reward_basis import RewardBasis
from edpbrl_gym.experiments.communities.settings import ESTIMATORS, CommunitySettings
from edpbrl_gym.experiments.people.asking import choose_question
from edpbrl_gym.experiments.people.data import Person
from edpbrl_gym.experiments.people.estimators import Estimator, Fit, WithPopulation, at_estimate
from edpbrl_gym.experiments.people.replay import Choose
from edpbrl_gym.likelihood import Terms

__all__ = ["Alone", "Fits", "chooser", "make_estimator"]

_DRAWS = 64  # of the taste, by which one of hundreds of questions is chosen


class Fits(Protocol):
    """What is known before a new person's first answer."""

    def fit(self, answers: Terms) -> Fit:
        """The estimate and what it predicts."""
        ...


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


def make_estimator(name: str, settings: CommunitySettings, known: Sequence[Terms], prior: VocabularyPrior) -> Fits:
    """An estimator that has seen the answers of a community.

    Args:
        name: Of ``settings.ESTIMATORS``.
        settings: Numbers of factors and types.
        known: The answers of its people.
        prior: Of the vocabulary.

    Raises:
        ValueError: An unknown name.
    """
    check_choice_of(name, "estimator", tuple(ESTIMATORS))
    if name == "alone":
        return Alone(prior)
    if name == "population-factors":
        population = fit_population(known, kind="factors", factors=settings.factors, base=prior.base)
        return WithPopulation(population.with_fallback(prior))
    if name == "population-types":
        population = fit_population(known, kind="types", types=settings.types, base=prior.base)
        return WithPopulation(population.with_fallback(prior))
    if name == "pref":
        return RewardBasis(known, prior.base)
    if name == "pal":
        return Prototypes(known, prior.base)
    return AveragedModels(known, prior.base)


def chooser(estimator: Fits, rule: str, kind: str, number: int) -> Choose:
    """Chooses the next question of a new person by a rule.

    Args:
        estimator: Estimates the taste, and chooses by its own rule.
        rule: Of ``settings.RULES``.
        kind: Of the person.
        number: Of the person.
    """

    def choose(answers: Terms, left: Person) -> int:
        if rule == "own":
            assert isinstance(estimator, RewardBasis | AveragedModels), "the others have no rule of their own"
            return estimator.choose(answers, left)
        rng = generator(0, "communities", rule, kind, number, len(answers))
        return choose_question(rule, lambda: _planning(estimator).plan(answers), left, rng, draws=_DRAWS)

    return choose


def _planning(estimator: Fits) -> Estimator:
    assert isinstance(estimator, Alone | WithPopulation), "the others have no posterior of the taste"
    return estimator
