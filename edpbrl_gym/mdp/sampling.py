"""Sampled trajectories, and vectorised draws from many distributions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Trajectories", "draw"]


@dataclass(frozen=True)
class Trajectories:
    """Sampled trajectories; every array has shape (size, H).

    Attributes:
        states: State at each step.
        actions: Action taken at each step.
        pairs: Index of the state-action pair.
        rows: Feature row that the pair shows.
    """

    states: NDArray[np.intp]
    actions: NDArray[np.intp]
    pairs: NDArray[np.intp]
    rows: NDArray[np.intp]


def draw(
    weights: NDArray[np.float64], pointer: NDArray, segment: NDArray[np.intp], rng: np.random.Generator
) -> NDArray[np.intp]:
    """Draw one index from each requested segment of a concatenated list of distributions, by inverse CDF.

    Args:
        weights: Concatenated non-negative weights; segment i is ``weights[pointer[i]:pointer[i + 1]]``.
        pointer: Segment boundaries.
        segment: Segment of each draw, shape (n,).
        rng: Source of randomness; one uniform number per draw.

    Returns:
        Indices into ``weights``, shape (n,); an entry of weight zero is never drawn.
    """
    cumulative = np.cumsum(weights)
    boundaries = np.concatenate(([0.0], cumulative))[pointer]
    low, high = boundaries[segment], boundaries[np.asarray(segment) + 1]
    # rounding may push the target onto the upper boundary, which belongs to the next segment
    target = np.maximum(np.minimum(low + rng.random(len(segment)) * (high - low), np.nextafter(high, low)), low)
    return np.searchsorted(cumulative, target, side="right").astype(np.intp)
