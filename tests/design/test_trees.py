"""Trees of action sequences against a loop over all sequences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.design.trees import EpisodeTrees


def trees_of(noises: int, actions: int, horizon: int, dimension: int, seed: int) -> EpisodeTrees:
    rng = np.random.default_rng(seed)
    return EpisodeTrees([rng.normal(size=(noises, actions ** (h + 1), dimension)) for h in range(horizon)])


def reward_of(dimension: int, horizon: int, seed: int):
    """A reward that is neither linear nor the same at every step."""
    rng = np.random.default_rng(seed + 1)
    weights = rng.normal(size=(horizon, dimension))
    return lambda features, steps: np.sin(np.einsum("nd,nd->n", np.asarray(features), weights[np.asarray(steps)]))


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 1000))
def test_backward_induction_against_all_sequences(noises, actions, horizon, dimension, seed):
    trees, reward = trees_of(noises, actions, horizon, dimension, seed), reward_of(dimension, horizon, seed)
    best = trees.best_values(reward)
    sequences = list(itertools.product(range(actions), repeat=horizon))
    totals = np.empty((noises, len(sequences)))
    for noise, (number, sequence) in itertools.product(range(noises), enumerate(sequences)):
        node, total = 0, 0.0
        for h, action in enumerate(sequence):
            node = node * actions + action
            total += reward(trees.features[h][noise, node][None], [h])[0]
        totals[noise, number] = total
    np.testing.assert_allclose(best, totals.max(axis=1), rtol=1e-12)
    np.testing.assert_allclose(trees.sequence_values(reward), totals, rtol=1e-12)
    chosen = trees.best_actions(reward)
    np.testing.assert_allclose(trees.values(reward, chosen), best, rtol=1e-12)
    np.testing.assert_array_equal(trees.sequences(), sequences)
    other = np.array([sequences[seed % len(sequences)]] * noises)
    np.testing.assert_allclose(trees.values(reward, other), totals[:, seed % len(sequences)], rtol=1e-12)


def test_the_features_along_a_path():
    trees = trees_of(3, 2, 3, 4, 0)
    path = trees.path_features([[0, 1, 1], [1, 0, 0], [1, 1, 1]])
    assert path.shape == (3, 3, 4)
    for h, node in enumerate([0, 1, 3]):
        np.testing.assert_array_equal(path[0, h], trees.features[h][0, node])
    for h, node in enumerate([1, 2, 4]):
        np.testing.assert_array_equal(path[1, h], trees.features[h][1, node])


def test_some_of_the_noises():
    trees, reward = trees_of(4, 2, 2, 3, 1), reward_of(3, 2, 1)
    np.testing.assert_allclose(trees.select([2, 2, 0]).best_values(reward), trees.best_values(reward)[[2, 2, 0]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EpisodeTrees([]), "at least one level"),
        (lambda: EpisodeTrees([np.zeros((2, 3, 4)), np.zeros((2, 6, 4))]), r"features\[1\] .* \(2, 9, 4\)"),
        (lambda: EpisodeTrees([np.zeros((0, 3, 4))]), "at least one noise"),
        (lambda: trees_of(2, 2, 2, 3, 0).path_features([[0, 2], [0, 0]]), "actions in 0..1"),
        (lambda: trees_of(2, 2, 2, 3, 0).select([2]), "noises in 0..1"),
    ],
)
def test_messages(make, message):
    with pytest.raises(ValueError, match=message):
        make()
