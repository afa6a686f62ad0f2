"""The fit of the factor model to people's answers by variational EM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.em import Settings
from edpbrl_gym.estimation.population.factors import FactorMoments, FactorPeople, Factors

__all__ = ["FittedFactors", "fit_factors", "update_factors"]

_TOLERANCE = 1e-3  # nats a person, rise in one round
_FIRST_ROUNDS = 5  # without factors


@dataclass(frozen=True, eq=False)
class FittedFactors:
    """A fitted factor model, its statistics and the objective after each round."""

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
    for attempt in range(_FIRST_ROUNDS):
        moments, bounds, centres = inner.expect(model)
        settings.tell(f"round {attempt + 1} without factors: bound on the log-likelihood {bounds.sum():.3f}")
        model = model.maximised(moments).with_evident_pull(moments)
    model = model.extended(_axes(centres, number))
    history: list[float] = []
    while True:
        moments, bounds, _ = inner.expect(model)
        history.append(float(bounds.sum()) + model.penalty())
        settings.tell(f"round {len(history)}: bound on the log-likelihood {history[-1]:.3f}")
        small = len(history) > 1 and history[-1] - history[-2] < _TOLERANCE * len(people)
        if small or len(history) >= settings.rounds:
            return FittedFactors(model, moments, history)
        model = model.maximised(moments)


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
