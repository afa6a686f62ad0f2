"""Predictions of answers by what came before them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from edpbrl_gym.estimation import Posterior
from edpbrl_gym.estimation.prequential import Prequential, block_ends, predictive_log_probability
from edpbrl_gym.likelihood import BestOf, Ranking, Response, Terms

D = 5


def some_terms(rng, count, options=4):
    rows = rng.normal(size=(count, options, D))
    return Terms(rows, np.zeros(rows.shape[:2]), rng.integers(options, size=count))


def some_posterior(rng):
    root = rng.normal(size=(D, D))
    return Posterior(rng.normal(size=D), root @ root.T + 0.5 * np.eye(D))


def test_the_predictive_probability_against_monte_carlo():
    rng = np.random.default_rng(1)
    posterior, terms = some_posterior(rng), some_terms(rng, 7)
    thetas = posterior.draws(200_000, rng)
    total = sum(
        np.log(softmax(thetas @ rows.T, axis=1)[:, chosen].mean())
        for rows, chosen in zip(terms.rows, terms.chosen, strict=True)
    )
    assert predictive_log_probability(posterior, terms) == pytest.approx(total, abs=0.05)


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


def test_no_terms_are_certain():
    rng = np.random.default_rng(3)
    assert predictive_log_probability(some_posterior(rng), BestOf().terms(rng.normal(size=(0, 3, D)), [])) == 0.0


@given(st.integers(0, 3000))
def test_blocks_follow_each_other_and_end_with_the_last_term(count):
    ends = block_ends(count)
    assert ends[-1] == count if count > 4 else ends == [count]
    assert all(first < second <= int(np.ceil(1.5 * first)) for first, second in zip(ends, ends[1:], strict=False))


@given(st.integers(0, 60), st.integers(0, 10))
def test_a_sum_over_blocks_each_from_the_past_alone(count, seed):
    rng = np.random.default_rng(seed)
    terms, asked = some_terms(rng, count), []

    def fit(past):
        asked.append(len(past))
        mean = past.rows.sum(axis=(0, 1))
        return Posterior(mean, np.eye(D)), Posterior(-mean, np.eye(D))

    expected, ends = 0.0, block_ends(count)
    for start, end in zip(ends, ends[1:], strict=False):
        first, second = fit(terms.select(np.arange(start)))
        block = terms.select(np.arange(start, end))
        expected += predictive_log_probability(first, block) - predictive_log_probability(second, block)
    asked.clear()
    found = Prequential(fit)
    for part in range(count + 1):  # answer by answer: a fit at the end of each block only
        ratio = found.log_ratio(terms.select(np.arange(part)))
    assert ratio == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert asked == ends[:-1]
    assert Prequential(fit).log_ratio(terms) == ratio


def test_other_answers_with_the_same_options_are_told_apart():
    rng = np.random.default_rng(5)
    terms = some_terms(rng, 20)
    other = Terms(terms.rows, terms.offsets, (terms.chosen + 1) % 4)

    def fit(past):
        mean = past.rows[np.arange(len(past)), past.chosen].sum(axis=0)
        return Posterior(mean, np.eye(D)), Posterior(np.zeros(D), np.eye(D))

    kept = Prequential(fit)
    kept.log_ratio(terms)
    assert kept.log_ratio(other) == Prequential(fit).log_ratio(other) != kept.log_ratio(terms)
