"""All episodes from some initial noises, where nothing is random after the noise: trees of action sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import AnyFloats, Floats, Indices
from edpbrl_gym._validation import check_array, check_count, check_integers

__all__ = ["EpisodeTrees", "StepReward"]

StepReward = Callable[[ArrayLike, ArrayLike], Floats]
"""Reward (n,) of features (n, d) shown at steps (n,), such as a `GradientReward`."""


class EpisodeTrees:
    """The features that every sequence of actions shows, for n initial noises.

    Level h holds the nodes that h + 1 actions reach, in the order of the sequences read as numbers in base A: child a
    of node i is node i A + a of the next level.

    Args:
        features: Features of each level, ``features[h]`` of shape (n, A**(h + 1), d), h = 0..H-1. Float32 arrays
            are kept as they are.

    Attributes:
        features: The levels.
        noises: n.
        num_actions: A.
        horizon: H.
        dimension: d.

    Raises:
        ValueError: If there is no level or the shapes do not fit.
    """

    def __init__(self, features: Sequence[ArrayLike]) -> None:
        if not len(features):
            raise ValueError("Expected the features of at least one level, got none.")
        levels = [
            check_array(level, f"features[{h}]", shape=("n", "A**(h+1)", "d"), keep=(np.float32,))
            for h, level in enumerate(features)
        ]
        self.noises, self.num_actions, self.dimension = levels[0].shape
        for h, level in enumerate(levels):
            expected = (self.noises, self.num_actions ** (h + 1), self.dimension)
            if level.shape != expected:
                raise ValueError(f"Expected features[{h}] of shape (n, A**(h+1), d) = {expected}, got {level.shape}.")
        if 0 in levels[0].shape:
            raise ValueError(f"Expected at least one noise, action and feature, got shape {levels[0].shape}.")
        self.features: list[AnyFloats] = levels
        self.horizon = len(levels)

    def select(self, noises: ArrayLike) -> Self:
        """Trees of some of the noises, by their indices; an index may occur more than once."""
        index = check_integers(noises, "noises", shape=("n",), low=0, high=self.noises - 1)
        return type(self)([level[index] for level in self.features])

    def best_values(self, reward: StepReward) -> Floats:
        """Largest sum of rewards along a sequence, for each noise, shape (n,)."""
        return np.asarray(self._backward(reward)[0].max(axis=1))

    def best_actions(self, reward: StepReward) -> Indices:
        """A best sequence for each noise (the first of equals), shape (n, H)."""
        values = self._backward(reward)
        actions = np.empty((self.noises, self.horizon), dtype=np.int64)
        node = np.zeros(self.noises, dtype=np.int64)
        for h, level in enumerate(values):
            children = level.reshape(self.noises, -1, self.num_actions)[np.arange(self.noises), node]
            actions[:, h] = children.argmax(axis=1)
            node = node * self.num_actions + actions[:, h]
        return actions

    def values(self, reward: StepReward, actions: ArrayLike) -> Floats:
        """Sum of rewards along a given sequence for each noise, shape (n,); actions of shape (n, H)."""
        rows = self.path_features(actions)
        flat = rows.reshape(-1, self.dimension)
        rewards = reward(flat, np.tile(np.arange(self.horizon), self.noises))
        return np.asarray(np.asarray(rewards).reshape(self.noises, self.horizon).sum(axis=1))

    def path_features(self, actions: ArrayLike) -> AnyFloats:
        """Features along a given sequence for each noise, shape (n, H, d); actions of shape (n, H)."""
        nodes = self._nodes(actions)
        noise = np.arange(self.noises)
        return np.stack([level[noise, nodes[:, h]] for h, level in enumerate(self.features)], axis=1)

    def sequences(self) -> Indices:
        """All sequences of actions in the order of the last level, shape (A**H, H)."""
        count = check_count(self.num_actions, "A") ** self.horizon
        digits = self.num_actions ** np.arange(self.horizon - 1, -1, -1)
        return np.asarray(np.arange(count)[:, None] // digits % self.num_actions, dtype=np.int64)

    def _nodes(self, actions: ArrayLike) -> Indices:
        """Node of each level on the path of each sequence, shape (n, H)."""
        path = check_integers(actions, "actions", shape=(self.noises, self.horizon), low=0, high=self.num_actions - 1)
        nodes = np.empty_like(path)
        node = np.zeros(self.noises, dtype=np.int64)
        for h in range(self.horizon):
            node = node * self.num_actions + path[:, h]
            nodes[:, h] = node
        return nodes

    def _backward(self, reward: StepReward) -> list[Floats]:
        """For every node its reward plus the best that can follow, (n, A**(h+1)) for each level."""
        values: list[Floats] = []
        for h in range(self.horizon - 1, -1, -1):
            level = self.features[h]
            count = level.shape[1]
            here = np.asarray(reward(level.reshape(-1, self.dimension), np.full(self.noises * count, h)))
            total = here.reshape(self.noises, count).astype(np.float64)
            if values:
                total = total + values[-1].reshape(self.noises, count, self.num_actions).max(axis=2)
            values.append(total)
        return values[::-1]
