"""The fit of factors, or of types for many features, to people's answers by variational EM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.blocks import WarmSites
from edpbrl_gym.estimation.population.em import Settings, climb_by_em
from edpbrl_gym.estimation.population.factors import FactorMoments, FactorPeople, Factors

__all__ = ["FittedFactors", "fit_factor_types", "fit_factors", "update_factors"]

_TOLERANCE, _CYCLE_TOLERANCE = 1e-3, 2e-2  # nats a person, rise in one round and from one extrapolation to the next
_FIRST_ROUNDS = 8  # without factors
_STARTS = 10  # of the clusters


@dataclass(frozen=True, eq=False)
class FittedFactors:
    """A fitted model, its statistics and the objective after each round."""

    parts: Factors
    moments: FactorMoments
    history: list[float]


def fit_factors(
    people: Sequence[Answered], number: int, scale: float, shrunk: bool, settings: Settings
) -> FittedFactors:
    """EM from a few rounds without factors; the first loadings are the principal axes of the people's estimates.

    Args:
        people: Answers in the base prior's coordinates.
        number: Number of factors, 0 to d.
        scale: First residual variance.
        shrunk: Whether mean and loadings have priors.
        settings: Rounds and progress.
    """
    inner = FactorPeople(people)
    model = Factors.isotropic(people[0].rows.shape[2], scale, shrunk)
    model, tastes = _started(inner, model, settings, len(people))
    model = model.extended(_axes(tastes - model.means[0], number))
    return _finished(inner, model, settings, len(people), f"{number} factors")


def fit_factor_types(
    people: Sequence[Answered], types: int, scale: float, shrunk: bool, settings: Settings
) -> FittedFactors:
    """EM for types of people without factors; the first means are those of clusters of the people's estimates.

    Args:
        people: Answers in the base prior's coordinates.
        types: Number of types, at least 1.
        scale: First residual variance.
        shrunk: Whether the means have priors.
        settings: Rounds, seed of the clusters and progress.
    """
    inner = FactorPeople(people)
    model = Factors.isotropic(people[0].rows.shape[2], scale, shrunk)
    model, tastes = _started(inner, model, settings, len(people))
    if types > 1:
        # tastes differ by chance in all directions, types in few
        axes = np.linalg.svd(tastes - tastes.mean(axis=0), full_matrices=False)[2][:types]
        labels = _clusters(tastes @ axes.T, types, settings.seed)
        centres = np.stack([tastes[labels == part].mean(axis=0) for part in range(types)])
        inner.fits = WarmSites()
        model = Factors.types(centres, model.residual, shrunk)
    return _finished(inner, model, settings, len(people), f"{types} types")


def _clusters(points: Floats, number: int, seed: int) -> NDArray[np.intp]:
    """The cluster of each point, by k-means: the best of some starts."""
    from scipy.cluster.vq import kmeans2

    found, least = np.arange(len(points)) % number, np.inf
    for start in range(_STARTS):
        rng = generator(seed, "clusters", start)
        centres, labels = kmeans2(points, number, minit="++", rng=rng, missing="warn")
        spread = float(np.square(points - centres[labels]).sum())
        if spread < least and len(np.unique(labels)) == number:
            found, least = labels, spread
    return np.asarray(found, dtype=np.intp)


def _started(inner: FactorPeople, model: Factors, settings: Settings, people: int) -> tuple[Factors, Floats]:
    """After a few rounds, with the evident pull of the mean; and the people's estimates, (N, d)."""
    model, history = _climb(inner, model, min(_FIRST_ROUNDS, settings.rounds), people)
    moments, bounds, tastes = inner.expect(model)
    settings.tell(f"{len(history)} rounds without factors: bound on the log-likelihood {bounds.sum():.3f}")
    return model.with_evident_pull(moments), tastes


def _finished(inner: FactorPeople, model: Factors, settings: Settings, people: int, what: str) -> FittedFactors:
    """After EM to convergence."""
    model, history = _climb(inner, model, settings.rounds, people)
    moments, bounds, _ = inner.expect(model)
    settings.tell(f"{len(history)} rounds with {what}: bound on the log-likelihood {bounds.sum():.3f}")
    return FittedFactors(model, moments, history)


def _climb(inner: FactorPeople, start: Factors, rounds: int, people: int) -> tuple[Factors, list[float]]:
    """Accelerated EM; a trial that is no improvement leaves the people's fits as they were."""

    def step(model: Factors) -> tuple[float, Factors]:
        moments, bounds, _ = inner.expect(model)
        return float(bounds.sum()) + model.penalty(), model.maximised(moments)

    model, history, _ = climb_by_em(
        inner.fits.guarded(step),
        start,
        rounds=rounds,
        tolerance=_TOLERANCE * people,
        cycle_tolerance=_CYCLE_TOLERANCE * people,
    )
    return model, history


def _axes(centres: Floats, number: int) -> Floats:
    """Principal axes of the posterior means, as long as their spread; pulled estimates spread too little."""
    _, sizes, axes = np.linalg.svd(centres, full_matrices=centres.shape[0] < number)
    lengths = np.zeros(number)
    lengths[: len(sizes)] = sizes[:number] / np.sqrt(len(centres))
    return np.asarray((axes[:number] * lengths[:, None]).T)


def update_factors(
    people: Sequence[Answered], model: Factors, old: FactorMoments, settings: Settings
) -> tuple[Factors, FactorMoments]:
    """Incremental EM: only the new people's statistics are computed anew in each round."""
    inner = FactorPeople(people)
    total, previous = old, -np.inf
    for _ in range(settings.rounds):
        moments, bounds, _ = inner.expect(model)
        total = old + moments
        model = model.maximised(total)
        value = float(bounds.sum())
        if abs(value - previous) < _TOLERANCE * len(people):
            break
        previous = value
    return model, total
