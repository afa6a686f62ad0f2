"""Pricing of policies: value iteration finds the best deterministic policy of any finite-horizon MDP."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.design._columns import Column
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["PolicyPricing"]

FloatArray = NDArray[np.float64]


class PolicyPricing:
    """Prices the deterministic policies of any MDP; all of them are one block.

    Args:
        mdp: The MDP.

    Attributes:
        masses: Mass of the block, [1].
    """

    def __init__(self, mdp: FiniteHorizonMDP) -> None:
        self._mdp = mdp
        self.masses: FloatArray = np.ones(1)

    def price(self, scores: FloatArray, levels: FloatArray, budget: int) -> tuple[FloatArray, list[Column]]:
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

    def start(self, rng: np.random.Generator, count: int) -> list[Column]:
        """The occupancy of the uniform policy; no randomness."""
        return [Column.of(self._mdp.occupancy(self._mdp.uniform_policy()))]

    def split(self, occupancy: FloatArray) -> list[Column]:
        """A feasible occupancy (H, M) as a column."""
        return [Column.of(occupancy)]
