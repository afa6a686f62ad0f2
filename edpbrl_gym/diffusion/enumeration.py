"""All episodes of some noises: with deterministic dynamics a tree of A^B sequences of actions for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats32
from edpbrl_gym.design.trees import EpisodeTrees

__all__ = ["MAX_SEQUENCES", "BranchingModel", "enumerate_episodes"]

MAX_SEQUENCES = 100_000  # of one noise


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


def enumerate_episodes(
    model: BranchingModel,
    noise_seeds: ArrayLike,
    *,
    batch_size: int = 2048,
    progress: Callable[[int, int], None] | None = None,
) -> EpisodeTrees:
    """Try every sequence of actions from each noise.

    A prefix is denoised once, whatever follows it: B blocks cost A + A^2 + ... + A^B block evaluations a noise.

    Args:
        model: ``env.unwrapped.model`` of a diffusion environment.
        noise_seeds: Numbers of the noises, (n,).
        batch_size: Most observations that are denoised at once.
        progress: Called with (noises done, all noises) after each.

    Returns:
        The features of every node; noise i is ``noise_seeds[i]``.

    Raises:
        ValueError: If there is no noise, or a noise has more than ``MAX_SEQUENCES`` sequences.
    """
    seeds = np.atleast_1d(np.asarray(noise_seeds, dtype=np.int64))
    actions, horizon = len(model.directions), model.horizon
    if seeds.ndim != 1 or not len(seeds):
        raise ValueError(f"Expected noise seeds of shape (n,), at least one, got shape {seeds.shape}.")
    if actions**horizon > MAX_SEQUENCES:
        raise ValueError(
            f"Expected at most {MAX_SEQUENCES:,} sequences of actions, got {actions} ** {horizon} = "
            f"{actions**horizon:,}; use fewer conditions, weights or blocks"
        )
    levels: list[list[NDArray[np.float32]]] = [[] for _ in range(horizon)]
    for number, seed in enumerate(seeds.tolist()):
        nodes = model.start([seed])
        for features in levels:
            nodes = _children(model, nodes, actions, batch_size)
            features.append(model.trajectory_features(nodes))
        if progress is not None:
            progress(number + 1, len(seeds))
    return EpisodeTrees([np.stack(features) for features in levels])


def _children(model: BranchingModel, nodes: Floats32, actions: int, batch_size: int) -> Floats32:
    """The nodes after every action, child a of node i at i A + a."""
    parents, chosen = np.repeat(nodes, actions, axis=0), np.tile(np.arange(actions), len(nodes))
    parts = [
        model.advance(parents[start : start + batch_size], chosen[start : start + batch_size])
        for start in range(0, len(parents), batch_size)
    ]
    return np.concatenate(parts)
