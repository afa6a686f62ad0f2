"""All episodes of some noises: with deterministic dynamics a tree of A^B sequences of actions for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats32
from edpbrl_gym._validation import check_integers
from edpbrl_gym.design.trees import EpisodeTrees

__all__ = [
    "MAX_SEQUENCES",
    "BranchingModel",
    "check_sequences",
    "enumerate_episodes",
    "enumerate_from",
    "play_sequences",
]

MAX_SEQUENCES = 100_000  # of one noise
_BATCH_NUMBERS = 1 << 18  # in the observations of a batch

FeaturesOf = Callable[[NDArray[np.float32]], NDArray[np.floating]]
"""Features (n, d) of observations (n, ...)."""


class BranchingModel(Protocol):
    """A model whose episodes can be continued from any observation, such as that of a diffusion environment.

    Attributes:
        horizon: Number of steps B.
        directions: One entry for each of the A actions.
    """

    horizon: int
    directions: Any

    def start(self, seeds: ArrayLike) -> Floats32:
        """First observations (n, ...) of episodes from noise seeds (n,)."""

    def advance(self, observations: ArrayLike, actions: ArrayLike) -> Floats32:
        """Observations (n, ...) after one more action each."""

    def trajectory_features(self, observations: ArrayLike) -> Floats32:
        """Features of observations, (n, d)."""

    def trajectory_images(self, observations: ArrayLike) -> NDArray[np.uint8]:
        """Images of observations, (n, height, width, 3)."""

    def describe(self, actions: Sequence[int]) -> str:
        """A sequence of actions as text."""


def enumerate_episodes(
    model: BranchingModel, noise_seeds: ArrayLike, *, features: FeaturesOf | None = None
) -> EpisodeTrees:
    """Try every sequence of actions from each noise.

    A prefix is denoised once, whatever follows it: B blocks cost A + A^2 + ... + A^B block evaluations a noise.

    Args:
        model: ``env.unwrapped.model`` of a diffusion environment.
        noise_seeds: Numbers of the noises, (n,).
        features: Features of observations; None: the model's ``trajectory_features``.

    Returns:
        The features of every node; noise i is ``noise_seeds[i]``.

    Raises:
        ValueError: If there is no noise, or a noise has more than ``MAX_SEQUENCES`` sequences.
    """
    seeds = check_integers(np.atleast_1d(noise_seeds), "noise_seeds", shape=("n",), low=0)
    if not len(seeds):
        raise ValueError("Expected noise_seeds with at least one, got none.")
    check_sequences(model)
    return enumerate_from(model, model.start(seeds), features=features)


def enumerate_from(
    model: BranchingModel, observations: ArrayLike, *, features: FeaturesOf | None = None
) -> EpisodeTrees:
    """`enumerate_episodes` from the first observations of some episodes, (n, ...), as ``reset()`` returns them."""
    check_sequences(model)
    starts = np.asarray(observations, dtype=np.float32)
    shown = model.trajectory_features if features is None else features
    levels: list[list[NDArray[np.float32]]] = [[] for _ in range(model.horizon)]
    for start in starts:
        nodes = start[None]
        for level in levels:
            nodes = _children(model, nodes, len(model.directions))
            level.append(np.asarray(shown(nodes), dtype=np.float32))
    return EpisodeTrees([np.stack(level) for level in levels])


def check_sequences(model: BranchingModel) -> int:
    """Number of sequences of actions, A^B.

    Raises:
        ValueError: If there are more than ``MAX_SEQUENCES``.
    """
    actions, horizon = len(model.directions), model.horizon
    if actions**horizon > MAX_SEQUENCES:
        raise ValueError(
            f"Expected at most {MAX_SEQUENCES:,} sequences of actions, got {actions} ** {horizon} = "
            f"{actions**horizon:,}; use fewer conditions, weights or blocks"
        )
    return int(actions**horizon)


def play_sequences(
    model: BranchingModel, noise_seeds: ArrayLike, actions: ArrayLike, *, batch_size: int | None = None
) -> Floats32:
    """The last observations of given episodes.

    ``noise_seeds`` (n,) and ``actions`` (n, B) are those of each episode; ``batch_size`` is the most observations that
    are denoised at once; None: 2,032 of the digits', 8 of 64 x 64 latents.

    Returns:
        Observations, (n, ...).

    Raises:
        ValueError: If there is no episode, the shapes don't fit, or an action doesn't exist.
    """
    seeds = check_integers(noise_seeds, "noise_seeds", shape=("n",), low=0)
    shape = (len(seeds), model.horizon)
    taken = check_integers(actions, "actions", shape=shape, low=0, high=len(model.directions) - 1)
    if not len(seeds):
        raise ValueError("Expected at least one episode, got none.")
    parts = []
    size = batch_size or _batch_size(model.start(seeds[:1]))
    for start in range(0, len(seeds), size):
        rows = slice(start, start + size)
        observations = model.start(seeds[rows])
        for block in range(model.horizon):
            observations = model.advance(observations, taken[rows, block])
        parts.append(observations)
    return np.concatenate(parts)


def _batch_size(observations: Floats32) -> int:
    """So many observations at once that memory suffices for large latents too."""
    return max(8, _BATCH_NUMBERS // int(np.prod(observations.shape[1:])))


def _children(model: BranchingModel, nodes: Floats32, actions: int) -> Floats32:
    """The nodes after every action, child a of node i at i A + a."""
    parents, chosen = np.repeat(nodes, actions, axis=0), np.tile(np.arange(actions), len(nodes))
    size = _batch_size(nodes)
    parts = [
        model.advance(parents[start : start + size], chosen[start : start + size])
        for start in range(0, len(parents), size)
    ]
    return np.concatenate(parts)
