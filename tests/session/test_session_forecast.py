"""The predicted accuracy against further questions: closed forms, brute force, and the future lived through."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.session import StoppingRule
from edpbrl_gym.session.outlook import Forecast, match_accuracy

D = 5


def case(seed=0, rank=D, pairs=40, centred=False):
    rng = np.random.default_rng(seed)
    root, gained = rng.normal(size=(D, 2 * D)), rng.normal(size=(D, rank))
    mean = np.zeros(D) if centred else rng.normal(size=D)
    return Posterior(mean, root @ root.T), 0.3 * gained @ gained.T, rng.normal(size=(pairs, D))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, D))
def test_it_begins_at_the_accuracy_now_and_never_falls(seed, rank):
    posterior, information, pairs = case(seed, rank)
    curve = Forecast(posterior, information, pairs).accuracy([0, 1, 3, 10, 100, 10**12])
    assert curve[0] == pytest.approx(posterior.expected_accuracy(pairs), abs=1e-12)
    assert (np.diff(curve) >= -1e-9).all() and 0.5 <= curve[0] and curve[-1] <= 1.0
    if rank == D:
        assert curve[-1] > 0.99
    if rank == 0:
        np.testing.assert_allclose(curve, curve[0], atol=1e-12)


def test_without_knowledge_it_is_the_arcsine():
    posterior, information, pairs = case(centred=True, pairs=1)
    further = np.array([0, 1, 2, 5, 20, 100])
    now = pairs[0] @ np.linalg.inv(posterior.precision) @ pairs[0]
    later = [pairs[0] @ np.linalg.inv(posterior.precision + n * information) @ pairs[0] for n in further]
    expected = 0.5 + np.arcsin(np.sqrt(1 - np.array(later) / now)) / np.pi
    np.testing.assert_allclose(Forecast(posterior, information, pairs).accuracy(further), expected, atol=4e-3)


def test_it_comes_true_where_the_model_is_right():
    """Gaussian answers y = A theta + noise: the future estimates, lived through, are as accurate as predicted."""
    posterior, _, pairs = case(seed=2)
    rng = np.random.default_rng(7)
    rows = 0.8 * rng.normal(size=(3, D))  # one question: three unit-variance observations of theta
    information, covariance = rows.T @ rows, np.linalg.inv(posterior.precision)
    for n in (2, 8):
        precision = posterior.precision + n * information
        truths = posterior.mean + rng.normal(size=(4000, D)) @ np.linalg.cholesky(covariance).T
        told = n * truths @ information + np.sqrt(n) * rng.normal(size=(4000, 3)) @ rows
        means = np.linalg.solve(precision, (posterior.precision @ posterior.mean + told).T).T
        right = (np.sign(means @ pairs.T) == np.sign(truths @ pairs.T)).mean(axis=1)
        found = Forecast(posterior, information, pairs).accuracy([n])[0]
        assert abs(found - right.mean()) < 5 * right.std() / np.sqrt(4000)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.52, 0.98))
def test_the_matched_gaussian_has_the_accuracy(seed, accuracy):
    posterior, information, pairs = case(seed)
    wider = match_accuracy(posterior, pairs, accuracy)
    assert wider.expected_accuracy(pairs) == pytest.approx(accuracy, abs=1e-6)
    np.testing.assert_array_equal(wider.mean, posterior.mean)
    ratio = wider.precision / posterior.precision
    np.testing.assert_allclose(ratio, ratio[0, 0])
    assert Forecast(wider, information, pairs).accuracy([0])[0] == pytest.approx(accuracy, abs=1e-6)


def test_the_futures_are_those_lived_through():
    """Their mean is the curve, and their spread that of the accuracies that are predicted after answers y = A theta."""
    posterior, _, pairs = case(seed=2)
    rng = np.random.default_rng(7)
    rows = 0.8 * rng.normal(size=(3, D))
    information, covariance = rows.T @ rows, np.linalg.inv(posterior.precision)
    forecast, counts = Forecast(posterior, information, pairs), [0, 1, 2, 4, 8]
    paths = forecast.paths(counts, rng.standard_normal((4, 4000, D)))
    np.testing.assert_allclose(paths.mean(axis=0), forecast.accuracy(counts), atol=4e-3)
    for index, n in enumerate(counts[1:], start=1):
        precision = posterior.precision + n * information
        truths = posterior.mean + rng.normal(size=(4000, D)) @ np.linalg.cholesky(covariance).T
        told = n * truths @ information + np.sqrt(n) * rng.normal(size=(4000, 3)) @ rows
        means = np.linalg.solve(precision, (posterior.precision @ posterior.mean + told).T).T
        lived = np.array([Posterior(mean, precision).expected_accuracy(pairs) for mean in means[:1000]])
        np.testing.assert_allclose(
            np.quantile(paths[:, index], (0.1, 0.5, 0.9)), np.quantile(lived, (0.1, 0.5, 0.9)), atol=0.01
        )


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_futures_do_not_depend_on_the_signs_of_vectors(seed):
    posterior, information, pairs = case(seed)
    normal = np.random.default_rng(1).standard_normal((2, 5, D))
    almost = Forecast(posterior, information * (1 + 1e-9), pairs).paths([0, 2, 5], normal)
    np.testing.assert_allclose(Forecast(posterior, information, pairs).paths([0, 2, 5], normal), almost, atol=1e-5)


def test_the_questions_left_are_those_of_the_futures():
    rule = StoppingRule(target=0.8, gain=0.0, lookahead=5, minimum=4)
    further = np.arange(31)
    rates = np.linspace(0.005, 0.03, 101)
    paths = 0.6 + rates[:, None] * further  # reaches the target after 0.2 / rate questions
    left = rule.left(1, further, paths.mean(axis=0), paths)
    reached = np.ceil(np.round(0.2 / rates, 9))
    low, middle, high = np.quantile(reached, (0.1, 0.5, 0.9), method="nearest")
    assert left[:3] == (middle, low, None if high > 25 else high) and left.most == 25
    assert left.reach == (str(int(low)), "25+" if high > 25 else str(int(high)))
    assert rule.left(50, further, paths.mean(axis=0), np.full_like(paths, 0.9)).questions == 0
    assert left.after(3, at_most=100).questions == middle - 3 and left.after(3, at_most=2).questions == 2
    assert left.after(99, at_most=100).low == 0


def test_the_gain_in_a_future_is_that_of_its_own_accuracy():
    """Futures that are further on gain less, and stop earlier by the gain."""
    rule = StoppingRule(target=1.0, gain=0.02, lookahead=5, minimum=0)
    further, rng = np.arange(41), np.random.default_rng(0)
    start = rng.uniform(0.6, 0.9, size=200)
    paths = 1.0 - (1.0 - start)[:, None] * 0.97**further  # the same share of what is left, whatever the start
    left = rule.left(0, further, paths.mean(axis=0), paths)
    gains = (1.0 - start) * (1 - 0.97**5)
    expected = np.maximum(np.ceil(np.log(gains / 0.02) / -np.log(0.97)), 0.0)
    np.testing.assert_allclose(left[:2], np.quantile(expected, (0.5, 0.1), method="nearest"), atol=1)


def test_the_stopping_rule_decides_in_this_order():
    rule = StoppingRule(target=0.8, gain=0.02, lookahead=10, minimum=5)
    assert rule.decide(4, 0.99, 0.99) == (False, "4 of at least 5 answers")
    stop, reason = rule.decide(5, 0.8, 0.9)
    assert stop and "reached the target 80.0%" in reason
    stop, reason = rule.decide(5, 0.7, 0.71)
    assert stop and "10 more questions would gain 1.0%, less than 2.0%" in reason
    stop, reason = rule.decide(5, 0.7, 0.75)
    assert not stop and reason == "predicted accuracy 70.0%; 10 more questions would gain 5.0%"
