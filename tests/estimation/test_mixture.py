"""A mixture of Gaussian posteriors: its draws, its moments and its choices."""

import numpy as np
import pytest
from scipy.special import softmax

from edpbrl_gym.estimation import Posterior
from edpbrl_gym.estimation.mixture import MixturePosterior

RNG = np.random.default_rng(0)
PARTS = [
    Posterior(np.array([3.0, 0.0]), np.array([[4.0, 1.0], [1.0, 2.0]])),
    Posterior(np.array([-2.0, 1.0]), np.array([[1.0, 0.0], [0.0, 9.0]])),
    Posterior(np.array([0.0, -4.0]), 3.0 * np.eye(2)),
]
WEIGHTS = np.array([0.5, 0.3, 0.2])


def test_draws_have_the_moments_of_the_mixture():
    mixture = MixturePosterior.of(PARTS, WEIGHTS)
    draws = mixture.draws(40_000, np.random.default_rng(1))
    mean = WEIGHTS @ [part.mean for part in PARTS]
    second = sum(
        w * (part.covariance() + np.outer(part.mean, part.mean)) for w, part in zip(WEIGHTS, PARTS, strict=True)
    )
    covariance = second - np.outer(mean, mean)
    assert mixture.mean == pytest.approx(mean)
    assert mixture.covariance() == pytest.approx(covariance)
    assert draws.mean(axis=0) == pytest.approx(mean, abs=0.02)
    assert np.cov(draws.T) == pytest.approx(covariance, abs=0.06)
    # and they are no draws of the Gaussian with these moments: few lie between the parts
    near = np.linalg.norm(draws[:, None] - np.array([part.mean for part in PARTS]), axis=2).min(axis=1)
    gaussian = Posterior(mixture.mean, mixture.precision).draws(40_000, np.random.default_rng(2))
    far = np.linalg.norm(gaussian[:, None] - np.array([part.mean for part in PARTS]), axis=2).min(axis=1)
    assert np.quantile(near, 0.9) < 0.7 * np.quantile(far, 0.9)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 16, 64])
def test_each_part_gives_its_share_of_the_draws(size):
    sharp = [Posterior(part.mean, 1e8 * np.eye(2)) for part in PARTS]
    mixture, rng = MixturePosterior.of(sharp, WEIGHTS), np.random.default_rng(3)
    totals = np.zeros(3)
    for _ in range(400):
        draws = mixture.draws(size, rng)
        assert draws.shape == (size, 2)
        distances = np.linalg.norm(draws[:, None] - np.array([part.mean for part in sharp]), axis=2)
        counts = np.bincount(distances.argmin(axis=1), minlength=3) if size else np.zeros(3)
        assert (np.abs(counts - size * WEIGHTS) < 1 + 1e-9).all()
        totals += counts
    assert totals / 400 == pytest.approx(size * WEIGHTS, abs=0.1)


def test_parts_of_no_weight_are_left_out():
    assert MixturePosterior.of(PARTS, [1.0 - 2e-4, 1e-4, 1e-4]) is PARTS[0]
    assert Posterior.of_mixture(PARTS, [0.0, 1.0, 0.0]) is PARTS[1]
    two = MixturePosterior.of(PARTS, [0.5, 0.4995, 0.0005])
    assert isinstance(two, MixturePosterior) and len(two.parts) == 2
    assert two.weights.sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="size"):
        two.draws(-1, RNG)


def test_choices_are_averaged_over_the_parts():
    mixture, rng = MixturePosterior.of(PARTS, WEIGHTS), np.random.default_rng(5)
    options = rng.normal(size=(6, 3, 2))
    thetas = mixture.draws(40_000, rng)
    found = mixture.choice_probabilities(options)
    expected = softmax(np.einsum("nkd,sd->snk", options, thetas), axis=2).mean(axis=0)
    assert found.shape == (6, 3) and found == pytest.approx(expected, abs=0.01)
    gaussian = Posterior(mixture.mean, mixture.precision).choice_probabilities(options)
    assert np.abs(found - gaussian).max() > 0.02
