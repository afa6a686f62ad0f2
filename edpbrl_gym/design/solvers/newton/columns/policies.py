"""Pricing of policies: value iteration finds the best deterministic policy of any finite-horizon MDP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.solvers.newton.columns.columns import Column
from edpbrl_gym.design.solvers.newton.columns.costs import CHAIN, chain_cost
from edpbrl_gym.design.solvers.newton.columns.master import ColumnMaster, ColumnPoint
from edpbrl_gym.design.solvers.newton.columns.policy_steps import PolicySteps
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["PolicyColumns", "PolicyPricing", "Turns"]


_PATIENCE = 1.5  # Newton steps' worth of Frank-Wolfe steps before the first, which does little far from the optimum
_TRIES = 3  # Newton steps that may do little before Frank-Wolfe steps get another turn
_FAIR = 0.25  # share of the other way's gain for its cost that is enough for another Newton step


class PolicyPricing:
    """Prices the policies of any MDP; all of them are one block.

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

    def start(self, rng: np.random.Generator, count: int) -> list[Column]:
        """The occupancy of the uniform policy; no randomness."""
        return [Column.of(self._mdp.occupancy(self._mdp.uniform_policy()))]

    def split(self, occupancy: Floats) -> list[Column]:
        """A feasible occupancy (H, M) as a column."""
        return [Column.of(occupancy)]


class PolicyColumns(PolicyPricing):
    """Prices policies, and improves a design of them by Newton steps too.

    Args:
        problem: The problem; criterion A, V or D.

    Attributes:
        share: Of the gap that is asked of it, to which the weights are solved: a Newton step on the policy may raise
            the objective by little while the gap is still large.
    """

    share = 1e-4

    def __init__(self, problem: DesignProblem) -> None:
        super().__init__(problem.mdp)
        self._steps = PolicySteps(problem)
        self._turns = Turns(chain_cost(problem), _PATIENCE)

    def more(
        self, master: ColumnMaster, point: ColumnPoint, gap: float, first: list[Column], deadline: Deadline = NEVER
    ) -> tuple[list[Column], bool]:
        """Further columns: that of a Newton step on the policy, or the best policies along a few Frank-Wolfe steps.

        A Frank-Wolfe step is cheap beside a correction of all weights, and its best policy answers to the steps before,
        so the columns differ where it matters. A Newton step costs a few dozen of them, and from some point on it is
        the only way forward; `Turns` finds that point.

        Args:
            master: The master.
            point: The current point.
            gap: Its gap.
            first: What `price` found there.
            deadline: When to leave out the rest.

        Returns:
            The columns, and whether they are one Newton step, which may be better than the current point as it is.
        """
        occupancy = point.occupancy
        if self._turns.is_newton(point.value, gap, self._steps.cost(occupancy)):
            column = self._steps.column(point.local, occupancy, master.scores(point.local), gap, deadline)
            if column is not None:
                return [column], True
        columns: list[Column] = []
        local, column = point.local, first[0]
        for _ in range(CHAIN):
            if deadline.passed:
                break
            local = master.towards(local, column)
            column = self.price(master.scores(local), np.empty(0), 1)[1][0]
            columns.append(column)
        return columns, False


@dataclass
class Turns:
    """Whose turn it is: Frank-Wolfe steps, or a Newton step on the policy.

    Nobody knows beforehand what either will gain. So Frank-Wolfe steps get as much work as a Newton step costs, then
    Newton steps get a few tries (the first ones far from the optimum may do little), and go on as long as one of so
    many halves the smallest gap so far, or raises the objective by a fair share of what the same work raised it before.
    If none does, the next tries come after twice the work. So at most a few times the work of the better one is done,
    and the same in every run.

    Attributes:
        chain_cost: Cost of one turn of Frank-Wolfe steps.
        patience: Newton steps' worth of them before the next.
    """

    chain_cost: float
    patience: float = 1.0
    _work: float = 0.0  # of Frank-Wolfe steps since the last Newton step
    _rate: float = 0.0  # gain for its cost of the last turn of Frank-Wolfe steps
    _idle: int = 0  # Newton steps in a row that were not worth it
    _smallest: float = np.inf  # gap
    _last: tuple[bool, float, float] | None = None  # was it Newton; value and cost

    def is_newton(self, value: float, gap: float, newton_cost: float) -> bool:
        """Decide, at a point with this objective and gap."""
        again = False
        if self._last is not None:
            was_newton, last_value, cost = self._last
            rate = (value - last_value) / cost
            if was_newton:
                worth = gap <= 0.5 * self._smallest or rate >= _FAIR * self._rate
                self._idle = 0 if worth else self._idle + 1
                again = self._idle < _TRIES
                if not again:
                    self.patience, self._idle = 2.0 * self.patience, 0
            else:
                self._rate = rate
        self._smallest = min(self._smallest, gap)
        newton = again or self._work >= self.patience * newton_cost
        self._work = 0.0 if newton else self._work + self.chain_cost
        self._last = (newton, value, newton_cost if newton else self.chain_cost)
        return newton
