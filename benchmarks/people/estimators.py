"""The estimators of the replay, by name: without other people, and with what their answers say about new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from benchmarks.people.data import Person
from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate, fit_posterior
from edpbrl_gym.estimation.population import Population, fit_population
from edpbrl_gym.estimation.population.model import Kind
from edpbrl_gym.estimation.scaled_prior import of_attributes
from edpbrl_gym.likelihood import Terms

ESTIMATORS: dict[str, str] = {
    "ridge100": "no other people: ridge, lambda = 100 (the paper's)",
    "ridge1": "no other people: ridge, lambda = 1",
    "alone": "no other people: the library's prior of attributes, its scale by the person's own answers",
    "population-gaussian": "a Gaussian of other people, by EM on their answers, with a fallback for who is unlike them",
    "population-factors": "other people's common directions, their number by held-out likelihood, with the fallback",
}
"""Name -> what it is."""

POPULATIONS: dict[str, Kind] = {
    "population-gaussian": "gaussian",
    "population-factors": "factors",
}
"""Those with a population of the library, and its kind."""

_RIDGES = {"ridge100": 100.0, "ridge1": 1.0}


@dataclass(frozen=True, eq=False)
class Fit:
    """What is estimated from a person's answers."""

    theta: Floats  # the estimate of the taste, (d,)
    probabilities: Callable[[Floats], Floats]  # options (n, K, d) -> choice probabilities over the posterior, (n, K)


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

    Raises:
        ValueError: An unknown name, or too few other people.
    """
    check_choice_of(name, "estimator", tuple(ESTIMATORS))
    if name in POPULATIONS:
        return WithPopulation(fit_population([person.terms() for person in known], kind=POPULATIONS[name]))
    return _Alone(GaussianPrior.isotropic(dimension, _RIDGES.get(name, 1.0)), by_evidence=name == "alone")


def averaged_over_draws(draws: Floats, options: Floats) -> Floats:
    """Mean over draws of theta, (M, d), of softmax(X theta), for each question, (n, K)."""
    utilities = (options @ draws.T).transpose(0, 2, 1)
    powers = np.exp(utilities - utilities.max(axis=-1, keepdims=True))
    return np.asarray((powers / powers.sum(axis=-1, keepdims=True)).mean(axis=1))


def at_estimate(theta: Floats) -> Fit:
    """An estimate that predicts as if it were certain."""
    return Fit(theta, lambda options: averaged_over_draws(theta[None], options))


class _Alone:
    """The ridge, its lambda fixed or of the highest evidence; predictions are averaged over the posterior."""

    def __init__(self, prior: GaussianPrior, *, by_evidence: bool) -> None:
        self.prior, self.by_evidence = prior, by_evidence

    def plan(self, answers: Terms) -> Posterior:
        if self.by_evidence:
            return of_attributes(self.prior).fit(answers).planned
        return Posterior.from_estimate(estimate(answers, prior=self.prior))

    def fit(self, answers: Terms) -> Fit:
        if not len(answers):
            return Fit(self.prior.mean, Posterior(self.prior.mean, self.prior.precision).choice_probabilities)
        if self.by_evidence:  # the scale's uncertainty counts too
            chosen = of_attributes(self.prior).fit(answers)
            posterior = fit_posterior(answers, base=self.prior, start=chosen).posterior
            return Fit(chosen.estimate.theta, posterior.choice_probabilities)
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
