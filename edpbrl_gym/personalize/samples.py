"""Images for a taste: the best directions for fresh noises, by enumeration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats, Floats32, Indices
from edpbrl_gym._base_environment import base_environment
from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.diffusion import enumerate_episodes, play_sequences

__all__ = ["ImageSamples", "best_samples", "given_samples"]


@dataclass(frozen=True, eq=False)
class ImageSamples:
    """Images, one for each noise, with what they are made of.

    Attributes:
        noise_seeds: Number of each noise, (n,).
        actions: Directions of each image, (n, B).
        features: Features of the last images, float32 (n, d).
        scores: theta . phi of the last images, (n,).
        images: uint8 (n, height, width, 3).
    """

    noise_seeds: Indices
    actions: Indices
    features: Floats32
    scores: Floats
    images: NDArray[np.uint8]

    def scores_by(self, theta: ArrayLike) -> Floats:
        """Scores by another taste (d,), such as the true one, (n,)."""
        return np.asarray(self.features.astype(np.float64) @ check_array(theta, "theta", shape=self.features.shape[1:]))


def given_samples(env: Any, theta: ArrayLike, noise_seeds: ArrayLike, actions: ArrayLike) -> ImageSamples:
    """The images of given directions.

    Args:
        env: A diffusion environment, single or vector, wrapped or not; theta is about the features that it shows.
        theta: The taste, (d,).
        noise_seeds: Number of each noise, (n,).
        actions: Directions of each image, (n, B).

    Raises:
        ValueError: If shapes don't fit, or a direction doesn't exist.
    """
    base = base_environment(env)
    observations = play_sequences(base.model, noise_seeds, actions)
    features = np.asarray(base.trajectory_features(observations), dtype=np.float32)
    taste = check_array(theta, "theta", shape=features.shape[1:], hint="one weight for each feature")
    return ImageSamples(
        noise_seeds=np.asarray(noise_seeds, dtype=np.int64),
        actions=np.asarray(actions, dtype=np.int64),
        features=features,
        scores=np.asarray(features.astype(np.float64) @ taste),
        images=base.model.trajectory_images(observations),
    )


def best_samples(
    env: Any, theta: ArrayLike, noise_seeds: ArrayLike, *, progress: Callable[[int, int], None] | None = None
) -> ImageSamples:
    """The best image that each noise can become: the largest theta . phi among all sequences of directions.

    Args:
        env: A diffusion environment, single or vector, wrapped or not; theta is about the features that it shows.
        theta: The taste, (d,).
        noise_seeds: Numbers of the noises, (n,); fresh ones that no question was about.
        progress: Called with (noises done, all noises) after each.

    Raises:
        ValueError: If there is no noise, a noise has too many sequences, or theta has another dimension.
    """
    model = base_environment(env).model
    features_of = base_environment(env).trajectory_features
    seeds = check_integers(noise_seeds, "noise_seeds", shape=("n",), low=0)
    actions = np.empty((len(seeds), model.horizon), dtype=np.int64)
    for number, seed in enumerate(seeds.tolist()):  # one at a time: all trees at once may not fit into memory
        trees = enumerate_episodes(model, [seed], features=features_of)
        last = trees.features[-1][0].astype(np.float64)
        actions[number] = trees.sequences()[int((last @ check_array(theta, "theta", shape=(last.shape[1],))).argmax())]
        if progress is not None:
            progress(number + 1, len(seeds))
    return given_samples(env, theta, seeds, actions)
