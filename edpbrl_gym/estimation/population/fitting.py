"""Fit a population to people's answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.estimation.map_estimate import Data
from edpbrl_gym.estimation.population.answers import Answered, Frame, answered_people, check_group
from edpbrl_gym.estimation.population.em import Settings, first_scale, fit_bounds, fit_parts, split_parts
from edpbrl_gym.estimation.population.factor_fit import fit_factor_types, fit_factors
from edpbrl_gym.estimation.population.factors import FactorMoments, Factors
from edpbrl_gym.estimation.population.model import Kind, Population
from edpbrl_gym.estimation.population.parts import Moments, Parts, Shrinkage
from edpbrl_gym.estimation.population.points import DEFENSIVE_RANK
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.taste_prior import check_prior
from edpbrl_gym.estimation.whitened import typical_scale
from edpbrl_gym.likelihood import AnswerFormat

__all__ = ["fit_population"]

_KINDS = ("gaussian", "factors", "types")


@one_blas_thread()
def fit_population(
    people: Sequence[Data],
    *,
    kind: Kind = "gaussian",
    base: GaussianPrior | None = None,
    factors: int | None = None,
    types: int | None = None,
    rounds: int = 300,
    model: AnswerFormat | None = None,
    seed: int = 0,
    progress: bool = False,
    shrinkage: float | None = None,
    minimum_people: int = 20,
    features: str = "",
) -> Population:
    """The distribution of tastes that makes all people's answers most likely, by EM on the answers themselves.

    Each person's answers are integrated over the taste, by importance sampling with fixed points up to 20 features
    (`cloud`), by variational Gaussians above (`variational_steps`).

    Args:
        people: One item per person, as for :func:`~edpbrl_gym.estimation.estimate`; people without answers are left
            out.
        kind: "gaussian": one Gaussian with a full covariance; "factors": covariance L L' + s C with few columns in L
            and C the base prior's covariance, for many features; "types": a mixture of Gaussians.
        base: Proper prior whose shape the covariances are shrunk towards, at a scale that the answers choose (its own
            is of no account); None: the identity.
        factors: Number of columns of L; None: chosen by held-out likelihood. Only with kind "factors".
        types: Number of Gaussians; None: chosen by held-out likelihood. Only with kind "types". Above 20 features they
            share the covariance s C, as for factors.
        rounds: Largest number of rounds of EM with the last points.
        model: Response model, as for :func:`~edpbrl_gym.estimation.estimate`.
        seed: Of the points and of the first types.
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
    settings = Settings(check_count(rounds, "rounds"), check_count(seed, "seed", minimum=0), bool(progress))
    for name, value in (("factors", factors), ("types", types)):
        if value is not None and kind != name:
            raise ValueError(f"Expected {name} only with kind={name!r}, got kind={kind!r}")
    answered = answered_people(people, model)
    check_group(answered, minimum_people, "fit a population")
    base = _checked_base(base, answered)
    inside = [Frame.of(base).inside(person) for person in answered]
    # so that the priors on the scales, and with them the result, do not depend on the unit of the features
    typical = typical_scale([person.rows for person in inside])
    base = GaussianPrior.from_precision(base.precision / typical, base.mean)
    frame = Frame.of(base)
    inside = [frame.inside(person) for person in answered]
    weight = base.dimension + 2.0 if shrinkage is None else check_number(shrinkage, "shrinkage", minimum=0.0)
    rule = Shrinkage(weight)
    if kind == "factors" and factors is None:
        factors = _chosen(answered, "factors", base, settings, weight)
    if kind == "types" and types is None:
        types = _chosen(answered, "types", base, settings, weight)
    scale = first_scale(inside)
    state: Parts | Factors
    moments: Moments | FactorMoments
    if kind == "types" and base.dimension > DEFENSIVE_RANK:
        kinds = fit_factor_types(inside, check_count(types, "types"), scale, weight > 0.0, settings)
        order = np.argsort(-kinds.parts.weights, kind="stable")
        state, moments, history = kinds.parts.take(order), kinds.moments.take(order), kinds.history
    elif kind == "factors":
        number = check_count(factors, "factors", minimum=0)
        if number > base.dimension:
            raise ValueError(f"Expected at most {base.dimension} factors (the features), got {number}")
        found = fit_factors(inside, number, scale, weight > 0.0, settings)
        state, moments, history = found.parts, found.moments, found.history
    else:
        rule = Shrinkage(weight)
        start = Parts.single(base.dimension, scale)
        number = 1 if kind == "gaussian" else check_count(types, "types")
        if number > 1:
            start = split_parts(inside, fit_bounds(inside, start, rule, settings).parts, number, settings.seed)
        fitted = fit_parts(inside, start, rule, settings)
        order = np.argsort(-fitted.parts.weights, kind="stable")
        state, moments, history = fitted.parts.take(order), fitted.moments.take(order), fitted.history
    return Population.of(
        state,
        moments,
        base=base,
        kind=kind,
        people=len(inside),
        log_likelihood=tuple(history),
        shrinkage=weight,
        features=features,
    )


def _chosen(
    people: list[Answered], kind: Literal["factors", "types"], base: GaussianPrior, settings: Settings, shrinkage: float
) -> int:
    """The number of factors or types by held-out likelihood among the default candidates."""
    from edpbrl_gym.estimation.population.choosing import choose_population

    terms = [person.terms() for person in people]
    return choose_population(
        terms,
        kind=kind,
        folds=max(2, min(5, len(terms))),
        base=base,
        rounds=settings.rounds,
        seed=settings.seed,
        shrinkage=shrinkage,
        minimum_people=1,  # checked before
    ).number


def _checked_base(base: GaussianPrior | None, people: Sequence[Answered]) -> GaussianPrior:
    dimension = people[0].rows.shape[2]
    if base is None:
        return GaussianPrior.isotropic(dimension, 1.0)
    check_prior(base, "base", GaussianPrior)
    if base.dimension != dimension:
        raise ValueError(f"Expected a base of dimension {dimension} (the answers'), got one of {base.dimension}")
    return base
