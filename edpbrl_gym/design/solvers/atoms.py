"""The active set of pairwise Frank-Wolfe: the current mean occupancy as a weighted list of occupancies (atoms)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats

__all__ = ["ActiveSet"]


class ActiveSet:
    """Occupancies with positive weights that sum to 1; only their nonzero entries are kept.

    Args:
        start: The first atom, any feasible occupancy, shape (H, M).
    """

    def __init__(self, start: Floats) -> None:
        self._shape = start.shape
        self._indices: list[NDArray[np.intp]] = []
        self._values: list[Floats] = []
        self._weights: list[float] = []
        self._position: dict[bytes, int] = {}
        self._add(start, 1.0)

    def __len__(self) -> int:
        return len(self._weights)

    @property
    def weights(self) -> Floats:
        """Weights of the atoms, shape (n,)."""
        return np.array(self._weights)

    def occupancy(self, position: int) -> Floats:
        """Atom number `position` as an array (H, M)."""
        dense = np.zeros(self._shape).ravel()
        dense[self._indices[position]] = self._values[position]
        return dense.reshape(self._shape)

    def mean(self) -> Floats:
        """The weighted sum of the atoms, shape (H, M)."""
        total = np.zeros(self._shape).ravel()
        for indices, values, weight in zip(self._indices, self._values, self._weights, strict=True):
            total[indices] += weight * values
        return total.reshape(self._shape)

    def worst(self, pair_reward: Floats) -> tuple[int, float]:
        """The atom with the smallest reward (the first of equals) and its weight.

        Args:
            pair_reward: Reward of each pair and step, shape (H, M).
        """
        lengths = np.array([len(indices) for indices in self._indices])
        products = pair_reward.ravel()[np.concatenate(self._indices)] * np.concatenate(self._values)
        totals = np.add.reduceat(products, np.concatenate(([0], np.cumsum(lengths)[:-1])))
        position = int(np.argmin(totals))
        return position, self._weights[position]

    def shift(self, source: int, target: Floats, step: float) -> None:
        """Move weight from an atom to an occupancy, which becomes an atom if it is none; drop an empty source."""
        if step <= 0.0:
            return
        key = self._key(target)
        if key in self._position:
            self._weights[self._position[key]] += step
        else:
            self._add(target, step)
        remainder = self._weights[source] - step
        self._weights[source] = remainder
        if remainder <= 0.0:
            self._remove(source)

    def _add(self, occupancy: Floats, weight: float) -> None:
        flat = occupancy.ravel()
        indices = np.flatnonzero(flat)
        self._position[self._key(occupancy)] = len(self._weights)
        self._indices.append(indices)
        self._values.append(flat[indices])
        self._weights.append(weight)

    def _remove(self, position: int) -> None:
        for items in (self._indices, self._values, self._weights):
            del items[position]
        self._position = {key: index - (index > position) for key, index in self._position.items() if index != position}

    @staticmethod
    def _key(occupancy: Floats) -> bytes:
        flat = occupancy.ravel()
        indices = np.flatnonzero(flat)
        return indices.tobytes() + flat[indices].tobytes()
