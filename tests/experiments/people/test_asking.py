"""Rules against computations that share no code with them; predictions against quadrature and Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.estimation import Posterior
from edpbrl_gym.experiments.people.asking import DRAWS, RULES, choose_question, expected_gain, mutual_information
from edpbrl_gym.experiments.people.data import Person
from edpbrl_gym.experiments.people.prediction import averaged_over_draws
from tests.helpers.made_people import made_people


def random_posterior(rng, dimension=3, scale=1.0):
    root = rng.standard_normal((dimension, dimension))
    return Posterior(rng.standard_normal(dimension), (root @ root.T + np.eye(dimension)) / scale)


def softmax(values):
    powers = np.exp(values - values.max())
    return powers / powers.sum()


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), size=st.integers(2, 5))
def test_the_expected_gain_is_that_of_the_full_matrices(seed, size):
    rng = np.random.default_rng(seed)
    posterior, options = random_posterior(rng), rng.standard_normal((4, size, 3))
    values = expected_gain(posterior, options, np.random.default_rng(seed))
    draws = posterior.draws(DRAWS, np.random.default_rng(seed))
    for question, value in zip(options, values, strict=True):
        information = np.zeros((3, 3))
        for theta in draws:
            p = softmax(question @ theta)
            information += question.T @ (np.diag(p) - np.outer(p, p)) @ question / DRAWS
        after = np.linalg.slogdet(posterior.precision + information)[1]
        assert value == pytest.approx(after - np.linalg.slogdet(posterior.precision)[1], abs=1e-9)
    same = np.repeat(options[:1, :1], size, axis=1)
    assert expected_gain(posterior, same, rng)[0] == pytest.approx(0.0, abs=1e-9)  # equal options teach nothing


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), size=st.integers(2, 5))
def test_the_mutual_information_is_that_of_the_draws(seed, size):
    rng = np.random.default_rng(seed)
    posterior, options = random_posterior(rng), rng.standard_normal((4, size, 3))
    values = mutual_information(posterior, options, np.random.default_rng(seed))
    draws = posterior.draws(DRAWS, np.random.default_rng(seed))
    for question, value in zip(options, values, strict=True):
        p = np.array([softmax(question @ theta) for theta in draws])
        mean = p.mean(axis=0)
        assert value == pytest.approx(-(mean * np.log(mean)).sum() + (p * np.log(p)).sum(axis=1).mean(), abs=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_does_not_see_answers_and_takes_any_number_of_options(rule):
    left = made_people(1, sizes=(3, 2)).people[0]
    other = Person("other", left.options, left.sizes, (left.chosen + 1) % 2)
    posterior = random_posterior(np.random.default_rng(0))
    picks = [choose_question(rule, lambda: posterior, one, np.random.default_rng(1)) for one in (left, other)]
    assert picks[0] == picks[1] and 0 <= picks[0] < len(left)


def test_rules_ask_what_teaches_most():
    posterior = Posterior(np.zeros(2), np.diag([1.0, 1e6]))
    known, unknown = [[0.0, 3.0], [0.0, -3.0]], [[1.0, 0.0], [-1.0, 0.0]]
    left = Person("p", np.array([known, unknown, known]), np.full(3, 2), np.zeros(3, dtype=int))
    for rule in ("adaptive", "bald"):
        assert choose_question(rule, lambda: posterior, left, np.random.default_rng(0)) == 1

    def never():
        raise AssertionError("random questions need no posterior")

    assert choose_question("random", never, left, np.random.default_rng(0)) == 0
    with pytest.raises(ValueError, match="rule"):
        choose_question("best", never, left, np.random.default_rng(0))


# -- predictions -----------------------------------------------------------------------------------------------------


def test_averages_over_a_posterior_are_those_of_quadrature_for_pairs():
    rng = np.random.default_rng(0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    for scale in (0.1, 1.0, 10.0):
        posterior, options = random_posterior(rng, scale=scale), rng.standard_normal((5, 2, 3))
        lead = options[:, 0] - options[:, 1]
        middle, deviation = lead @ posterior.mean, posterior.standard_deviation(lead)
        expected = (1 / (1 + np.exp(-(middle[:, None] + deviation[:, None] * nodes)))) @ weights
        found = posterior.choice_probabilities(options)
        assert np.allclose(found.sum(axis=1), 1.0) and np.allclose(found[:, 0], expected, atol=2e-3)


def test_averages_over_a_posterior_are_those_of_many_draws():
    rng = np.random.default_rng(1)
    posterior, options = random_posterior(rng), rng.standard_normal((6, 4, 3))
    many = averaged_over_draws(posterior.draws(100_000, rng), options)
    assert np.allclose(posterior.choice_probabilities(options), many, atol=6e-3)
    one = rng.standard_normal((1, 3))
    assert np.allclose(averaged_over_draws(one, options)[2], softmax(options[2] @ one[0]))
