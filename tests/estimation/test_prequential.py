"""Predictions of answers by what came before them."""

import numpy as np
import pytest
from scipy.special import softmax

from edpbrl_gym.estimation import Posterior
from edpbrl_gym.estimation.prequential import Prequential, block_ends, predictive_log_probability
from edpbrl_gym.likelihood import Ranking, Response, Terms

D = 5


def some_terms(rng, count, options=4):
    rows = rng.normal(size=(count, options, D))
    return Terms(rows, np.zeros(rows.shape[:2]), rng.integers(options, size=count))


def some_posterior(rng):
    root = rng.normal(size=(D, D))
    return Posterior(rng.normal(size=D), root @ root.T + 0.5 * np.eye(D))


def test_stages_of_a_ranking_with_fewer_alternatives():
    rng = np.random.default_rng(2)
    posterior = some_posterior(rng)
    options = rng.normal(size=(3, 3, D))
    terms = Ranking().terms(options, [Response.ranking((2, 0, 1))] * 3)
    thetas = posterior.draws(200_000, rng)
    total = 0.0
    for rows in options:
        values = thetas @ rows.T
        total += np.log(softmax(values, axis=1)[:, 2].mean()) + np.log(softmax(values[:, :2], axis=1)[:, 0].mean())
    assert predictive_log_probability(posterior, terms) == pytest.approx(total, abs=0.05)


def test_other_answers_with_the_same_options_are_told_apart():
    rng = np.random.default_rng(5)
    terms = some_terms(rng, 20)
    other, fit = Terms(terms.rows, terms.offsets, (terms.chosen + 1) % 4), counted()[0]
    kept = Prequential(fit)
    kept.log_ratio(terms)
    assert kept.log_ratio(other) == Prequential(fit).log_ratio(other) != kept.log_ratio(terms)


def counted():
    """A procedure, and how many answers it has seen each time that it was asked."""
    seen = []

    def fit(past):
        seen.append(len(past))
        mean = past.rows[np.arange(len(past)), past.chosen].sum(axis=0)
        return Posterior(mean, np.eye(D)), Posterior(np.zeros(D), np.eye(D))

    return fit, seen


def test_answers_one_by_one_cost_a_fit_at_the_end_of_each_block():
    fit, seen = counted()
    terms, kept = some_terms(np.random.default_rng(6), 33), Prequential(fit)
    ratios = [kept.log_ratio(terms.select(np.arange(count))) for count in range(34)]
    assert seen == [4, 6, 9, 14, 21, 32]
    assert ratios[:5] == [0.0] * 5
    for count in (5, 6, 20, 21, 33):  # the same from all answers at once
        fresh, asked = counted()
        assert Prequential(fresh).log_ratio(terms.select(np.arange(count))) == pytest.approx(ratios[count], abs=1e-12)
        assert asked == block_ends(count)[:-1]


def test_the_predictive_probability_of_two_alternatives_with_an_offset_is_an_integral():
    grid, weights = np.polynomial.hermite_e.hermegauss(60)
    rng = np.random.default_rng(8)
    posterior, rows = some_posterior(rng), rng.normal(size=(5, 2, D))
    offsets, chosen = rng.normal(size=(5, 2)), np.array([0, 1, 0, 0, 1])
    total = 0.0
    for row, offset, choice in zip(rows, offsets, chosen, strict=True):
        lead, extra = row[choice] - row[1 - choice], offset[choice] - offset[1 - choice]
        deviation = np.sqrt(lead @ np.linalg.inv(posterior.precision) @ lead)
        values = lead @ posterior.mean + extra + deviation * grid
        total += np.log(weights @ (1 / (1 + np.exp(-values))) / weights.sum())
    assert predictive_log_probability(posterior, Terms(rows, offsets, chosen)) == pytest.approx(total, abs=0.02)


def test_certain_and_impossible_answers_do_not_overflow():
    posterior = Posterior(np.array([1000.0]), np.eye(1))
    rows = np.array([[[1.0], [0.0]]])
    assert predictive_log_probability(posterior, Terms(rows, np.zeros((1, 2)), [0])) == pytest.approx(0.0, abs=1e-12)
    lost = predictive_log_probability(posterior, Terms(rows, np.zeros((1, 2)), [1]))
    assert lost == pytest.approx(-1000.0 + 0.5, abs=2.0)  # E[exp(-theta)], but for the tails of 128 points
