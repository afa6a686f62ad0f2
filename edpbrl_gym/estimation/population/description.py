"""What a population looks like: how much of people's tastes is shared, and how well it predicts their answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.map_estimate import Data
from edpbrl_gym.estimation.population.answers import answered_people
from edpbrl_gym.estimation.population.model import Population

__all__ = ["favourites", "likelihood_per_answer", "taste_shares"]


def taste_shares(population: Population) -> dict[str, float]:
    """Shares of the mean square of a taste, in the base prior's coordinates; they sum to 1.

    Returns:
        "shared": of the mean over people. "factor 1", "factor 2", ...: of each factor, the largest first. "own": what
        only a person's own answers can tell.
    """
    state = population.state
    total = population.typical_scale * population.dimension
    shares = {"shared": float(state.mean @ state.mean) / total}
    if population.kind == "factors":
        sizes = np.square(np.linalg.svd(state.loadings, compute_uv=False)) / total
        shares |= {f"factor {number}": float(size) for number, size in enumerate(sizes, start=1)}
    return {**shares, "own": 1.0 - sum(shares.values())}


def favourites(population: Population, features: Floats, sizes: Sequence[int], count: int) -> NDArray[np.intp]:
    """Rows of the tokens that the mean taste likes most, beside the other tokens of their step, best first, (count,).

    Args:
        population: The population.
        features: Embeddings of the tokens, (N, d), step after step.
        sizes: Number of tokens of each step, sum N.
        count: Number of tokens.
    """
    steps = np.split(features @ population.gaussian.mean, np.cumsum(sizes)[:-1])
    lead = np.concatenate([step - step.mean() for step in steps])
    return np.argsort(-lead, kind="stable")[:count]


def likelihood_per_answer(population: Population, people: Sequence[Data]) -> tuple[float, float]:
    """Mean log-likelihood of an answer under the population, and by guessing.

    A person's answers are predicted together, from the population alone. A ranking counts as several answers.
    """
    answered = answered_people(people, None, population.dimension)
    number = sum(len(person.rows) for person in answered)
    guessed = -sum(float(np.log(np.exp(person.offsets).sum(axis=1) + 1.0).sum()) for person in answered)
    return sum(population.log_evidence(person.terms()) for person in answered) / number, guessed / number
