"""What the project found out about the likelihood: how noisy unit-norm users are (F7), and which bounds hold (F6)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information


def unit(rng, *shape):
    rows = rng.normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def third_and_second(options, theta, u, v):
    """D^3 f[u, u, v] and D^2 f[u, u] of the negative log-likelihood: the third cumulant and the variance, summed."""
    p = choice_probabilities(options, theta)
    a, b = options @ u, options @ v
    a = a - (p * a).sum(axis=1, keepdims=True)
    b = b - (p * b).sum(axis=1, keepdims=True)
    return float((p * a**2 * b).sum()), float((p * a**2).sum())


def diameter(options):
    return max(np.linalg.norm(q[:, None] - q[None, :], axis=-1).max() for q in options)


def test_f7_scale_one_is_nearly_uniform_for_unit_vectors():
    """Random unit vectors, d = 384, K = 4: utilities spread by 1/sqrt(384) = 0.051, so answers are almost random."""
    rng = np.random.default_rng(7)
    options, theta = unit(rng, 5_000, 4, 384), unit(rng, 384)
    assert (options @ theta).std() == pytest.approx(384**-0.5, rel=0.02)
    best = {scale: choice_probabilities(options, scale * theta).max(axis=1).mean() for scale in (1, 5, 20, 100)}
    assert 0.25 < best[1] < 0.27  # the user picks the best option 26% of the time, a random one 25%
    p = choice_probabilities(options, theta)
    entropy = -(p * np.log(p)).sum(axis=1).mean()
    assert np.log(4) - entropy < 2e-3  # an answer carries 0.001 of 1.386 nats
    assert best[5] < 0.35 and best[20] < 0.6 and best[100] > 0.8


def test_f6_the_bias_then_exceeds_the_bound_at_its_best_constant():
    """lambda = 100, unit theta*, no informative question: MSE = theta theta' against I_lambda^-1 = I / 100.

    The bound needs |theta*|^2 <= 1 / lambda, which unit norm fails for lambda > 1.
    """
    theta = unit(np.random.default_rng(1), 5)
    options = np.zeros((1, 4, 5))  # all options equal: the estimate is 0 whatever is answered, with r = 0 and C = 1
    bound = np.linalg.inv(fisher_information(options, theta) + 100 * np.eye(5))
    assert theta @ np.outer(theta, theta) @ theta == pytest.approx(1.0)
    assert theta @ bound @ theta == pytest.approx(0.01)


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 5), st.integers(1, 5), st.floats(0.1, 20))
def test_f6_generalised_self_concordance_scales_with_the_feature_radius(seed, n, num_options, d, spread):
    """|D^3 f[u, u, v]| <= max_k |x_k - xbar| |v| D^2 f[u, u] <= diameter |v| D^2 f[u, u] (Bach, 2010)."""
    rng = np.random.default_rng(seed)
    options, theta = spread * rng.normal(size=(n, num_options, d)), rng.normal(size=d)
    u, v = rng.normal(size=(2, d))
    third, second = third_and_second(options, theta, u, v)
    p = choice_probabilities(options, theta)
    mean = np.einsum("nk,nkd->nd", p, options)
    radius = np.linalg.norm(options - mean[:, None], axis=-1).max()
    assert abs(third) <= radius * np.linalg.norm(v) * second * (1 + 1e-9) + 1e-12
    assert radius <= diameter(options) * (1 + 1e-9)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(0.01, 3))
def test_f6_what_replaces_the_bound_on_the_hessian(seed, distance):
    """exp(-D |v|) I(theta) <= I(theta + v) <= exp(D |v|) I(theta), D the largest diameter of a question."""
    rng = np.random.default_rng(seed)
    options, theta = unit(rng, 5, 4, 3), rng.normal(size=3)
    v = distance * unit(rng, 3)
    factor = np.exp(diameter(options) * distance)
    here, there = fisher_information(options, theta), fisher_information(options, theta + v)
    for difference in (there - here / factor, factor * here - there):
        assert np.linalg.eigvalsh(difference)[0] >= -1e-12


def test_f6_no_constant_of_standard_self_concordance_holds():
    """For K = 2, |f'''| / f''^1.5 = |1 - 2p| / sqrt(p (1 - p)), which has no bound; the standard constant is 2."""
    options = np.array([[[0.5], [-0.5]]])
    one = np.ones(1)
    ratios = []
    for utility in (2.0, 6.0, 12.0, 24.0):
        third, second = third_and_second(options, utility * one, one, one)
        p = 1 / (1 + np.exp(utility))
        ratios.append(abs(third) / second**1.5)
        assert ratios[-1] == pytest.approx((1 - 2 * p) / np.sqrt(p * (1 - p)), rel=1e-6)
    assert ratios[0] > 2.0 and ratios[-1] > 1e5 and np.all(np.diff(ratios) > 0)


def test_f6_the_papers_hessian_bound_fails_already_at_unit_norm():
    """Step 2 of the paper's proof, I(there) >= (1 - r)^2 I(here), r = |there - here| in the norm of I(here)."""
    options = np.array([[[1.0], [-1.0]]])  # unit-norm features
    here, there = np.array([0.9]), np.array([1.0])  # at most unit-norm tastes
    at_here, at_there = fisher_information(options, here)[0, 0], fisher_information(options, there)[0, 0]
    radius = abs(there - here)[0] * np.sqrt(at_here)
    assert radius < 1
    assert at_there < (1 - radius) ** 2 * at_here
    assert at_there >= np.exp(-2 * 0.1) * at_here  # the generalised form holds (diameter 2)
