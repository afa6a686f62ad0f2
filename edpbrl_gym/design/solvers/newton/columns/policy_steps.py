"""Newton steps on the action probabilities of all states at once, for MDPs with stochastic transitions.

A deterministic policy is a poor column where transitions are stochastic: the optimum randomises in hundreds of states,
so it is a mixture of exponentially many policies. A step instead chooses new probabilities in every state that the
current occupancy reaches: the gradient is the advantage of each pair under the current policy, the Hessian comes from
what the pair does to the moments (`directions`), and the quadratic program has one simplex for every state and step
with more than one candidate (`interior`). It holds the masses of the states: their changes are of second order, and
vanish with the advantages at the optimum. The occupancy of the new policy is a column like any other, so a step that
was too bold costs nothing but its time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edpbrl_gym._arrays import Booleans, Floats, Positions
from edpbrl_gym.design.deadline import Deadline
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.solvers.newton.columns.columns import Column
from edpbrl_gym.design.solvers.newton.columns.costs import low_rank_pays, step_cost
from edpbrl_gym.design.solvers.newton.columns.directions import Coordinates, directions
from edpbrl_gym.design.solvers.newton.columns.master import Local
from edpbrl_gym.design.solvers.newton.interior import DenseHessian, LowRankHessian, solve_by_interior_point
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["PolicySteps"]


_QP_SHARE = 0.1  # of what a step gains, that the quadratic program may leave
_QP_FLOOR = 1e-8  # of the gap, below which it stops in any case
_NEGLIGIBLE = 0.03  # share of the last step's gain at stake in all states together that are left to their best action
_LEAST_MASS = 1e-14  # of a state that is not
_SUPPORTED = 1e-3  # probability from which on a pair is a candidate whatever its advantage
_FARTHEST = 10.0  # gaps below the best advantage up to which other pairs are candidates
_MEMORY = 5  # steps for which a pair that was best stays one: else two sets of candidates may alternate


class PolicySteps:
    """Finds the column of a Newton step on the policy.

    Args:
        problem: The problem; criterion A, V or D.
    """

    def __init__(self, problem: DesignProblem) -> None:
        self._problem = problem
        self._mdp: FiniteHorizonMDP = problem.mdp
        features = np.asarray(problem.features, dtype=np.float64)
        self._features: Floats = features - features.mean(axis=0)
        self._distinct = _distinct_at_the_end(self._mdp)
        self._steps = 0
        self._gain = np.inf
        self._last_best = np.full(self._distinct.shape, -_MEMORY)

    def column(self, local: Local, occupancy: Floats, scores: Floats, gap: float, deadline: Deadline) -> Column | None:
        """The occupancy of the policy after a Newton step.

        Args:
            local: The objective around the current occupancy.
            occupancy: The current occupancy, shape (H, M).
            scores: Its scores, shape (H, N).
            gap: Its gap, positive.
            deadline: When to give up.

        Returns:
            The column; None if the time is up or there is nothing to choose.
        """
        mdp = self._mdp
        masses = self._state_masses(occupancy)
        empty = (masses == 0.0)[:, mdp.pair_state]
        policy = np.where(empty, mdp.best_response(scores)[0], mdp.policy_from_occupancy(occupancy))
        advantages = self._advantages(policy, scores)
        coordinates = Coordinates.at(local, self._features, self._problem.episodes)
        chosen = self._candidates(policy, masses, advantages, gap, coordinates.size)
        choice = _Choice.of(mdp, chosen, masses)
        if not choice.free.any() or deadline.passed:
            return None
        rows = directions(mdp, coordinates, policy, chosen)
        values = self._solve(choice, rows, advantages[chosen], gap, deadline)
        if values is None:
            return None
        # the best action of the predicted scores where a state has no mass, or too little to choose
        moved = mdp.best_response(coordinates.predicted(scores, rows.T @ values))[0]
        moved[choice.decided[:, mdp.pair_state]] = 0.0
        moved[choice.step, choice.pair] = values / np.repeat(choice.masses, choice.sizes)
        return Column.of(mdp.occupancy(moved))

    def cost(self, occupancy: Floats) -> float:
        """What a step there costs, about (`costs`)."""
        dimension, horizon = self._problem.dimension, self._mdp.horizon
        moments = dimension * (dimension + 1) // 2 + horizon * dimension
        states = int(np.count_nonzero(self._state_masses(occupancy)))
        candidates = int(np.count_nonzero(occupancy)) - states + moments
        return step_cost(self._problem, states=states, candidates=min(candidates, occupancy.size), moments=moments)

    def _solve(
        self, choice: _Choice, rows: Floats, advantages: Floats, gap: float, deadline: Deadline
    ) -> Floats | None:
        """Masses of the candidates after the quadratic program, shape (k,); None if the time is up."""
        free, several = choice.free, choice.sizes > 1
        values = np.where(free, 0.0, np.repeat(choice.masses, choice.sizes))  # the only candidate of a state takes all
        forced = rows.T @ values
        program = rows[free]
        gradient = advantages[free] - program @ forced
        offset = float(advantages @ values - 0.5 * forced @ forced)
        found = solve_by_interior_point(
            LowRankHessian(program) if low_rank_pays(*program.shape) else DenseHessian(program @ program.T),
            gradient,
            choice.sizes[several],
            choice.masses[several],
            share=_QP_SHARE,
            offset=offset,
            smallest=_QP_FLOOR * gap,
            deadline=deadline,
        )
        if found is None:
            return None
        values[free] = found
        reached = program.T @ found
        gain = offset + float(gradient @ found - 0.5 * reached @ reached)
        self._gain = max(gain, 1e-3 * min(gap, self._gain))
        return values

    def _state_masses(self, occupancy: Floats) -> Floats:
        """Mass of every state at every step, shape (H, S)."""
        return np.stack(
            [np.bincount(self._mdp.pair_state, weights=mass, minlength=self._mdp.num_states) for mass in occupancy]
        )

    def _advantages(self, policy: Floats, scores: Floats) -> Floats:
        """Reward of each pair and of following the policy after it, less that of the policy, shape (H, M)."""
        mdp = self._mdp
        advantages = np.empty_like(policy)
        value = np.zeros(mdp.num_states)
        for step in range(mdp.horizon - 1, -1, -1):
            ahead = scores[step, mdp.pair_row]
            if step < mdp.horizon - 1:
                ahead = ahead + mdp.transitions @ value
            mean = np.bincount(mdp.pair_state, weights=policy[step] * ahead, minlength=mdp.num_states)
            value = mean.astype(np.float64)
            advantages[step] = ahead - value[mdp.pair_state]
        return advantages

    def _candidates(self, policy: Floats, masses: Floats, advantages: Floats, gap: float, size: int) -> Booleans:
        """Pairs of the quadratic program, shape (H, M).

        In every state with mass that matters: the best pair, those that the policy takes, and of the others those with
        the largest advantages, `size` at most.
        """
        mdp = self._mdp
        usable = mdp.admissible & self._distinct
        best = np.full((mdp.horizon, mdp.num_states), -np.inf)
        lowest = np.full((mdp.horizon, mdp.num_states), np.inf)
        for step in range(mdp.horizon):
            np.maximum.at(best[step], mdp.pair_state[usable[step]], advantages[step, usable[step]])
            np.minimum.at(lowest[step], mdp.pair_state[usable[step]], advantages[step, usable[step]])
        with np.errstate(invalid="ignore"):  # a state without admissible pairs has no mass
            stakes = np.where(masses > _LEAST_MASS, masses * (best - lowest), 0.0).ravel()
        order = np.argsort(stakes)
        matters = np.ones(best.size, dtype=np.bool_)
        matters[order[np.cumsum(stakes[order]) <= _NEGLIGIBLE * min(gap, self._gain)]] = False
        matters = matters.reshape(best.shape)
        relevant = usable & matters[:, mdp.pair_state]
        short = np.full_like(advantages, np.inf)
        short[relevant] = (best[:, mdp.pair_state] - advantages)[relevant]
        others = short[(short > 0) & (short <= _FARTHEST * gap)]
        farthest = np.partition(others, size)[size] if len(others) > size else _FARTHEST * gap
        self._steps += 1
        remembered = self._last_best > self._steps - _MEMORY
        self._last_best[short == 0.0] = self._steps
        return np.asarray(relevant & ((short <= farthest) | (policy > _SUPPORTED) | remembered))


@dataclass(frozen=True)
class _Choice:
    """Candidates by state and step.

    Attributes:
        step: Step of each candidate, shape (k,).
        pair: Its pair.
        free: Whether its state has others.
        sizes: Candidates of each state that has any, shape (B,).
        masses: Its mass.
        decided: States with candidates, shape (H, S).
    """

    step: Positions
    pair: Positions
    free: Booleans
    sizes: Positions
    masses: Floats
    decided: Booleans

    @classmethod
    def of(cls, mdp: FiniteHorizonMDP, chosen: Booleans, masses: Floats) -> _Choice:
        """Group the chosen pairs (H, M) by their states of masses (H, S)."""
        step, pair = np.nonzero(chosen)
        node = step * mdp.num_states + mdp.pair_state[pair]
        nodes, sizes = np.unique(node, return_counts=True)
        decided = np.zeros(masses.size, dtype=np.bool_)
        decided[nodes] = True
        free = np.repeat(sizes > 1, sizes)
        return cls(step, pair, free, sizes, masses.ravel()[nodes], decided.reshape(masses.shape))


def _distinct_at_the_end(mdp: FiniteHorizonMDP) -> Booleans:
    """Pairs without the repeats of the last step, where pairs of a state that show the same row are the same."""
    distinct = np.ones((mdp.horizon, mdp.num_pairs), dtype=np.bool_)
    usable = np.flatnonzero(mdp.admissible[-1])
    label = mdp.pair_state[usable] * mdp.num_rows + mdp.pair_row[usable]
    distinct[-1] = False
    distinct[-1, usable[np.unique(label, return_index=True)[1]]] = True
    return distinct
