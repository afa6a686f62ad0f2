"""Types of people: recovered, weighted by their evidence, and as many as predict best."""

import numpy as np
import pytest

from edpbrl_gym.estimation.population import choose_population, fit_population
from tests.helpers.communities import simulated

MEANS = np.array([[3.0, 0.0], [-2.0, 3.0]])


def community(size, seed):
    rng = np.random.default_rng(seed)
    kinds = (rng.random(size) < 0.35).astype(int)
    return simulated(MEANS[kinds] + 0.5 * rng.normal(size=(size, 2)), 8, 3, seed + 1), kinds


@pytest.fixture(scope="module")
def people():
    return community(100, 0)


@pytest.fixture(scope="module")
def population(people):
    return fit_population(people[0], kind="types", types=2)


def test_types_are_recovered(population):
    assert population.kind == "types" and population.moments.counts.sum() == pytest.approx(100)
    assert population.weights == pytest.approx([0.65, 0.35], abs=0.1)
    for part, mean in zip(population.parts, MEANS, strict=True):
        assert part.mean == pytest.approx(mean, abs=0.7)
    history = np.array(population.log_likelihood)
    assert np.diff(history).min() > -1e-9 * abs(history[-1])


def test_new_people_are_recognised(population):
    people, kinds = community(40, 10)
    found = [population.fit(person).memberships.argmax() for person in people]
    assert (np.array(found) == kinds).mean() > 0.9


def test_one_type_is_the_gaussian(people):
    few = people[0][:40]
    one, gaussian = fit_population(few, kind="types", types=1), fit_population(few)
    assert one.parts[0].covariance == pytest.approx(gaussian.parts[0].covariance)


def test_the_number_of_types_is_chosen_by_people_left_out(people):
    choice = choose_population(people[0][:60], kind="types", candidates=(1, 2), folds=2, rounds=20)
    assert choice.number == 2
    assert choice.log_evidence.shape == (2, 60)
    assert choice.standard_errors[1] == 0.0
    assert (choice.log_evidence[1] - choice.log_evidence[0]).mean() > 2 * choice.standard_errors[0]
