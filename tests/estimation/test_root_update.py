"""The root of a covariance after a few more answers, against a new decomposition of the precision."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.estimation import Posterior
from edpbrl_gym.estimation.data import answer_terms
from edpbrl_gym.estimation.mixture import after_answers
from edpbrl_gym.estimation.root_update import is_cheaper, updated_root
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.likelihood import Ranking, Response


def precision_of(dimension: int, seed: int) -> np.ndarray:
    columns = np.random.default_rng(seed).normal(size=(dimension, dimension + 5)) / np.sqrt(dimension)
    return columns @ columns.T + 0.1 * np.eye(dimension)


@settings(max_examples=40)
@given(
    dimension=st.integers(1, 140),
    count=st.integers(0, 12),
    size=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    seed=st.integers(0, 1000),
)
def test_the_updated_root_is_that_of_the_new_precision(dimension, count, size, seed):
    """Also for dimensions that are no multiple of a block, more rows than dimensions, and rows that say very much."""
    precision = precision_of(dimension, seed)
    rows = size * np.random.default_rng(seed).normal(size=(count, dimension))
    new = precision + rows.T @ rows
    root = np.tril(np.linalg.inv(np.linalg.cholesky(precision)))  # zeros only up to rounding
    found = updated_root(root, rows)
    np.testing.assert_array_equal(np.triu(found, 1), 0.0)
    expected = np.linalg.inv(np.linalg.cholesky(new))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * np.linalg.cond(new) * np.abs(expected).max())


def test_an_update_is_made_where_it_takes_fewer_operations():
    assert is_cheaper(384, 3) and is_cheaper(4096, 1000) and not is_cheaper(12, 3) and not is_cheaper(384, 200)


@pytest.mark.parametrize("count", [3, 60])
def test_a_posterior_with_rows_is_that_of_the_sum(count):
    """By an update for few rows, by a decomposition for many."""
    rng = np.random.default_rng(1)
    precision, mean, rows = precision_of(90, 2), rng.normal(size=90), rng.normal(size=(count, 90))
    found = Posterior(rng.normal(size=90), precision).with_rows(mean, rows)
    expected = Posterior(mean, precision + rows.T @ rows)
    assert is_cheaper(90, count) == (count == 3)
    for one in (found, pickle.loads(pickle.dumps(found))):
        np.testing.assert_array_equal(one.mean, mean)
        np.testing.assert_allclose(one.inverse_factor, expected.inverse_factor, rtol=0, atol=1e-11)
        np.testing.assert_allclose(one.precision, expected.precision, rtol=1e-12)
    draws = [one.draws(5, np.random.default_rng(3)) for one in (found, expected)]
    np.testing.assert_allclose(*draws, atol=1e-11)
    np.testing.assert_allclose(found.standard_deviation(rows), expected.standard_deviation(rows), rtol=1e-10)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.as_prior().covariance, expected.as_prior().covariance, rtol=0, atol=1e-11)


@pytest.mark.parametrize("ranked", [False, True])
def test_an_answer_gives_the_posterior_of_its_estimate(ranked):
    """The small step, which updates a root, against the estimate whose precision is decomposed."""
    rng = np.random.default_rng(5)
    before = Posterior(0.3 * rng.normal(size=80), precision_of(80, 4))
    options = rng.normal(size=(1 if ranked else 2, 5, 80))
    answers = [Response.ranking([1, 3, 0, 4, 2])] if ranked else [1, 0]
    terms = answer_terms((options, answers), Ranking() if ranked else None)
    found = after_answers(before, terms)
    assert found._factor is None  # so that the root was updated
    estimate, *_ = WhitenedAnswers(*terms.differences(), before.as_prior()).estimate(1.0)
    expected = Posterior.from_estimate(estimate)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.precision, expected.precision, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.inverse_factor, expected.inverse_factor, rtol=0, atol=1e-11)
