"""Variational Gaussians of many people at once: against one at a time, dense formulas, and warm starts."""

import numpy as np
import pytest

from edpbrl_gym.estimation.population.answers import answered_people
from edpbrl_gym.estimation.population.blocks import blocks_of
from edpbrl_gym.estimation.population.geometry import Grams, Rows, geometry_of, reduction
from edpbrl_gym.estimation.population.sites import fit_sites
from edpbrl_gym.estimation.variational import fit_gaussian
from tests.helpers.communities import simulated


def grams(rows):
    flat = rows.reshape(len(rows), -1, rows.shape[3])
    return Grams(flat @ flat.transpose(0, 2, 1), rows.shape[2])


def some_information(rng, shape):
    factors = rng.normal(size=(*shape, shape[-1]))
    return factors @ factors.transpose(0, 1, 3, 2)


def test_both_geometries_agree_with_the_dense_posterior():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 4, 2, 5))
    information, right = some_information(rng, rows.shape[:3]), rng.normal(size=rows.shape[:3])
    for geometry in (grams(rows), Rows(rows)):
        solved = geometry.solve(information, right)
        for person in range(3):
            flat = rows[person].reshape(8, 5)
            dense = np.zeros((8, 8))
            for question in range(4):
                span = slice(2 * question, 2 * question + 2)
                dense[span, span] = information[person, question]
            kernel = flat @ flat.T
            covariance = flat @ np.linalg.inv(np.eye(5) + flat.T @ dense @ flat) @ flat.T
            for question in range(4):
                span = slice(2 * question, 2 * question + 2)
                assert solved.blocks[person, question] == pytest.approx(covariance[span, span])
            determinant = np.linalg.slogdet(np.eye(8) + kernel @ dense)[1]
            assert solved.log_determinant[person] == pytest.approx(determinant)
            scores = np.linalg.solve(np.eye(8) + dense @ kernel, right[person].ravel())
            assert solved.scores[person].ravel() == pytest.approx(scores)
    gain = grams(rows).gain(information)
    inside = np.linalg.inv(grams(rows).kernels[0] + np.linalg.inv(dense_of(information[0])))
    assert gain[0] == pytest.approx(inside)


def dense_of(blocks):
    count, size, _ = blocks.shape
    dense = np.zeros((count * size, count * size))
    for row, block in enumerate(blocks):
        dense[row * size : (row + 1) * size, row * size : (row + 1) * size] = block
    return dense


@pytest.mark.parametrize("rank", [3, 20])
def test_the_reduction_of_the_covariance_is_the_dense_one(rank):
    rng = np.random.default_rng(1)
    rows, shares = rng.normal(size=(3, 4, 2, rank)), np.array([1.0, 0.25, 0.5])
    information = some_information(rng, rows.shape[:3])
    expected = np.zeros((rank, rank))
    for person in range(3):
        flat = rows[person].reshape(8, rank)
        precision = np.eye(rank) + flat.T @ dense_of(information[person]) @ flat
        expected += shares[person] * (np.eye(rank) - np.linalg.inv(precision))
    assert reduction(rows, information, shares) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("dimension", "taste", "size", "error"),
    [(3, 1.0, 0.3, 0.02), (40, 1.0, 0.3, 0.02), (3, 5.0, 3.0, 0.15), (3, 5.0, 8.0, 0.15)],
)
def test_the_gaussians_are_those_of_one_fit_at_a_time(dimension, taste, size, error):
    """Under a prior that is wide for strong tastes a full step overshoots."""
    tastes = taste * np.random.default_rng(3).normal(size=(6, dimension))
    people = answered_people(simulated(tastes, 5, 3, 4), None)
    (block,) = blocks_of(people)
    found = fit_sites(geometry_of(size * block.rows), block.offsets, tolerance=1e-8)
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
    (together,) = blocks_of(people)
    (alone,) = blocks_of(people[1:])
    bounds = fit_sites(geometry_of(together.rows), together.offsets, tolerance=1e-9).bounds
    assert together.people.tolist() == [0, 1]
    assert np.isneginf(together.offsets[1, 2:]).all()
    own = fit_sites(geometry_of(alone.rows), alone.offsets, tolerance=1e-9).bounds
    assert bounds[1] == pytest.approx(own[0], abs=5e-3)  # other points in three dimensions than in two
