"""The estimators of the replay, by name: without other people, and with what their answers say about new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate, fit_posterior, fit_prior
from edpbrl_gym.estimation.population import Population, fit_population
from edpbrl_gym.estimation.population.model import Kind
from edpbrl_gym.experiments.people.data import Person
from edpbrl_gym.experiments.people.prediction import averaged_over_draws
from edpbrl_gym.likelihood import Terms

__all__ = [
    "ALONE",
    "DEFAULTS",
    "ESTIMATORS",
    "HIERARCHICAL_BAYES",
    "MINIMUM_PEOPLE",
    "POPULATIONS",
    "Estimator",
    "Fit",
    "WithPopulation",
    "at_estimate",
    "make_estimator",
    "population_by_em",
]

HIERARCHICAL_BAYES = "hierarchical-bayes"

ESTIMATORS: dict[str, str] = {
    "ridge100": "no other people: ridge, lambda = 100 (the paper's)",
    "ridge1": "no other people: ridge, lambda = 1",
    "ridge-fit": "no other people: ridge, lambda by the evidence of the person's own answers",
    "population-em6": "a Gaussian of other people: six rounds of EM with Laplace posteriors",
    "population-gaussian": "a Gaussian of other people, by EM on their answers, with a fallback for who is unlike them",
    "population-factors": "other people's common directions, their number by held-out likelihood, with the fallback",
    "population-types": "types of other people, their number by held-out likelihood, with the fallback",
    HIERARCHICAL_BAYES: "hierarchical Bayes by Markov chains: bayesm's rhierMnlRwMixture, one normal component",
}
"""Name -> what it is."""

ALONE = ("ridge100", "ridge1", "ridge-fit")
"""Those that know nothing of other people."""

DEFAULTS = ("ridge100", "ridge1", "ridge-fit", "population-gaussian")
"""Those that run unless others are named: factors and types take many times as long, hierarchical Bayes needs R."""

POPULATIONS: dict[str, Kind] = {
    "population-gaussian": "gaussian",
    "population-factors": "factors",
    "population-types": "types",
}
"""Those with a population of the library, and its kind."""

MINIMUM_PEOPLE = 20
"""Fewest other people of whom the library makes a population."""

_RIDGES = {"ridge100": 100.0, "ridge1": 1.0}
_ROUNDS = 6


@dataclass(frozen=True, eq=False)
class Fit:
    """What is estimated from a person's answers.

    Attributes:
        theta: The estimate of the taste, (d,).
        probabilities: Options (n, K, d) -> choice probabilities averaged over the posterior, (n, K).
    """

    theta: Floats
    probabilities: Callable[[Floats], Floats]


class Estimator(Protocol):
    """What is known before a new person's first answer."""

    def plan(self, answers: Terms) -> Posterior:
        """The Gaussian posterior with which the next question is chosen; called after every answer."""
        ...

    def fit(self, answers: Terms) -> Fit:
        """The estimate and what it predicts."""
        ...


def make_estimator(name: str, known: Sequence[Person], dimension: int) -> Estimator:
    """An estimator that has seen other people's answers.

    Args:
        name: Of ``ESTIMATORS``, other than hierarchical Bayes, which fits all new people at once.
        known: The other people.
        dimension: Number of attributes d.

    Raises:
        ValueError: An unknown name, or too few other people.
    """
    check_choice_of(name, "estimator", tuple(one for one in ESTIMATORS if one != HIERARCHICAL_BAYES))
    if name in _RIDGES:
        return _WithPrior(GaussianPrior.isotropic(dimension, _RIDGES[name]))
    if name == "ridge-fit":
        return _RidgeByEvidence(GaussianPrior.isotropic(dimension, 1.0))
    if name in POPULATIONS:
        return WithPopulation(fit_population([person.terms() for person in known], kind=POPULATIONS[name]))
    return _WithPrior(population_by_em([person.terms() for person in known]))


def population_by_em(people: Sequence[Terms], rounds: int = _ROUNDS) -> GaussianPrior:
    """Mean and covariance of a population by EM with Laplace posteriors, from the ridge with lambda = 1.

    Each round estimates every person under the last population and takes mean and spread of the estimates, with the
    mean posterior covariance added (``GaussianPrior.from_estimates``).

    Args:
        people: The answers of each person, at least two.
        rounds: Number of rounds, >= 1.

    Raises:
        ValueError: Fewer than two people.
    """
    if len(people) < 2:
        raise ValueError(f"Expected at least 2 other people for a population, got {len(people)}")
    prior = GaussianPrior.isotropic(people[0].dimension, 1.0)
    for _ in range(rounds):
        estimates = [estimate(one, prior=prior) for one in people]
        spread = np.mean([one.covariance() for one in estimates], axis=0)
        prior = GaussianPrior.from_estimates([one.theta for one in estimates], posterior_covariance=spread)
    return prior


def at_estimate(theta: Floats) -> Fit:
    """An estimate that predicts as if it were certain."""
    return Fit(theta, lambda options: averaged_over_draws(theta[None], options))


class _WithPrior:
    """MAP under a fixed Gaussian prior; predictions are averaged over the variational posterior."""

    def __init__(self, prior: GaussianPrior) -> None:
        self.prior = prior

    def plan(self, answers: Terms) -> Posterior:
        return Posterior.from_estimate(estimate(answers, prior=self.prior))

    def fit(self, answers: Terms) -> Fit:
        if not len(answers):
            return Fit(self.prior.mean, Posterior(self.prior.mean, self.prior.precision).choice_probabilities)
        posterior = fit_posterior(answers, base=self.prior, scale=1.0, draws=2).posterior
        return Fit(estimate(answers, prior=self.prior).theta, posterior.choice_probabilities)


class WithPopulation:
    """The mixture of a population's parts and the fallback, weighted by the evidence of the person's own answers."""

    def __init__(self, population: Population) -> None:
        self.population = population

    def plan(self, answers: Terms) -> Posterior:
        """That of the population alone, or of the fallback where it is heavier."""
        return self.population.fit(answers).planned

    def fit(self, answers: Terms) -> Fit:
        """The mixture's mean; predictions are averaged over the mixture."""
        found = self.population.fit(answers)
        return Fit(found.theta, found.choice_probabilities)


class _RidgeByEvidence:
    """The ridge at the scale of the highest evidence; predictions are averaged over the scale's uncertainty too."""

    def __init__(self, base: GaussianPrior) -> None:
        self.base = base

    def plan(self, answers: Terms) -> Posterior:
        return Posterior.from_estimate(fit_prior(answers, base=self.base).estimate)

    def fit(self, answers: Terms) -> Fit:
        if not len(answers):
            return Fit(self.base.mean, Posterior(self.base.mean, self.base.precision).choice_probabilities)
        chosen = fit_prior(answers, base=self.base)
        posterior = fit_posterior(answers, base=self.base, start=chosen).posterior
        return Fit(chosen.estimate.theta, posterior.choice_probabilities)
