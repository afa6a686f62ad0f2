"""Images for a taste: by enumeration, by a policy, by given directions."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.diffusion import enumerate_episodes
from edpbrl_gym.personalize import best_samples, given_samples
from tests.helpers.tiny_digits import save_tiny_digits

pytestmark = pytest.mark.needs("images")

NOISES = [3, 9, 4]


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    model = str(save_tiny_digits(tmp_path_factory.mktemp("digits") / "model"))
    return {"model": model, "conditions": [0, 1, 7], "weights": (6.0,), "blocks": 2, "steps": 2}


@pytest.fixture(scope="module")
def env(arguments):
    return gymnasium.make("edpbrl/DiffusionGuidance-v0", **arguments)


@pytest.fixture(scope="module")
def theta():
    return np.random.default_rng(0).normal(size=12)


def test_the_best_are_the_best_of_the_trees(env, theta):
    seen = []
    best = best_samples(env, theta, NOISES, progress=lambda done, total: seen.append((done, total)))
    trees = enumerate_episodes(env.unwrapped.model, NOISES)

    def reward(features, steps):
        return np.where(np.asarray(steps) == 1, np.asarray(features, dtype=np.float64) @ theta, 0.0)

    np.testing.assert_array_equal(best.actions, trees.best_actions(reward))
    np.testing.assert_allclose(best.scores, trees.best_values(reward), atol=1e-4)
    np.testing.assert_allclose(best.scores_by(theta), best.scores)
    np.testing.assert_allclose(best.scores_by(2 * theta), 2 * best.scores)
    assert seen == [(1, 3), (2, 3), (3, 3)] and best.images.shape == (3, 8, 8, 3)
    for rows in np.random.default_rng(1).integers(3, size=(10, 3, 2)):
        assert (given_samples(env, theta, NOISES, rows).scores <= best.scores + 1e-4).all()


def test_wrong_arguments(arguments, env, theta):
    with pytest.raises(ValueError, match="theta"):
        best_samples(env, theta[:5], NOISES)
    with pytest.raises(ValueError, match="theta"):
        given_samples(env, theta[:5], NOISES, [[0, 1]] * 3)
    with pytest.raises(ValueError, match="actions"):
        given_samples(env, theta, NOISES, [[0, 1]] * 2)
