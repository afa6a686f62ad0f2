"""Coordinate exchange, against a loop that searches every lane again."""

import numpy as np
import pytest

from edpbrl_gym.estimation import Posterior
from edpbrl_gym.planners import exchange as module
from edpbrl_gym.planners.exchange import exchange
from edpbrl_gym.planners.scores import ExpectedInformation, ExpectedVariance

N, D = 60, 7


def allowed(lane, question):
    mask = np.ones(N, dtype=bool)
    mask[np.delete(question, lane)] = False
    return mask


def without_memory(score, start, sweeps, rng):
    question, value = start.copy(), -np.inf
    for _ in range(sweeps):
        before = value
        for lane in rng.permutation(len(question)):
            values = np.where(allowed(lane, question), score.replacements(question, lane), -np.inf)
            if values.max() > values[question[lane]]:
                question[lane] = values.argmax()
            value = float(values[question[lane]])
        if value <= before + module._ROUNDING * abs(before):
            break
    return question, value


@pytest.mark.parametrize("kind", [ExpectedInformation, ExpectedVariance])
@pytest.mark.parametrize("count", [3, 8])
def test_lanes_beside_which_nothing_changed_are_not_searched_again(kind, count):
    """Question, value to the last bit, and random numbers used are those of the search of every lane."""
    fewer = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        root = np.tril(rng.normal(size=(D, D))) + 2.0 * np.eye(D)
        posterior = Posterior(rng.normal(size=D), root @ root.T)
        score = kind(posterior.draws(6, rng), posterior)
        score.prepare(rng.normal(size=(N, D)).astype(np.float32), 0.1 * rng.normal(size=(count, D)))
        start = rng.permutation(N)[:count]
        searched, replacements = [], score.replacements

        def counted(question, lane, searched=searched, replacements=replacements):
            searched.append(lane)
            return replacements(question, lane)

        score.replacements = counted
        streams = [np.random.default_rng(seed) for _ in range(2)]
        found = exchange(score, allowed, start, sweeps=50, rng=streams[0])
        known = len(searched)
        expected = without_memory(score, start, 50, streams[1])
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1] == expected[1] and streams[0].random() == streams[1].random()
        fewer += len(searched) - 2 * known
    assert fewer > 0
