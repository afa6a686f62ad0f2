"""EM with variational Gaussians of people (Neal & Hinton, 1998)."""

from __future__ import annotations

from typing import Any

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import People
from edpbrl_gym.estimation.population.gaussian import Sums

__all__ = ["climb"]

_GROWTH = 1.25  # of the steps


def climb(
    people: People, state: Any, rounds: int, earlier: Sums | None = None
) -> tuple[Any, Sums, list[float], Floats]:
    """Repeat the steps of EM until the objective stops rising.

    Each step is longer than the last by a quarter; one that lowers the objective is taken back, and the next are half
    as long (adaptive overrelaxation; Salakhutdinov & Roweis, 2003).

    Args:
        people: The answers.
        state: First parameters, `Gaussian` or `Factors`.
        rounds: Largest number of rounds.
        earlier: Sums over people whose answers are not here; they stay as they were computed last.

    Returns:
        The parameters, the sums over people under those before, the objective at the start of each round (of these
        people alone), and the people's estimates, (N, d).
    """
    history: list[float] = []
    plain, length = state, 1.0
    while True:
        sums, bounds, tastes = state.expect(people)
        if earlier is not None:
            sums = {name: earlier[name] + values for name, values in sums.items()}
        value = float(bounds.sum()) + state.penalty()
        if length > 1.0 and not value >= history[-1]:
            state, length = plain, max(1.0, length / 2.0)
            continue
        history.append(value)
        plain = state.maximised(sums)
        small = len(history) > 1 and abs(history[-1] - history[-2]) <= state.tolerance * len(people)
        if small or len(history) >= rounds:
            return plain, sums, history, tastes
        # sums over people who are not here do not belong to an objective that could be checked
        length = length * _GROWTH if earlier is None else 1.0
        state = state.moved(plain, length)
