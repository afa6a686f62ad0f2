"""Columns of the general solver: feasible occupancies by their nonzero entries, and the nodes that they visit.

A column is a path (deterministic transitions), the occupancy of a deterministic policy, or a start that the user
gave. Columns belong to blocks; the design is a convex combination in every block, summed over the blocks. A node is a
step with the feature row shown there: all that the objective knows of an occupancy is the mass on the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import sparse

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["Column", "ColumnOracle", "ColumnSet"]


@dataclass(frozen=True, eq=False)
class Column:
    """One occupancy, scaled by the mass of its block.

    Attributes:
        indices: Entries of the flattened (H, M) array that are not 0, sorted.
        values: Their masses; they sum to the mass of the block at every step.
        block: Number of the block.
    """

    indices: Positions
    values: Floats
    block: int = 0

    @classmethod
    def of(cls, occupancy: Floats, block: int = 0) -> Column:
        """The column of an array (H, M)."""
        flat = occupancy.ravel()
        indices = np.flatnonzero(flat)
        return cls(indices, flat[indices], block)

    @cached_property
    def key(self) -> bytes:
        """Equal for equal columns."""
        return b"%d " % self.block + self.indices.tobytes() + self.values.tobytes()


class ColumnOracle(Protocol):
    """The linear oracle of a family of columns: tokens, paths or policies."""

    def price(self, scores: Floats, levels: Floats, budget: int) -> tuple[Floats, list[Column]]:
        """Find the best columns.

        Args:
            scores: Reward of each row at each step, shape (H, N).
            levels: Reward of the current design in each block, shape (B,); no other columns than the best of each
                block need be found below it.
            budget: Columns at most for all blocks together, and the best one of each.

        Returns:
            The largest reward in each block, shape (B,), and columns, the best of each block among them.
        """
        ...

    def split(self, occupancy: Floats) -> list[Column]:
        """Columns that together make a feasible occupancy (H, M)."""
        ...


class ColumnSet:
    """A working set of distinct columns, sorted by block.

    Args:
        mdp: The MDP of the columns.
        columns: The columns; of equal ones the first is kept.

    Attributes:
        columns: The columns, k of them.
        slices: Columns of each block.
        steps: Step of each node, shape (n,).
        rows: Feature row of each node, shape (n,).
        incidence: E, mass of each column at each node, sparse, shape (n, k).
    """

    def __init__(self, mdp: FiniteHorizonMDP, columns: Iterable[Column]) -> None:
        distinct: dict[bytes, Column] = {}
        for column in columns:
            distinct.setdefault(column.key, column)
        self.columns: tuple[Column, ...] = tuple(sorted(distinct.values(), key=lambda column: column.block))
        self._mdp = mdp
        blocks = np.array([column.block for column in self.columns])
        bounds = np.searchsorted(blocks, np.arange(blocks[-1] + 2))
        self.slices = [slice(int(low), int(high)) for low, high in zip(bounds[:-1], bounds[1:], strict=True)]
        lengths = np.array([len(column.indices) for column in self.columns])
        step, pair = np.divmod(np.concatenate([column.indices for column in self.columns]), mdp.num_pairs)
        visited = step * mdp.num_rows + mdp.pair_row[pair]
        place = np.zeros(mdp.horizon * mdp.num_rows, dtype=np.intp)
        place[visited] = 1
        nodes = np.flatnonzero(place)
        place[nodes] = np.arange(len(nodes))
        self.steps, self.rows = np.divmod(nodes, mdp.num_rows)
        values = np.concatenate([column.values for column in self.columns])
        owner = np.repeat(np.arange(len(self.columns)), lengths)
        self.incidence = sparse.csc_array((values, (place[visited], owner)), shape=(len(nodes), len(self.columns)))

    def __len__(self) -> int:
        return len(self.columns)

    def occupancy(self, weights: Floats) -> Floats:
        """The combination with these weights, shape (H, M)."""
        total = np.zeros(self._mdp.horizon * self._mdp.num_pairs)
        for number in np.flatnonzero(weights):
            column = self.columns[number]
            total[column.indices] += weights[number] * column.values
        return total.reshape(self._mdp.horizon, self._mdp.num_pairs)

    def levels(self, weights: Floats, scores: Floats) -> Floats:
        """Reward of the combination with these weights in each block, shape (B,), for scores of shape (H, N)."""
        rewards = self.incidence.T @ scores[self.steps, self.rows]
        return np.array([weights[part] @ rewards[part] for part in self.slices])

    def weights_of(self, other: ColumnSet, weights: Floats) -> Floats:
        """Weights on this set that give the combination of another, whose weighted columns are all in this one."""
        place = {column: number for number, column in enumerate(self.columns)}
        result = np.zeros(len(self))
        for number in np.flatnonzero(weights):
            result[place[other.columns[number]]] = weights[number]
        return result
