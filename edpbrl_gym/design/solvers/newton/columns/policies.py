"""Pricing of policies: value iteration finds the best deterministic policy of any finite-horizon MDP."""

from __future__ import annotations

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.solvers.newton.columns.columns import Column
from edpbrl_gym.design.solvers.newton.columns.master import ColumnMaster, ColumnPoint
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["PolicyPricing"]


_CHAIN = 8  # Frank-Wolfe steps between two corrections of all weights


class PolicyPricing:
    """Prices the deterministic policies of any MDP; all of them are one block.

    Args:
        mdp: The MDP.

    Attributes:
        masses: Mass of the block, [1].
    """

    def __init__(self, mdp: FiniteHorizonMDP) -> None:
        self._mdp = mdp
        self.masses: Floats = np.ones(1)

    def price(self, scores: Floats, levels: Floats, budget: int) -> tuple[Floats, list[Column]]:
        """Find the best policy.

        Args:
            scores: Reward of each row at each step, shape (H, N).
            levels: Reward of the current occupancy, shape (1,).
            budget: Not used: there is one column.

        Returns:
            Its reward, shape (1,), and its occupancy.
        """
        policy, best = self._mdp.best_response(scores)
        return np.array([best]), [Column.of(self._mdp.occupancy(policy))]

    def more(self, master: ColumnMaster, point: ColumnPoint, first: list[Column]) -> list[Column]:
        """Further columns: the best policies along a few Frank-Wolfe steps from the current point.

        Each step is cheap beside a correction of all weights, and its best policy answers to the steps before, so
        the columns differ where it matters.

        Args:
            master: The master.
            point: The current point.
            first: What `price` found there.
        """
        columns: list[Column] = []
        local, column = point.local, first[0]
        for _ in range(_CHAIN):
            local = master.towards(local, column)
            column = self.price(master.scores(local), np.empty(0), 1)[1][0]
            columns.append(column)
        return columns

    def start(self, rng: np.random.Generator, count: int) -> list[Column]:
        """The occupancy of the uniform policy; no randomness."""
        return [Column.of(self._mdp.occupancy(self._mdp.uniform_policy()))]

    def split(self, occupancy: Floats) -> list[Column]:
        """A feasible occupancy (H, M) as a column."""
        return [Column.of(occupancy)]
