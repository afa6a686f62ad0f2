"""Variational Gaussians of many people at once: against one at a time, dense formulas, and warm starts."""

import numpy as np
import pytest

from edpbrl_gym.estimation.population.answers import People, answered_people
from edpbrl_gym.estimation.population.sites import _whitened, fit_sites, gain, reduced
from edpbrl_gym.estimation.variational import fit_gaussian
from tests.helpers.communities import simulated


def some_information(rng, shape):
    factors = rng.normal(size=(*shape, shape[-1]))
    return factors @ factors.transpose(0, 1, 3, 2)


@pytest.mark.parametrize("rank", [5, 20])
def test_covariances_of_the_differences_are_the_dense_ones(rank):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 4, 2, rank))
    information = some_information(rng, rows.shape[:3])
    small = reduced(rows)
    assert small.shape == (3, 4, 2, min(rank, 8))
    white, log_determinant = _whitened(small, information)
    gained = gain(small, information)
    for person in range(3):
        flat, dense = rows[person].reshape(8, rank), dense_of(information[person])
        covariance = flat @ np.linalg.inv(np.eye(rank) + flat.T @ dense @ flat) @ flat.T
        own = white[person].reshape(8, -1)
        assert own @ own.T == pytest.approx(covariance, abs=1e-7)
        determinant = np.linalg.slogdet(np.eye(8) + flat @ flat.T @ dense)[1]
        assert log_determinant[person] == pytest.approx(determinant)
        assert gained[person] == pytest.approx(dense - dense @ covariance @ dense, abs=1e-6)
        if rank > 8:  # (K + W^-1)^-1
            inside = np.linalg.inv(flat @ flat.T + np.linalg.inv(dense))
            assert gained[person] == pytest.approx(inside, abs=1e-6)


def dense_of(blocks):
    count, size, _ = blocks.shape
    dense = np.zeros((count * size, count * size))
    for row, block in enumerate(blocks):
        dense[row * size : (row + 1) * size, row * size : (row + 1) * size] = block
    return dense


@pytest.mark.parametrize(
    ("dimension", "taste", "size", "error"),
    [(3, 1.0, 0.3, 0.02), (40, 1.0, 0.3, 0.02), (3, 5.0, 3.0, 0.15), (3, 5.0, 8.0, 0.15)],
)
def test_the_gaussians_are_those_of_one_fit_at_a_time(dimension, taste, size, error):
    """Under a prior that is wide for strong tastes a full step overshoots."""
    tastes = taste * np.random.default_rng(3).normal(size=(6, dimension))
    people = answered_people(simulated(tastes, 5, 3, 4), None)
    (block,) = People(people).blocks
    found = fit_sites(reduced(size * block.rows), block.offsets, tolerance=1e-8)
    for place, person in enumerate(block.people):
        rows = size * people[person].rows
        alone = fit_gaussian(rows, None, 1.0, np.zeros(dimension), np.eye(dimension), tolerance=1e-8)
        # the points of the integrals are turned differently
        assert found.bounds[place] == pytest.approx(alone.log_evidence, abs=error)
        mean = np.einsum("nk,nkd->d", found.scores[place], size * block.rows[place])
        assert mean == pytest.approx(alone.mean, abs=error)


def test_absent_questions_and_alternatives_change_nothing():
    tastes = np.random.default_rng(5).normal(size=(2, 4))
    long, short = simulated(tastes[:1], 6, 4, 6)[0], simulated(tastes[1:], 2, 3, 7)[0]
    people = answered_people([long, short], None)
    (together,) = People(people).blocks
    (alone,) = People(people[1:]).blocks
    bounds = fit_sites(reduced(together.rows), together.offsets, tolerance=1e-9).bounds
    assert together.people.tolist() == [0, 1]
    assert np.isneginf(together.offsets[1, 2:]).all()
    own = fit_sites(reduced(alone.rows), alone.offsets, tolerance=1e-9).bounds
    assert bounds[1] == pytest.approx(own[0], abs=5e-3)  # other points in three dimensions than in two
