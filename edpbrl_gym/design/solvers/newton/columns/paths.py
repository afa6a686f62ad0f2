"""Pricing of paths: the best path through every node of a deterministic MDP, from one backward and one forward pass.

With deterministic transitions every policy sends all the mass of an initial state down one path (or splits it), so
the occupancy polytope is the sum over the initial states of conv(paths from there), and each initial state is a block.
The backward pass (value iteration) gives the best reward from every pair on, the forward pass the best reward up to
every state; their sum is the value of the best path through each pair, its max-marginal. The best paths through the
best nodes are new columns: many at once, and as different as the nodes.
"""

from __future__ import annotations

import numpy as np

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.deadline import Deadline
from edpbrl_gym.design.solvers.newton.columns.columns import Column
from edpbrl_gym.design.solvers.newton.columns.master import ColumnMaster, ColumnPoint
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["PathPricing"]


class PathPricing:
    """Prices the paths of a deterministic MDP.

    Args:
        mdp: An MDP for which `applies` is true.

    Attributes:
        masses: Mass of each block, the probability of its initial state, shape (B,).
        share: Of the gap that is asked of it, to which the weights are solved.
    """

    share = 1.0

    def __init__(self, mdp: FiniteHorizonMDP) -> None:
        self._mdp = mdp
        self._roots = np.flatnonzero(mdp.initial)
        self.masses: Floats = mdp.initial[self._roots]
        if mdp.horizon == 1:  # no transitions
            self._successor = np.zeros(mdp.num_pairs, dtype=np.intp)
        else:
            self._successor = mdp.transitions.indices.astype(np.intp)
        self._by_state = _Groups(mdp.pair_state, mdp.num_states)
        self._by_successor = _Groups(self._successor, mdp.num_states)
        self._by_row = _Groups(mdp.pair_row, mdp.num_rows)

    @staticmethod
    def applies(mdp: FiniteHorizonMDP) -> bool:
        """Whether every pair has one successor."""
        deterministic = mdp.transitions.nnz == mdp.num_pairs and bool((mdp.transitions.data == 1.0).all())
        return deterministic or mdp.horizon == 1

    def price(self, scores: Floats, levels: Floats, budget: int) -> tuple[Floats, list[Column]]:
        """Find the best paths through the best nodes.

        Args:
            scores: Reward of each row at each step, shape (H, N).
            levels: Only paths with a reward above this are returned, the best one of each block always; shape (B,).
            budget: Paths at most for all blocks together, and the best one of each.

        Returns:
            The reward of the best path of each block times its mass, shape (B,), and distinct columns.
        """
        rewards = scores[:, self._mdp.pair_row]
        onward, choice = self._backward(rewards)
        best = np.empty(len(self._roots))
        candidates: list[tuple[float, Column]] = []
        columns: list[Column] = []
        for block, (root, mass) in enumerate(zip(self._roots, self.masses, strict=True)):
            arrival, origin = self._forward(rewards, int(root))
            steps, pairs, values = self._nodes(arrival, onward)
            values = mass * values
            best[block] = values[0]
            nodes = np.flatnonzero(values > levels[block])[: 8 * budget]
            nodes = nodes if len(nodes) else np.array([0])
            paths, first = np.unique(
                self._through(steps[nodes], pairs[nodes], choice, origin), axis=0, return_index=True
            )
            order = np.argsort(first)[: budget + 1]
            block_columns = [self._column(path, float(mass), block) for path in paths[order]]
            columns.append(block_columns[0])
            candidates += [
                (float(values[nodes[first[place]]] - levels[block]), column)
                for place, column in zip(order[1:], block_columns[1:], strict=True)
            ]
        candidates.sort(key=lambda item: -item[0])
        return best, columns + [column for _, column in candidates[:budget]]

    def more(
        self, master: ColumnMaster, point: ColumnPoint, gap: float, first: list[Column], deadline: Deadline
    ) -> tuple[list[Column], bool]:
        """None: `price` finds many at once."""
        return [], False

    def start(self, rng: np.random.Generator, count: int) -> list[Column]:
        """Paths through `count` random nodes of each block (all of them if there are fewer), otherwise random."""
        rewards = rng.random((self._mdp.horizon, self._mdp.num_pairs))
        onward, choice = self._backward(rewards)
        columns = []
        for block, (root, mass) in enumerate(zip(self._roots, self.masses, strict=True)):
            arrival, origin = self._forward(rewards, int(root))
            steps, pairs, _ = self._nodes(arrival, onward)
            nodes = rng.permutation(len(steps))[:count]
            paths = np.unique(self._through(steps[nodes], pairs[nodes], choice, origin), axis=0)
            columns += [self._column(path, float(mass), block) for path in paths]
        return columns

    def split(self, occupancy: Floats) -> list[Column]:
        """One column for each block that together make a feasible occupancy (H, M)."""
        mdp = self._mdp
        policy = mdp.policy_from_occupancy(occupancy)
        columns = []
        for block, (root, mass) in enumerate(zip(self._roots, self.masses, strict=True)):
            block_occupancy = np.empty_like(policy)
            state_mass = np.zeros(mdp.num_states)
            state_mass[root] = mass
            for step in range(mdp.horizon):
                block_occupancy[step] = state_mass[mdp.pair_state] * policy[step]
                if step < mdp.horizon - 1:
                    inflow = np.bincount(self._successor, weights=block_occupancy[step], minlength=mdp.num_states)
                    state_mass = inflow.astype(np.float64)
            columns.append(Column.of(block_occupancy, block))
        return columns

    def _backward(self, rewards: Floats) -> tuple[Floats, Positions]:
        """Best reward from every pair on (H, M), -inf where inadmissible, and the best pair of every state (H, S)."""
        mdp = self._mdp
        onward = np.where(mdp.admissible, rewards, -np.inf)
        choice = np.empty((mdp.horizon, mdp.num_states), dtype=np.intp)
        value: Floats = np.zeros(mdp.num_states)
        for step in range(mdp.horizon - 1, -1, -1):
            if step < mdp.horizon - 1:
                onward[step] += value[self._successor]
            value, choice[step] = self._by_state.best(onward[step])
        return onward, choice

    def _forward(self, rewards: Floats, root: int) -> tuple[Floats, Positions]:
        """Best reward up to every state (H, S), -inf where it can't be, and the pair before it (H, S)."""
        mdp = self._mdp
        arrival = np.full((mdp.horizon, mdp.num_states), -np.inf)
        origin = np.full((mdp.horizon, mdp.num_states), -1, dtype=np.intp)
        arrival[0, root] = 0.0
        for step in range(mdp.horizon - 1):
            upto = np.where(mdp.admissible[step], arrival[step][mdp.pair_state] + rewards[step], -np.inf)
            arrival[step + 1], origin[step + 1] = self._by_successor.best(upto)
        return arrival, origin

    def _nodes(self, arrival: Floats, onward: Floats) -> tuple[Positions, Positions, Floats]:
        """Reachable nodes, best first: step, the pair of the best path through it, and that path's reward."""
        mdp = self._mdp
        values = np.empty((mdp.horizon, mdp.num_rows))
        pairs = np.empty((mdp.horizon, mdp.num_rows), dtype=np.intp)
        for step in range(mdp.horizon):
            values[step], pairs[step] = self._by_row.best(arrival[step][mdp.pair_state] + onward[step])
        flat = values.ravel()
        usable = np.flatnonzero(np.isfinite(flat))
        order = usable[np.argsort(-flat[usable], kind="stable")]
        return order // mdp.num_rows, pairs.ravel()[order], flat[order]

    def _through(self, steps: Positions, pairs: Positions, choice: Positions, origin: Positions) -> Positions:
        """Best path through each of some pairs at their steps: pairs, shape (n, H)."""
        mdp = self._mdp
        paths = np.empty((len(steps), mdp.horizon), dtype=np.intp)
        paths[np.arange(len(steps)), steps] = pairs
        for step in range(1, mdp.horizon):
            after = steps < step
            paths[after, step] = choice[step, self._successor[paths[after, step - 1]]]
        for step in range(mdp.horizon - 2, -1, -1):
            before = steps > step
            paths[before, step] = origin[step + 1, mdp.pair_state[paths[before, step + 1]]]
        return paths

    def _column(self, path: Positions, mass: float, block: int) -> Column:
        indices = np.arange(self._mdp.horizon) * self._mdp.num_pairs + path
        return Column(indices, np.full(len(path), mass), block)


class _Groups:
    """Pairs by a label, for the maximum of each label.

    Args:
        label: Label of each pair, shape (M,).
        size: Number of labels.
    """

    def __init__(self, label: Positions, size: int) -> None:
        self._order = np.argsort(label, kind="stable")
        ordered = label[self._order]
        starts = np.searchsorted(ordered, np.arange(size + 1))
        self._owners = np.flatnonzero(np.diff(starts))
        self._starts = starts[self._owners]
        self._ordered = ordered
        self._size = size

    def best(self, values: Floats) -> tuple[Floats, Positions]:
        """Largest value of each label and the first pair that has it; -inf and a pair of no meaning without any."""
        ordered = values[self._order]
        largest = np.full(self._size, -np.inf)
        largest[self._owners] = np.maximum.reduceat(ordered, self._starts)
        place = np.flatnonzero(ordered == largest[self._ordered])[::-1]
        pairs = np.zeros(self._size, dtype=np.intp)
        pairs[self._ordered[place]] = self._order[place]  # the last assignment wins: the first pair
        return largest, pairs
