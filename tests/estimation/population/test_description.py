"""What a population looks like: shares of tastes, favourite tokens, and how well it predicts."""

import numpy as np
import pytest

from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.estimation.population.description import favourites, likelihood_per_answer, taste_shares
from tests.helpers.communities import known_population, simulated


def test_shares_and_favourites_of_a_population():
    population = known_population(np.array([3.0, 0.0]))
    assert taste_shares(population) == pytest.approx({"shared": 9 / 9.5, "own": 0.5 / 9.5})
    features = np.array([[1.0, 0.0], [0.0, 0.0], [0.5, 0.0], [105.0, 0.0], [104.0, 0.0]])
    assert favourites(population, features, (3, 2), 2).tolist() == [0, 3]  # the second step is liked as a whole
    people = simulated(np.random.default_rng(0).normal([3.0, 0.0], 0.5, (40, 2)), 5, 3, 1)
    told, guessed = likelihood_per_answer(population, people)
    assert guessed == pytest.approx(-np.log(3))
    assert told == pytest.approx(sum(map(population.log_evidence, people)) / 200)
    assert told > guessed


def test_shares_of_factors_add_up():
    thetas = np.random.default_rng(0).normal(size=(60, 1)) * np.array([[2.0, 0.0, 0.0]]) + np.array([0.0, 1.0, 0.0])
    population = fit_population(simulated(thetas, 8, 3, 1), kind="factors", factors=2)
    shares = taste_shares(population)
    assert list(shares) == ["shared", "factor 1", "factor 2", "own"] and sum(shares.values()) == pytest.approx(1.0)
    assert shares["factor 1"] > 0.2 > shares["factor 2"]
