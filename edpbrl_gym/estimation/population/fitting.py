"""Fit a population to people's answers: EM with their variational Gaussians, and the number of factors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.estimation.map_estimate import Data
from edpbrl_gym.estimation.population.answers import Answered, Block, People, answered_people, check_group, inside
from edpbrl_gym.estimation.population.em import climb
from edpbrl_gym.estimation.population.factors import Factors
from edpbrl_gym.estimation.population.gaussian import Gaussian
from edpbrl_gym.estimation.population.model import Kind, Population
from edpbrl_gym.estimation.population.sites import fit_sites, reduced
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.taste_prior import check_prior
from edpbrl_gym.estimation.whitened import typical_scale
from edpbrl_gym.likelihood import AnswerFormat

__all__ = ["PopulationChoice", "choose_population", "fit_population"]

_KINDS = ("gaussian", "factors")
_CANDIDATES = (0, 1, 2, 4, 8)
_FIRST_ROUNDS = 8  # without factors
_PEOPLE_OF_FIRST_SCALE = 20


@one_blas_thread()
def fit_population(
    people: Sequence[Data],
    *,
    kind: Kind = "gaussian",
    base: GaussianPrior | None = None,
    factors: int | None = None,
    rounds: int = 300,
    model: AnswerFormat | None = None,
    seed: int = 0,
    progress: bool = False,
    shrinkage: float | None = None,
    minimum_people: int = 20,
    features: str = "",
) -> Population:
    """The distribution of tastes that makes all people's answers most likely, by EM on the answers themselves.

    Each person's answers are integrated over the taste by the variational Gaussian closest to the posterior (`sites`).

    Args:
        people: One item per person, as for :func:`~edpbrl_gym.estimation.estimate`; people without answers are left
            out.
        kind: "gaussian": one Gaussian with a full covariance; "factors": covariance L L' + s C with few columns in L
            and C the base prior's covariance, for many features.
        base: Proper prior whose shape the covariances are shrunk towards, at a scale that the answers choose (its own
            is of no account); None: the identity.
        factors: Number of columns of L; None: chosen by held-out likelihood. Only with kind "factors".
        rounds: Largest number of rounds of EM.
        model: Response model, as for :func:`~edpbrl_gym.estimation.estimate`.
        seed: Of the folds by which the number of factors is chosen.
        progress: Write a line for each stage to stderr.
        shrinkage: Weight of the base prior's shape in people, >= 0; None: d + 2. 0: no penalty, maximum likelihood,
            whose maximum need not exist. Factors are shrunk by less than a person's weight, unless 0.
        minimum_people: Fewest people with answers; see the privacy section of :class:`Population`.
        features: Name of the features, kept with the population.

    Raises:
        TypeError: People of another type, or a base that is no GaussianPrior.
        ValueError: Too few people, people with different features, an improper base, an unknown kind, or an argument
            out of its range.
    """
    check_choice_of(kind, "kind", _KINDS)
    most, seed = check_count(rounds, "rounds"), check_count(seed, "seed", minimum=0)
    if factors is not None and kind != "factors":
        raise ValueError(f"Expected factors only with kind='factors', got kind={kind!r}")
    answered = answered_people(people, model)
    check_group(answered, minimum_people, "fit a population")
    dimension = answered[0].rows.shape[2]
    base = GaussianPrior.isotropic(dimension, 1.0) if base is None else check_prior(base, "base", GaussianPrior)
    if base.dimension != dimension:
        raise ValueError(f"Expected a base of dimension {dimension} (the answers'), got one of {base.dimension}")
    # so that the priors on the scales, and with them the result, do not depend on the unit of the features
    typical = typical_scale([inside(base, person).rows for person in answered])
    base = GaussianPrior.from_precision(base.precision / typical, base.mean)
    weight = dimension + 2.0 if shrinkage is None else check_number(shrinkage, "shrinkage", minimum=0.0)
    if kind == "factors":
        if factors is None:
            factors = choose_population(
                [person.terms() for person in answered],
                folds=max(2, min(5, len(answered))),
                base=base,
                rounds=most,
                seed=seed,
                shrinkage=weight,
                minimum_people=1,  # checked before
            ).number
        if check_count(factors, "factors", minimum=0) > dimension:
            raise ValueError(f"Expected at most {dimension} factors (the features), got {factors}")
    coordinates = [inside(base, person) for person in answered]
    together, scale = People(coordinates), _first_scale(coordinates)
    state: Gaussian | Factors = Gaussian.isotropic(dimension, scale, weight)
    if kind == "factors":
        first = Factors.isotropic(dimension, scale, weight > 0.0)
        first, sums, _, tastes = climb(together, first, min(_FIRST_ROUNDS, most))
        state = first.extended(sums, tastes, int(factors or 0))
    state, sums, history, _ = climb(together, state, most)
    if progress:
        print(f"{len(history)} rounds: bound on the log-likelihood {history[-1]:.3f}", file=sys.stderr, flush=True)
    return Population.of(
        state,
        sums,
        base=base,
        kind=kind,
        people=len(together),
        log_likelihood=tuple(history),
        shrinkage=weight,
        features=features,
    )


@dataclass(frozen=True, eq=False)
class PopulationChoice:
    """The number of factors with the highest held-out likelihood.

    Attributes:
        number: The chosen number.
        candidates: All numbers tried, ascending.
        log_evidence: Log evidence of each left-out person's answers under each candidate, (candidates, people), fitted
            on the people of the other folds.
        standard_errors: Of the mean difference of each candidate to the chosen one, over people, (candidates,).
    """

    number: int
    candidates: tuple[int, ...]
    log_evidence: Floats
    standard_errors: Floats


def choose_population(
    people: Sequence[Data],
    *,
    candidates: Sequence[int] | None = None,
    folds: int = 5,
    base: GaussianPrior | None = None,
    rounds: int = 300,
    model: AnswerFormat | None = None,
    seed: int = 0,
    shrinkage: float | None = None,
    minimum_people: int = 20,
) -> PopulationChoice:
    """Choose the number of factors by the likelihood of people left out, in folds over people.

    Ascending numbers are tried until one is worse than its predecessor. A number replaces a smaller one only if its
    mean log evidence is higher.

    Args:
        people: As for :func:`~edpbrl_gym.estimation.population.fit_population`; what is fitted here is not kept.
        candidates: Numbers to try; None: 0, 1, 2, 4 and 8, as far as there are features.
        folds: Number of folds, >= 2.
        base: As there, as are all that follow.
        rounds: As there.
        model: As there.
        seed: Of the folds.
        shrinkage: As there.
        minimum_people: As there.

    Raises:
        TypeError, ValueError: As for ``fit_population``; no candidates, or fewer people than folds.
    """
    answered = answered_people(people, model)
    check_group(answered, minimum_people, "choose a population")
    count = check_count(folds, "folds", minimum=2)
    if len(answered) < count:
        raise ValueError(f"Expected at least as many people as folds, got {len(answered)} people and {count} folds")
    if candidates is None:
        candidates = [number for number in _CANDIDATES if number <= answered[0].rows.shape[2]]
    numbers = sorted({check_count(number, "candidates", minimum=0) for number in candidates})
    if not numbers:
        raise ValueError("Expected at least one candidate, got none")
    terms = [person.terms() for person in answered]
    order = generator(seed, "folds").permutation(len(terms))
    parts: list[NDArray[np.intp]] = np.array_split(order, count)
    rows: list[Floats] = []
    for number in numbers:
        evidence = np.empty(len(terms))
        for held_out in parts:
            population = fit_population(
                [terms[person] for person in np.setdiff1d(order, held_out)],
                kind="factors",
                base=base,
                factors=number,
                rounds=rounds,
                shrinkage=shrinkage,
                minimum_people=1,
            )
            for person in held_out:
                evidence[person] = population.log_evidence(terms[person])
        rows.append(evidence)
        if len(rows) > 1 and rows[-1].mean() < rows[-2].mean():
            break
    table = np.array(rows)
    best = int(table.mean(axis=1).argmax())
    errors = (table - table[best]).std(axis=1) / np.sqrt(table.shape[1])
    return PopulationChoice(numbers[best], tuple(numbers[: len(rows)]), table, errors)


def _first_scale(people: Sequence[Answered]) -> float:
    """The scale s of N(0, s I) with the largest bound over some people: EM finds it slowly where answers are few."""
    scales = np.exp(np.linspace(-5.0, 7.0, 13))
    block = Block.of(people, np.arange(min(len(people), _PEOPLE_OF_FIRST_SCALE)))
    rows = reduced(block.rows)
    bounds = [fit_sites(np.sqrt(scale) * rows, block.offsets, tolerance=0.1).bounds.sum() for scale in scales]
    return float(scales[int(np.argmax(bounds))])
