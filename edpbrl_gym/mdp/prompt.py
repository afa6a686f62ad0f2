"""The prompt-construction MDP: one state per step, one action per token, in closed form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from edpbrl_gym._validation import check_integers
from edpbrl_gym.mdp.finite_horizon import FiniteHorizonMDP
from edpbrl_gym.mdp.sampling import Trajectories, draw

__all__ = ["PromptMDP"]

FloatArray = NDArray[np.float64]


class PromptMDP(FiniteHorizonMDP):
    """Prompt construction (paper, Appendix "Prompt Construction MDP"): the state is the step, the action a token.

    Choosing a token at step h leads to step h + 1 whatever the token, so the occupancy polytope is a product of H
    simplices and value iteration, occupancies and policy extraction are closed forms over each step's own tokens.
    Pair and feature row of token a at step h are both ``offsets[h] + a``.

    Args:
        sizes: Number of tokens at each step, all at least 1.

    Raises:
        TypeError: If the sizes are no integers.
        ValueError: If there is no step or a step has no token.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        counts = np.asarray(sizes)
        if counts.ndim != 1 or counts.size == 0 or counts.min() < 1:
            raise ValueError(f"Expected at least one token at each of at least one step, got sizes {sizes}.")
        counts = check_integers(counts, "sizes", shape=("H",)).astype(np.intp)
        horizon = int(counts.size)
        self.sizes: tuple[int, ...] = tuple(int(count) for count in counts)
        self.offsets: NDArray[np.intp] = np.concatenate(([0], np.cumsum(counts))).astype(np.intp)
        total = int(self.offsets[-1])
        state = np.repeat(np.arange(horizon), counts)
        successor = np.minimum(state + 1, horizon - 1)  # the last step's successor is never entered
        super().__init__(
            pair_state=state,
            pair_action=np.arange(total) - self.offsets[state],
            transitions=sparse.csr_array((np.ones(total), (np.arange(total), successor)), shape=(total, horizon)),
            initial=np.eye(horizon)[0],
            horizon=horizon,
            pair_row=np.arange(total),
        )

    def step_pairs(self, step: int) -> slice:
        """Return the pairs (and feature rows) of a step's tokens as a slice."""
        return slice(int(self.offsets[step]), int(self.offsets[step + 1]))

    def optimal_policy(self, pair_rewards: ArrayLike) -> tuple[FloatArray, float]:
        """Closed form of value iteration: the best token of each step. See the base class."""
        reward = self._check_pairs(pair_rewards, "pair_rewards")
        policy = self.uniform_policy()
        total = 0.0
        for step in range(self.horizon):
            pairs = self.step_pairs(step)
            best = int(np.argmax(reward[step, pairs]))
            policy[step, pairs] = 0.0
            policy[step, pairs.start + best] = 1.0
            total += float(reward[step, pairs.start + best])
        return policy, total

    def uniform_policy(self) -> FloatArray:
        """Uniform over the tokens of every step, shape (H, M)."""
        weights = np.repeat(1.0 / np.array(self.sizes), self.sizes)
        return np.tile(weights, (self.horizon, 1))

    def occupancy(self, policy: ArrayLike) -> FloatArray:
        """Step h carries exactly the policy's distribution over its own tokens. See the base class."""
        table = self._check_policy(policy)
        result = np.zeros_like(table)
        for step in range(self.horizon):
            pairs = self.step_pairs(step)
            result[step, pairs] = table[step, pairs]
        return result

    def row_occupancy(self, occupancy: ArrayLike) -> FloatArray:
        """Rows are pairs here, so the marginal is the occupancy itself (a copy). See the base class."""
        measure = np.array(occupancy, dtype=np.float64)
        if measure.shape[-2:] != (self.horizon, self.num_pairs):
            raise ValueError(
                f"Expected an occupancy of shape (..., {self.horizon}, {self.num_pairs}), got {measure.shape}."
            )
        return measure

    def sample(self, policy: ArrayLike, size: int, rng: np.random.Generator) -> Trajectories:
        """Draw the tokens of each step independently. See the base class."""
        table = self._check_policy(policy)
        pairs = np.empty((size, self.horizon), dtype=np.intp)
        for step in range(self.horizon):
            own = self.step_pairs(step)
            boundary = np.array([0, own.stop - own.start], dtype=np.intp)
            pairs[:, step] = own.start + draw(table[step, own], boundary, np.zeros(size, dtype=np.intp), rng)
        states = np.tile(np.arange(self.horizon, dtype=np.intp), (size, 1))
        return Trajectories(states, self.pair_action[pairs], pairs, pairs.copy())
