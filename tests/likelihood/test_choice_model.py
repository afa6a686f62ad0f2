"""The multinomial logit against finite differences, Monte Carlo and its own symmetries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information, log_likelihood, score


def problem(seed, n=7, num_options=4, d=5, spread=1.0):
    rng = np.random.default_rng(seed)
    options = spread * rng.normal(size=(n, num_options, d))
    return options, rng.integers(num_options, size=n), rng.normal(size=d)


def slow_information(options, theta):
    total = 0.0
    for features, p in zip(options, choice_probabilities(options, theta), strict=True):
        mean = p @ features
        total = total + (features.T * p) @ features - np.outer(mean, mean)
    return total


SHAPES = st.tuples(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 6), st.integers(1, 6))


@settings(max_examples=60)
@given(SHAPES, st.floats(0.01, 300.0))
def test_probabilities_sum_to_one_and_are_never_nan(shape, spread):
    seed, n, num_options, d = shape
    options, _, theta = problem(seed, n, num_options, d, spread)
    p = choice_probabilities(options, theta)
    assert p.shape == (n, num_options)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)


@settings(max_examples=40)
@given(SHAPES)
def test_a_common_shift_of_the_options_changes_nothing(shape):
    seed, n, num_options, d = shape
    options, choices, theta = problem(seed, n, num_options, d)
    moved = options + np.random.default_rng(seed + 1).normal(size=(n, 1, d))
    np.testing.assert_allclose(choice_probabilities(moved, theta), choice_probabilities(options, theta), atol=1e-12)
    np.testing.assert_allclose(fisher_information(moved, theta), fisher_information(options, theta), atol=1e-11)
    np.testing.assert_allclose(score(moved, choices, theta), score(options, choices, theta), atol=1e-11)
    assert log_likelihood(moved, choices, theta) == pytest.approx(log_likelihood(options, choices, theta), abs=1e-11)


@settings(max_examples=60)
@given(SHAPES, st.floats(0.01, 300.0))
def test_information_is_the_definition_and_positive_semidefinite(shape, spread):
    seed, n, num_options, d = shape
    options, _, theta = problem(seed, n, num_options, d, spread)
    information = fisher_information(options, theta)
    size = np.square(options).sum()
    np.testing.assert_allclose(information, slow_information(options, theta), atol=1e-12 * size)
    np.testing.assert_array_equal(information, information.T)
    assert np.linalg.eigvalsh(information)[0] >= -1e-12 * size


@settings(max_examples=30)
@given(SHAPES)
def test_information_is_minus_the_expected_hessian(shape):
    """Expectation over all answers of the (finite-difference) Hessian of the log-likelihood of one question."""
    seed, _, num_options, d = shape
    options, _, theta = problem(seed, 1, num_options, d)
    step = 1e-5
    expected = np.zeros((d, d))
    for answer, p in enumerate(choice_probabilities(options, theta)[0]):
        for i, e in enumerate(step * np.eye(d)):
            slope = score(options, [answer], theta + e) - score(options, [answer], theta - e)
            expected[i] -= p * slope / (2 * step)
    np.testing.assert_allclose(fisher_information(options, theta), expected, atol=1e-7)


def test_score_is_the_gradient():
    options, choices, theta = problem(3)
    step = 1e-6
    slopes = [
        (log_likelihood(options, choices, theta + e) - log_likelihood(options, choices, theta - e)) / (2 * step)
        for e in step * np.eye(len(theta))
    ]
    np.testing.assert_allclose(score(options, choices, theta), slopes, atol=1e-7)


def test_no_theta_is_uniform_and_equals_theta_zero():
    options, _, theta = problem(2)
    np.testing.assert_allclose(fisher_information(options), fisher_information(options, 0 * theta), atol=1e-12)
    centred = options - options.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(fisher_information(options), np.einsum("nki,nkj->ij", centred, centred) / 4, atol=1e-12)


def test_utilities_far_beyond_the_range_of_exp():
    options = np.array([[[1000.0], [0.0], [-1000.0]], [[-1e300], [0.0], [1e300]]])
    with np.errstate(all="raise", under="ignore"):
        p = choice_probabilities(options, [1.0])
        information = fisher_information(options[:1], [1.0])
    np.testing.assert_array_equal(p, [[1, 0, 0], [0, 0, 1]])
    assert information == pytest.approx(0.0)
    assert log_likelihood(options[:1], [2], [1.0]) == -2000.0


def test_information_when_the_first_options_underflow():
    """The running factor must not divide by the vanished weight of the earlier options."""
    options = np.array([[[-5000.0, 0.0], [-4000.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    information = fisher_information(options, [1.0, 0.0])
    np.testing.assert_allclose(information, [[0.0, 0.0], [0.0, 1.0]], atol=1e-12)


def test_many_questions_are_summed_over_blocks():
    options, _, theta = problem(8, n=5000, num_options=3, d=4)
    parts = sum(fisher_information(options[i : i + 777], theta) for i in range(0, 5000, 777))
    np.testing.assert_allclose(fisher_information(options, theta), parts, rtol=1e-10, atol=1e-10)


def test_no_questions():
    empty = np.zeros((0, 3, 2))
    assert log_likelihood(empty, [], [0.0, 0.0]) == 0.0
    np.testing.assert_array_equal(score(empty, [], [0.0, 0.0]), 0.0)
    np.testing.assert_array_equal(fisher_information(empty), np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(options=np.zeros((3, 1, 2))), ValueError, "at least 2 options"),
        (dict(options=np.zeros((3, 2))), ValueError, r"shape \(n, K, d\)"),
        (dict(options=np.zeros((3, 2, 0)), theta=[]), ValueError, "at least 1 feature"),
        (dict(options=np.full((3, 2, 2), np.nan)), ValueError, r"12 NaN .* first at index \(0, 0, 0\)"),
        (dict(options=[["a", "b"]]), TypeError, "real numbers"),
        (dict(options=[[[1.0, 2.0], [3.0]]]), TypeError, "real numbers"),
        (dict(theta=[1.0]), ValueError, "the options have 2 features"),
        (dict(theta=[1.0, np.inf]), ValueError, "finite theta"),
        (dict(choices=[0, 1, 2]), ValueError, r"choices in 0\.\.1, got 2 at index \(2,\)"),
        (dict(choices=[0, -1, 1]), ValueError, "got -1"),
        (dict(choices=[0, 1]), ValueError, "one choice for each of the 3 questions"),
        (dict(choices=[0.0, 1.0, 1.0]), TypeError, "integers"),
    ],
)
def test_bad_input_is_named(change, error, message):
    good = dict(options=np.ones((3, 2, 2)), choices=[0, 1, 0], theta=[1.0, 0.0])
    with pytest.raises(error, match=message):
        log_likelihood(**(good | change))
