"""The predicted accuracy against further questions: closed forms, brute force, and the future lived through."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.session import StoppingRule
from edpbrl_gym.session.outlook import forecast_accuracy, match_accuracy

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
    curve = forecast_accuracy(posterior, information, pairs, [0, 1, 3, 10, 100, 10**12])
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
    np.testing.assert_allclose(forecast_accuracy(posterior, information, pairs, further), expected, atol=4e-3)


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
        found = forecast_accuracy(posterior, information, pairs, [n])[0]
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
    assert forecast_accuracy(wider, information, pairs, [0])[0] == pytest.approx(accuracy, abs=1e-6)


def test_the_stopping_rule_decides_in_this_order():
    rule = StoppingRule(target=0.8, gain=0.02, lookahead=10, minimum=5)
    assert rule.decide(4, 0.99, 0.99) == (False, "4 of at least 5 answers")
    stop, reason = rule.decide(5, 0.8, 0.9)
    assert stop and "reached the target 80.0%" in reason
    stop, reason = rule.decide(5, 0.7, 0.71)
    assert stop and "10 more questions would gain 1.0%, less than 2.0%" in reason
    stop, reason = rule.decide(5, 0.7, 0.75)
    assert not stop and reason == "predicted accuracy 70.0%; 10 more questions would gain 5.0%"
