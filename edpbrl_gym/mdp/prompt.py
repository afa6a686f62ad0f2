"""The prompt-construction MDP: one action per token, each of which leads to the next step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count, check_integers
from edpbrl_gym.mdp.finite_horizon import FiniteHorizonMDP
from edpbrl_gym.mdp.sampling import Trajectories, draw

__all__ = ["PromptMDP"]


class PromptMDP(FiniteHorizonMDP):
    """Prompt construction (paper, Appendix "Prompt Construction MDP"): the state is the step, the action a token.

    Every token chosen at step h leads to step h + 1, so the occupancy polytope is a product of H simplices, and value
    iteration, occupancies and policy extraction have closed forms over each step's own tokens. Pair and feature row of
    token a at step h are both ``offsets[h] + a``.

    Args:
        sizes: Number of tokens at each step, all at least 1.
        shared: All steps have the same tokens, which are kept once: the state is always 0, M = N = sizes[0], and
            pair and feature row of token a are a at every step. The sizes must be equal.

    Attributes:
        offsets: First pair of each step (all 0 if shared) and, last, the number of pairs M; shape (H + 1,). The pairs
            of a step are `step_pairs`; ``offsets[h + 1]`` is their end only if they are not shared.

    Raises:
        TypeError: If the sizes are not integers.
        ValueError: If there is no step, a step has no token, or ``shared`` steps have different sizes.
    """

    def __init__(self, sizes: Sequence[int], *, shared: bool = False) -> None:
        counts = np.asarray(sizes)
        if counts.ndim != 1 or counts.size == 0 or counts.min() < 1:
            raise ValueError(f"Expected at least one token at each of at least one step, got sizes {sizes}.")
        counts = check_integers(counts, "sizes", shape=("H",)).astype(np.intp)
        if shared and counts.min() != counts.max():
            raise ValueError(f"Expected equal sizes of steps that share their tokens, got sizes {sizes}.")
        horizon = int(counts.size)
        self.sizes: tuple[int, ...] = tuple(int(count) for count in counts)
        self.shared = bool(shared)
        tokens_per_state = counts[:1] if shared else counts
        starts = np.concatenate(([0], np.cumsum(tokens_per_state))).astype(np.intp)
        total, num_states = int(starts[-1]), len(tokens_per_state)
        self.offsets: NDArray[np.intp] = np.append(np.zeros(horizon, dtype=np.intp), total) if shared else starts
        state = np.repeat(np.arange(num_states), tokens_per_state)
        successor = np.minimum(state + 1, num_states - 1)  # the last step's successor is never entered
        super().__init__(
            pair_state=state,
            pair_action=np.arange(total) - starts[state],
            transitions=sparse.csr_array((np.ones(total), (np.arange(total), successor))),
            initial=np.eye(num_states)[0],
            horizon=horizon,
            pair_row=np.arange(total),
        )

    @classmethod
    def repeated(cls, size: int, horizon: int) -> Self:
        """The same tokens at every step, kept once: M = N = size pairs of one state.

        Args:
            size: Number of tokens.
            horizon: Number of steps H.

        Returns:
            The MDP; policies and occupancies have shape (H, size), and pair and feature row of token a are a.
        """
        return cls((check_count(size, "size (tokens)"),) * check_count(horizon, "horizon (steps)"), shared=True)

    def step_pairs(self, step: int) -> slice:
        """Return the pairs (and feature rows) of a step's tokens as a slice."""
        start = int(self.offsets[step])
        return slice(start, start + self.sizes[step])

    def optimal_policy(self, pair_rewards: ArrayLike) -> tuple[Floats, float]:
        """Closed form of value iteration: the best token of each step."""
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

    def best_response(self, rewards: ArrayLike) -> tuple[Floats, float]:
        return self.optimal_policy(self._check_rewards(rewards))

    def uniform_policy(self) -> Floats:
        """Uniform over the tokens of every step, shape (H, M)."""
        sizes = self.sizes[:1] if self.shared else self.sizes
        weights = np.repeat(1.0 / np.array(sizes), sizes)
        return np.tile(weights, (self.horizon, 1))

    def occupancy(self, policy: ArrayLike) -> Floats:
        """Step h carries exactly the policy's distribution over its own tokens."""
        table = self._check_policy(policy)
        result = np.zeros_like(table)
        for step in range(self.horizon):
            pairs = self.step_pairs(step)
            result[step, pairs] = table[step, pairs]
        return result

    def flow_violation(self, occupancy: ArrayLike) -> float:
        """Largest mass on another step's tokens, or difference to mass 1 on the step's own."""
        measure = self._check_pairs(occupancy, "occupancy")
        worst = 0.0
        for step, mass in enumerate(measure):
            pairs = self.step_pairs(step)
            mass_elsewhere = max(mass[: pairs.start].max(initial=0.0), mass[pairs.stop :].max(initial=0.0))
            worst = max(worst, float(mass_elsewhere), abs(float(mass[pairs].sum()) - 1.0))
        return worst

    def available_rows(self) -> tuple[int, ...]:
        return self.sizes

    def row_occupancy(self, occupancy: ArrayLike) -> Floats:
        """Rows are pairs here, so the marginal is the occupancy itself (a copy)."""
        measure = np.array(occupancy, dtype=np.float64)
        if measure.shape[-2:] != (self.horizon, self.num_pairs):
            raise ValueError(
                f"Expected an occupancy of shape (..., {self.horizon}, {self.num_pairs}), got {measure.shape}."
            )
        return measure

    def sample(self, policy: ArrayLike, size: int, rng: np.random.Generator) -> Trajectories:
        """Draw the tokens of each step independently."""
        table = self._check_policy(policy)
        pairs = np.empty((size, self.horizon), dtype=np.intp)
        for step in range(self.horizon):
            pairs_of_step = self.step_pairs(step)
            boundary = np.array([0, pairs_of_step.stop - pairs_of_step.start], dtype=np.intp)
            pairs[:, step] = pairs_of_step.start + draw(
                table[step, pairs_of_step], boundary, np.zeros(size, dtype=np.intp), rng
            )
        return Trajectories(self.pair_state[pairs], self.pair_action[pairs], pairs, pairs.copy())
