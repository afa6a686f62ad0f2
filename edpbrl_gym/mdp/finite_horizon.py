"""Finite-horizon Markov decision processes with known, sparse transitions.

All arrays are indexed by a flat, sorted list of M state-action **pairs**. A pair shows the user one **feature row** (an
option that can be compared), so policies and occupancy measures have shape (H, M), and information matrices need only
the marginal over the N rows, shape (H, N). Notation follows the paper: occupancy measure d^h(s, a), policy
pi_h(a | s), initial distribution rho, transition kernel P(s' | s, a).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym._validation import check_array, check_count, check_integers
from edpbrl_gym.mdp._checks import (
    SUM_TOLERANCE,
    check_admissible,
    check_distribution,
    check_sizes,
    check_transitions,
    reachable_states,
)
from edpbrl_gym.mdp.sampling import Trajectories, draw

__all__ = ["FiniteHorizonMDP"]


class FiniteHorizonMDP:
    """A finite-horizon MDP (S, A, P, H, rho) with known sparse transitions and per-step admissible actions.

    Args:
        pair_state: State of each pair, shape (M,), sorted by state and then action, without repeats.
        pair_action: Action of each pair, shape (M,).
        transitions: P(s' | pair), shape (M, S), sparse or dense; each row sums to 1.
        initial: Distribution rho of the first state, shape (S,).
        horizon: Number of steps H >= 1.
        admissible: Boolean mask of the pairs allowed at each step, shape (H, M); None allows all.
        pair_row: Feature row shown by each pair, integers in [0, num_rows), shape (M,); None means the row of the
            state (the paper's phi(s)).
        num_rows: Number of feature rows N; None takes the largest row plus one (the number of states for the default).
        allow_unreachable: Accept states that no policy reaches within the horizon.

    Raises:
        TypeError: If indices or the horizon are not integers (nothing is rounded), or ``admissible`` is not boolean.
        ValueError: If a shape, a distribution or an index is wrong, if a state can't be reached, or if a reachable
            state has no admissible action; the message names it.
    """

    def __init__(
        self,
        *,
        pair_state: ArrayLike,
        pair_action: ArrayLike,
        transitions: sparse.sparray | sparse.spmatrix | ArrayLike,
        initial: ArrayLike,
        horizon: int,
        admissible: ArrayLike | None = None,
        pair_row: ArrayLike | None = None,
        num_rows: int | None = None,
        allow_unreachable: bool = False,
    ) -> None:
        self.initial: Floats = np.array(initial, dtype=np.float64)
        self.pair_state: Positions = check_integers(pair_state, "pair_state", shape=("M",)).astype(np.intp)
        self.pair_action: Positions = check_integers(pair_action, "pair_action", shape=("M",)).astype(np.intp)
        self.horizon = check_count(horizon, "horizon (steps)")
        self.transitions = sparse.csr_array(transitions, dtype=np.float64)
        self.transitions.eliminate_zeros()
        check_sizes(self.initial, self.pair_state, self.pair_action, self.transitions)
        self.num_states = int(self.initial.size)
        self.num_pairs = int(self.pair_state.size)
        self.num_actions = int(self.pair_action.max()) + 1
        check_distribution(self.initial, "an initial distribution")
        check_transitions(self.transitions, self.pair_state, self.pair_action)
        rows = self.pair_state if pair_row is None else check_integers(pair_row, "pair_row", shape=(self.num_pairs,))
        self.pair_row: Positions = rows.astype(np.intp)
        default_rows = self.num_states if pair_row is None else int(self.pair_row.max()) + 1
        self.num_rows = default_rows if num_rows is None else check_count(num_rows, "num_rows")
        if self.pair_row.min() < 0 or self.pair_row.max() >= self.num_rows:
            raise ValueError(
                f"Expected pair_row with row indices in 0..{self.num_rows - 1}, got values in {self.pair_row.min()}.."
                f"{self.pair_row.max()}."
            )
        shape = (self.horizon, self.num_pairs)
        self.admissible: NDArray[np.bool_] = (
            np.ones(shape, dtype=np.bool_) if admissible is None else check_admissible(admissible)
        )
        if self.admissible.shape != shape:
            raise ValueError(f"Expected admissible of shape (H, M) = {shape}, got {self.admissible.shape}.")
        self._starts = np.searchsorted(self.pair_state, np.arange(self.num_states + 1))
        self._reachable = reachable_states(
            self.initial, self.transitions, self.pair_state, self.admissible, allow_unreachable=allow_unreachable
        )
        self._deterministic = bool(self.transitions.nnz == self.num_pairs)

    @classmethod
    def from_dense(
        cls,
        transitions: ArrayLike,
        initial: ArrayLike,
        horizon: int,
        *,
        admissible: ArrayLike | None = None,
        rows: Literal["state", "pair"] | ArrayLike = "state",
        allow_unreachable: bool = False,
    ) -> FiniteHorizonMDP:
        """Build an MDP from dense arrays.

        Args:
            transitions: P(s' | s, a), shape (S, A, S).
            initial: Distribution of the first state, shape (S,).
            horizon: Number of steps H.
            admissible: Boolean array (H, S, A); None allows every action. Pairs that are not admissible at any step
                are left out.
            rows: Rows that the user compares: "state" (row s), "pair" (a row for each pair, in pair order), or an
                integer array (S, A) of row indices.
            allow_unreachable: See the class.
        """
        dense = np.asarray(transitions, dtype=np.float64)
        if dense.ndim != 3 or dense.shape[0] != dense.shape[2]:
            raise ValueError(f"Expected transitions of shape (S, A, S), got {dense.shape}.")
        num_states, num_actions, _ = dense.shape
        horizon = check_count(horizon, "horizon (steps)")
        allowed = np.ones((horizon, num_states, num_actions), dtype=np.bool_)
        if admissible is not None:
            checked_admissible = check_admissible(admissible)
            if checked_admissible.shape != allowed.shape:
                raise ValueError(
                    f"Expected admissible of shape (H, S, A) = {allowed.shape}, got {checked_admissible.shape}."
                )
            allowed = checked_admissible
        state, action = np.nonzero(allowed.any(axis=0))
        pair_row: Positions | None
        if isinstance(rows, str):
            if rows not in ("state", "pair"):
                raise ValueError(f'Expected rows to be "state", "pair" or an integer array (S, A), got {rows!r}.')
            pair_row = None if rows == "state" else np.arange(state.size, dtype=np.intp)
        else:
            table = check_integers(
                rows, "rows", shape=(num_states, num_actions), hint="one feature row for each (s, a)"
            )
            pair_row = table[state, action].astype(np.intp)
        return FiniteHorizonMDP(
            pair_state=state,
            pair_action=action,
            transitions=sparse.csr_array(dense[state, action]),
            initial=initial,
            horizon=horizon,
            admissible=allowed[:, state, action],
            pair_row=pair_row,
            allow_unreachable=allow_unreachable,
        )

    def best_response(self, rewards: ArrayLike) -> tuple[Floats, float]:
        """``optimal_policy`` of rewards for showing each row at each step, (H, N): the linear oracle of Frank-Wolfe."""
        return self.optimal_policy(self._check_rewards(rewards)[:, self.pair_row])

    def optimal_policy(self, pair_rewards: ArrayLike) -> tuple[Floats, float]:
        """Value iteration with a reward for each pair and step.

        Args:
            pair_rewards: Reward of pair m at step h, shape (H, M).

        Returns:
            A deterministic optimal policy (H, M), ties broken towards the lowest pair, and its expected return.
        """
        reward = self._check_pairs(pair_rewards, "pair_rewards")
        policy = np.zeros_like(reward)
        value = np.zeros(self.num_states)
        for step in range(self.horizon - 1, -1, -1):
            q_value = reward[step].copy()
            if step < self.horizon - 1:
                q_value += self.transitions @ value
            q_value[~self.admissible[step]] = -np.inf
            value = self._segment_max(q_value)
            is_best = (q_value == value[self.pair_state]) & self.admissible[step]
            best = np.flatnonzero(is_best)
            first = np.flatnonzero(np.diff(self.pair_state[best], prepend=-1))  # pairs are sorted by state
            policy[step, best[first]] = 1.0
            value[~np.isfinite(value)] = 0.0  # a state without actions at this step: proven unreachable at construction
        return policy, float(self.initial @ value)

    def uniform_policy(self) -> Floats:
        """Return the policy that is uniform over the admissible pairs of every state, shape (H, M)."""
        counts = self._segment_sum(self.admissible.astype(np.float64))[:, self.pair_state]
        return np.divide(self.admissible, counts, out=np.zeros(self.admissible.shape), where=counts > 0)

    def occupancy(self, policy: ArrayLike) -> Floats:
        """Occupancy measure d^h(s, a) of a policy, by forward recursion.

        Args:
            policy: pi_h(a | s) on the pairs, shape (H, M).

        Returns:
            Array (H, M); each step sums to 1.

        Raises:
            ValueError: If the policy is negative, uses an inadmissible pair, or does not sum to 1 in a reachable state.
        """
        table = self._check_policy(policy)
        result = np.empty_like(table)
        state_mass = self.initial
        arrivals = self.transitions.T
        for step in range(self.horizon):
            result[step] = state_mass[self.pair_state] * table[step]
            if step < self.horizon - 1:
                state_mass = arrivals @ result[step]
        return result

    def policy_from_occupancy(self, occupancy: ArrayLike) -> Floats:
        """Extract pi_h(a | s) = d^h(s, a) / sum_a' d^h(s, a'), uniform where a state carries no mass.

        Args:
            occupancy: Array (H, M), non-negative.

        Returns:
            Policy of shape (H, M).
        """
        measure = self._check_pairs(occupancy, "occupancy")
        if measure.min() < 0:
            raise ValueError(f"Expected a non-negative occupancy measure, its smallest entry is {measure.min():.3g}.")
        mass = self._segment_sum(measure)[:, self.pair_state]
        return np.divide(measure, mass, out=self.uniform_policy(), where=mass > 0)

    def flow_violation(self, occupancy: ArrayLike) -> float:
        """Distance of a non-negative array from an occupancy measure, 0 up to rounding if it is one.

        Args:
            occupancy: Array (H, M), non-negative, zero on inadmissible pairs.

        Returns:
            Largest absolute difference to the occupancy measure of the policy extracted from it.
        """
        measure = self._check_pairs(occupancy, "occupancy")
        return float(np.abs(self.occupancy(self.policy_from_occupancy(measure)) - measure).max())

    def available_rows(self) -> tuple[int, ...]:
        """Number of feature rows that some policy shows at each step."""
        reach = self.row_occupancy(self.occupancy(self.uniform_policy())) > 0
        return tuple(int(count) for count in reach.sum(axis=1))

    def row_occupancy(self, occupancy: ArrayLike) -> Floats:
        """Marginal of an occupancy measure over the feature rows.

        Args:
            occupancy: Array (..., H, M).

        Returns:
            Array (..., H, N).
        """
        measure = np.asarray(occupancy, dtype=np.float64)
        if measure.shape[-2:] != (self.horizon, self.num_pairs):
            raise ValueError(
                f"Expected an occupancy of shape (..., {self.horizon}, {self.num_pairs}), got {measure.shape}."
            )
        flat = measure.reshape(-1, self.num_pairs)
        gather = sparse.csr_array(
            (np.ones(self.num_pairs), (np.arange(self.num_pairs), self.pair_row)),
            shape=(self.num_pairs, self.num_rows),
        )
        return np.asarray(flat @ gather).reshape(*measure.shape[:-1], self.num_rows)

    def action_probabilities(self, policy: ArrayLike, step: int, states: ArrayLike) -> Floats:
        """Rows pi_step(. | s) of a policy as dense arrays, for acting in an environment.

        Args:
            policy: Policy of shape (H, M).
            step: Step h in 0..H-1.
            states: State indices, shape (n,).

        Returns:
            Probabilities over action indices, shape (n, A).
        """
        if not 0 <= step < self.horizon:
            raise ValueError(f"Expected a step in 0..{self.horizon - 1}, got {step}.")
        table = self._check_pairs(policy, "policy")[step]
        checked_states = check_integers(states, "states", shape=("n",), low=0, high=self.num_states - 1)
        unique_states, inverse = np.unique(checked_states, return_inverse=True)
        dense = np.zeros((unique_states.size, self.num_actions))
        for index, state in enumerate(unique_states):
            pairs = slice(self._starts[state], self._starts[state + 1])
            dense[index, self.pair_action[pairs]] = table[pairs]
        return dense[inverse]

    def sample(self, policy: ArrayLike, size: int, rng: np.random.Generator) -> Trajectories:
        """Draw independent trajectories of a policy.

        Args:
            policy: Policy of shape (H, M).
            size: Number of trajectories.
            rng: Source of randomness.

        Returns:
            The trajectories, arrays (size, H).
        """
        table = self._check_policy(policy)
        states = np.empty((size, self.horizon), dtype=np.intp)
        pairs = np.empty((size, self.horizon), dtype=np.intp)
        initial_pointer = np.array([0, self.num_states], dtype=np.intp)
        current = draw(self.initial, initial_pointer, np.zeros(size, dtype=np.intp), rng)
        for step in range(self.horizon):
            states[:, step] = current
            pairs[:, step] = draw(table[step], self._starts, current, rng)
            if step == self.horizon - 1:
                break
            matrix = self.transitions
            if self._deterministic:
                current = matrix.indices[pairs[:, step]].astype(np.intp)
            else:
                current = matrix.indices[draw(matrix.data, matrix.indptr, pairs[:, step], rng)].astype(np.intp)
        return Trajectories(states, self.pair_action[pairs], pairs, self.pair_row[pairs])

    def _segment_sum(self, table: Floats) -> Floats:
        """Sum (H, M) over the pairs of each state: (H, S)."""
        total = np.zeros((table.shape[0], self.num_states))
        owners = np.flatnonzero(np.diff(self._starts))  # reduceat gives wrong sums for empty segments
        total[:, owners] = np.add.reduceat(table, self._starts[owners], axis=1)
        return total

    def _segment_max(self, values: Floats) -> Floats:
        best = np.full(self.num_states, -np.inf)
        owners = np.flatnonzero(np.diff(self._starts))
        best[owners] = np.maximum.reduceat(values, self._starts[owners])
        return best

    def _check_pairs(self, table: ArrayLike, name: str) -> Floats:
        return check_array(table, name, shape=(self.horizon, self.num_pairs), hint="give shape (H, M)")

    def _check_rewards(self, rewards: ArrayLike) -> Floats:
        return check_array(rewards, "rewards", shape=(self.horizon, self.num_rows), hint="give shape (H, N)")

    def _check_policy(self, policy: ArrayLike) -> Floats:
        table = self._check_pairs(policy, "policy")
        if table.min() < 0:
            raise ValueError(f"Expected a non-negative policy, its smallest entry is {table.min():.3g}.")
        if table[~self.admissible].any():
            step, pair = (int(i) for i in np.argwhere((table > 0) & ~self.admissible)[0])
            name = f"state {self.pair_state[pair]}, action {self.pair_action[pair]}"
            raise ValueError(f"The policy uses an inadmissible pair at step {step}: {name}.")
        off = (np.abs(self._segment_sum(table) - 1.0) > SUM_TOLERANCE) & self._reachable
        if off.any():
            step, state = (int(i) for i in np.argwhere(off)[0])
            total = float(table[step, self.pair_state == state].sum())
            raise ValueError(
                f"Expected action probabilities that sum to 1, got {total:.6g} at step {step}, state {state}."
            )
        return table
