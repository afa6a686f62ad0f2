"""The coverage benchmark: its closed-loop truth is the population's, and its design ignores the noise."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gap_coverage import run, synthetic_population
from edpbrl_gym.design import MomentProblem, PolicyMoments, make_criterion


def test_few_repetitions_cover():
    population = synthetic_population(40, actions=3, horizon=3, dimension=4)
    found = run(population, criterion="D", repetitions=10, noises=20)
    assert sum(one.covered for one in found) >= 7
    assert all(0 < one.truth < one.gain for one in found)


def test_the_mean_reward_of_every_sequence():
    population = synthetic_population(6, actions=3, horizon=2, dimension=4)
    problem = MomentProblem(criterion=make_criterion("A"), episodes=5, horizon=2, dimension=4, regularization=1.0)
    reward = problem.gradient(PolicyMoments.from_features(population.path_features(np.zeros((6, 2), dtype=int))))
    by_path = [
        population.values(reward, np.broadcast_to(sequence, (6, 2))).mean() for sequence in population.sequences()
    ]
    assert population.sequence_values(reward).mean(axis=0) == pytest.approx(np.array(by_path))
