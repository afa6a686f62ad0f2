"""The climb by EM, blocks of people, and the number of factors by held-out people."""

import numpy as np
import pytest

from edpbrl_gym.estimation.population import choose_population, fit_population
from edpbrl_gym.estimation.population.answers import People, answered_people
from edpbrl_gym.estimation.population.em import climb
from edpbrl_gym.estimation.population.gaussian import Gaussian
from tests.helpers.communities import known_population, simulated


def test_longer_steps_end_where_plain_ones_do():
    people = answered_people(simulated(np.random.default_rng(1).normal([1.0, -1.0], 0.7, (60, 2)), 6, 3, 2), None)
    inside, plain = People(people), Gaussian.isotropic(2, 1.0, 4.0)
    for _ in range(400):
        plain = plain.maximised(plain.expect(inside)[0])
    found, _, history, _ = climb(People(people), Gaussian.isotropic(2, 1.0, 4.0), 300)
    assert len(history) < 40 and np.diff(history).min() >= 0
    assert found.mean == pytest.approx(plain.mean, abs=0.02)
    assert found.covariance == pytest.approx(plain.covariance, abs=0.03)
    short, _, history, _ = climb(People(people), Gaussian.isotropic(2, 1.0, 4.0), 1)
    assert len(history) == 1
    start = Gaussian.isotropic(2, 1.0, 4.0)
    assert short.mean == pytest.approx(start.maximised(start.expect(People(people))[0]).mean)


def test_people_in_blocks_are_fitted_as_together(monkeypatch):
    data = simulated(np.random.default_rng(10).normal(size=(24, 22)), 4, 3, 11)
    options = {"rounds": 4, "shrinkage": 5.0}
    cases = [("gaussian", {}), ("factors", {"factors": 2})]
    whole = [fit_population(data, kind=kind, **options, **more) for kind, more in cases]
    monkeypatch.setattr("edpbrl_gym.estimation.population.answers._BLOCK_NUMBERS", 5 * 8 * 128)
    for one, (kind, more) in zip(whole, cases, strict=True):
        split = fit_population(data, kind=kind, **options, **more)
        assert split.log_likelihood == pytest.approx(one.log_likelihood)
        assert split.gaussian.mean == pytest.approx(one.gaussian.mean, abs=1e-6)


def test_each_left_out_person_is_predicted_by_the_others():
    people = simulated(np.random.default_rng(15).normal(size=(4, 2)), 3, 3, 16)
    options = {"rounds": 2, "minimum_people": 1, "shrinkage": 3.0}
    choice = choose_population(people, candidates=(1, 0), folds=4, **options)
    assert choice.candidates == (0, 1)[: len(choice.candidates)]
    for row, number in enumerate(choice.candidates):
        for left in (0, 2):
            others = [person for place, person in enumerate(people) if place != left]
            population = fit_population(others, kind="factors", factors=number, **options)
            assert choice.log_evidence[row, left] == pytest.approx(population.log_evidence(people[left]), abs=1e-6)
    means = choice.log_evidence.mean(axis=1)
    best = int(means.argmax())
    assert choice.number == choice.candidates[best]
    away = choice.log_evidence - choice.log_evidence[best]
    assert choice.standard_errors == pytest.approx(np.sqrt(np.square(away - away.mean(1)[:, None]).mean(1) / 4))


def test_the_search_ends_where_a_number_is_worse():
    people = simulated(np.random.default_rng(17).normal(size=(8, 1)), 3, 2, 18)
    choice = choose_population(people, folds=2, rounds=1, minimum_people=8)
    assert set(choice.candidates) <= {0, 1}  # no more factors than features
    rising = np.diff(choice.log_evidence.mean(axis=1))
    assert (rising[:-1] >= 0).all()


def test_the_fallback_is_as_strong_as_the_people():
    population = known_population(np.array([2.0, 1.0]))
    person = simulated(np.array([[2.0, 1.0]]), 4, 3, 19)[0]
    assert population.typical_scale == pytest.approx((5.0 + 0.5) / 2)
    scales = np.exp(1.5 * np.linspace(-2, 2, 7))
    assert [part.scale for part in population.fit(person).parts[1:]] == pytest.approx(2.75 * scales)
    other = population.fit(person, fallback=known_population(np.zeros(2)).base.scaled(2.0))
    assert [part.scale for part in other.parts[1:]] == pytest.approx(1.375 * scales)
    nothing = np.zeros((0, 3, 2)), np.zeros(0, dtype=int)
    assert population.fit(nothing).fallback_weight == pytest.approx(0.03)
    assert population.fit(nothing, fallback_weight=0.4).weights[0] == pytest.approx(0.6)
