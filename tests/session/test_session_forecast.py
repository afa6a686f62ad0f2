"""The predicted accuracy against further questions: closed forms, brute force, and the future lived through."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.likelihood import BestOf, Ranking
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.session import StoppingRule
from edpbrl_gym.session.forecast import expected_information, forecast_accuracy, match_accuracy, sampled_accuracy

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


def test_it_is_the_orthant_probability():
    """P(theta . x and m_n . x have one sign), jointly normal with covariance t_n^2."""
    posterior, information, pairs = case(seed=4, pairs=6)
    for n in (1, 4, 30):
        expected = []
        for x in pairs:
            now = x @ np.linalg.inv(posterior.precision) @ x
            told = now - x @ np.linalg.inv(posterior.precision + n * information) @ x
            covariance = np.array([[now, told], [told, told]])
            mean = np.full(2, posterior.mean @ x)
            expected.append(
                multivariate_normal(mean, covariance).cdf([0, 0]) + multivariate_normal(-mean, covariance).cdf([0, 0])
            )
        found = forecast_accuracy(posterior, information, pairs, [n])[0]
        assert found == pytest.approx(np.mean(expected), abs=3e-3)


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


def test_without_an_estimate_the_width_is_left():
    posterior, _, pairs = case(centred=True)
    assert match_accuracy(posterior, pairs, 0.5) is posterior
    assert sampled_accuracy(posterior.mean, posterior.draws(50, np.random.default_rng(0)), pairs) == 0.5


def test_the_sampled_accuracy_is_the_gaussians_for_gaussian_draws():
    posterior, _, pairs = case()
    draws = posterior.draws(200_000, np.random.default_rng(0))
    assert sampled_accuracy(posterior.mean, draws, pairs) == pytest.approx(posterior.expected_accuracy(pairs), abs=2e-3)


def test_pairs_without_a_difference_are_guesses():
    posterior, information, pairs = case()
    curve = forecast_accuracy(posterior, information, np.concatenate([pairs, np.zeros((40, D))]), [0, 10])
    np.testing.assert_allclose(curve, (forecast_accuracy(posterior, information, pairs, [0, 10]) + 0.5) / 2)


@pytest.mark.parametrize("model", [BestOf(), Ranking()])
def test_the_expected_information_is_the_mean_over_questions_and_draws(model):
    posterior, _, _ = case()
    options = np.random.default_rng(1).normal(size=(7, 3, D))
    thetas = posterior.draws(5, np.random.default_rng(2))
    found = expected_information(model, options, thetas)
    expected = np.mean([model.information(one[None], theta) for one in options for theta in thetas], axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    if isinstance(model, BestOf):
        brute = np.mean([fisher_information(options, theta) / 7 for theta in thetas], axis=0)
        np.testing.assert_allclose(found, brute, rtol=1e-10)


def test_the_stopping_rule_decides_in_this_order():
    rule = StoppingRule(target=0.8, gain=0.02, lookahead=10, minimum=5)
    assert rule.decide(4, 0.99, 0.99) == (False, "4 of at least 5 answers")
    stop, reason = rule.decide(5, 0.8, 0.9)
    assert stop and "reached the target 80.0%" in reason
    stop, reason = rule.decide(5, 0.7, 0.71)
    assert stop and "10 more questions would gain 1.0%, less than 2.0%" in reason
    stop, reason = rule.decide(5, 0.7, 0.75)
    assert not stop and reason == "predicted accuracy 70.0%; 10 more questions would gain 5.0%"


def test_bad_arguments_are_named():
    posterior, information, pairs = case()
    for arguments, message in (
        ((posterior, information, pairs[:0], [0]), "at least one pair"),
        ((posterior, information, pairs[:, :3], [0]), "differences of shape"),
        ((posterior, information[:3, :3], pairs, [0]), "information of shape"),
        ((posterior, information, pairs, [-1]), "further in 0"),
    ):
        with pytest.raises(ValueError, match=message):
            forecast_accuracy(*arguments)
    with pytest.raises(ValueError, match="at least one question"):
        expected_information(BestOf(), np.empty((0, 3, D)), posterior.mean[None])
