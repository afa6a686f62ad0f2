"""Column generation with a Newton master, for any finite-horizon MDP.

Each iteration of the loop (`newton.working_set`) scores every row at every step with the gradient, prices the columns
(value iteration over all policies: this is the certificate), adds the best to those with weight and solves for the
weights by Newton's method (`master`). With deterministic transitions the columns are paths, many of them at once
(`paths`); with stochastic ones they are policies (`policies`): Frank-Wolfe with full correction after every few steps,
and Newton steps on the action probabilities of all states (`policy_steps`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.certificate import certify
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.deadline import Deadline
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, check_occupancy
from edpbrl_gym.design.solvers.newton.columns.columns import Column, ColumnOracle, ColumnSet
from edpbrl_gym.design.solvers.newton.columns.costs import paths_pay
from edpbrl_gym.design.solvers.newton.columns.master import ColumnMaster, ColumnPoint
from edpbrl_gym.design.solvers.newton.columns.paths import PathPricing
from edpbrl_gym.design.solvers.newton.columns.policies import PolicyColumns
from edpbrl_gym.design.solvers.newton.master import uniform_weights
from edpbrl_gym.design.solvers.newton.working_set import Engine, Prices, Run

__all__ = ["ColumnPrices", "ColumnSolver"]


_SMALLEST_START = 128  # columns
_ATTEMPTS = 4  # certificates that rounding may spoil before giving up


class _Family(ColumnOracle, Protocol):
    """Further operations of the solver on a family of columns."""

    masses: Floats
    share: float

    def more(
        self, master: ColumnMaster, point: ColumnPoint, gap: float, first: list[Column], deadline: Deadline
    ) -> tuple[list[Column], bool]: ...

    def start(self, rng: np.random.Generator, count: int) -> list[Column]: ...


@dataclass(frozen=True)
class ColumnPrices(Prices):
    """Columns that improve the design.

    Attributes:
        columns: The columns.
    """

    columns: list[Column]


class ColumnSolver(Engine[ColumnPoint, ColumnPrices]):
    """Working-set Newton on the paths or policies of any MDP.

    Args:
        problem: The problem.
        tolerance: As in `newton`; it decides whether paths or policies take less time.
    """

    exact = True

    def __init__(self, problem: DesignProblem, tolerance: float) -> None:
        super().__init__(problem)
        mdp = problem.mdp
        by_paths = PathPricing.applies(mdp) and paths_pay(problem, tolerance)
        self._family: _Family = PathPricing(mdp) if by_paths else PolicyColumns(problem)
        self._master = ColumnMaster(problem, self._family.masses)

    def first(self, start: ArrayLike | None, seed: int, deadline: Deadline) -> tuple[ColumnPoint, int]:
        """The start or a random sample; or uniform weights on the columns that it prices best, if they are better."""
        problem = self.problem
        if start is None:
            sample = self._sample(seed)
        else:
            occupancy = np.array(start, dtype=np.float64)
            check_occupancy(problem, occupancy)
            sample = self._uniform(self._family.split(occupancy))
        if not np.isfinite(problem.baseline):  # the best columns alone need not reach every direction
            return sample, 0
        count = max(_SMALLEST_START, problem.dimension // 2)
        floor = np.full(len(self._family.masses), -np.inf)
        point = self._uniform(self._family.price(self._master.scores(sample.local), floor, count)[1])
        return (point if point.value > sample.value else sample), 1

    def _sample(self, seed: int) -> ColumnPoint:
        """Uniform weights on random columns through at least 2d nodes, more until the information is regular."""
        problem = self.problem
        count = -(-2 * problem.dimension // problem.horizon)
        while True:
            try:
                return self._uniform(self._family.start(np.random.default_rng(seed), count))
            except SingularInformationError:  # no proper prior, and the sample does not reach every direction
                if count >= problem.horizon * problem.mdp.num_rows:
                    break
                count *= 2
        # `DesignProblem` made sure that the uniform policy reaches every direction
        return self._uniform(self._family.split(problem.mdp.occupancy(problem.mdp.uniform_policy())))

    def _uniform(self, columns: list[Column]) -> ColumnPoint:
        working = ColumnSet(self.problem.mdp, columns)
        return self._master.point(working, uniform_weights(working.slices))

    def price(self, point: ColumnPoint, *, budget: int, exact: bool) -> ColumnPrices:
        """See `Engine`; all scores are float64 in any case."""
        scores = self._master.scores(point.local)
        levels = self._master.levels(point, scores)
        best, columns = self._family.price(scores, levels, budget)
        return ColumnPrices(float(np.maximum(best - levels, 0.0).sum()), columns)

    def advanced(
        self,
        run: Run[ColumnPoint],
        prices: ColumnPrices,
        *,
        target: float,
        max_steps: int,
        deadline: Deadline,
        observe: Callable[[ColumnPoint], object],
    ) -> tuple[ColumnPoint, float]:
        """See `Engine`."""
        point, columns = run.point, prices.columns
        more, leap = self._family.more(self._master, point, prices.gap, columns, deadline)
        run.oracle_calls += len(more)
        wider = self._master.moved(point, ColumnSet(self.problem.mdp, [*point.support, *columns, *more]))
        if leap:
            wider = self._master.leapt(wider, more[0])
        target *= self._family.share
        return self._master.improve(wider, target=target, max_steps=max_steps, deadline=deadline, observe=observe)

    def occupancy(self, point: ColumnPoint) -> Floats:
        """See `Engine`."""
        return point.occupancy

    def certified(self, run: Run[ColumnPoint]) -> Design:
        """The design of a run, its certificate that of any other solver's occupancy (`certify`)."""
        return certify(
            self.problem,
            run.point.occupancy,
            **run.report(),
        )

    def resume(self, run: Run[ColumnPoint], attempt: int) -> bool:
        """Go on as if the loop had not stopped, a few times."""
        run.history.pop()
        return attempt < _ATTEMPTS

    def largest_budget(self, point: ColumnPoint) -> float:
        """Twice the support."""
        return 2 * len(point.support)
