"""The loop of working-set Newton, one for tokens and for columns, and what it asks of each (`Engine`).

Each iteration prices everything that could carry mass, which certifies the current point, adds what would improve the
design most to what has mass, and solves the problem restricted to that by Newton's method. The objective rises in every
iteration, so the working sets never cycle.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, IterationRecord
from edpbrl_gym.design.solvers.state import NewtonState

__all__ = ["Engine", "Point", "Prices", "Run", "iterate", "solve_by_working_sets"]


_SMALLEST_BUDGET = 64  # to add at once
_RESTRICTED_SHARE = 0.1  # the restricted problem is solved to this share of the full gap
_MASTER_STEPS = 10
_GOAL, _GOALS = 0.8, 120  # goals are powers of the first, up to the second, of the gap
_PATIENCE = 3  # iterations without progress before giving up
_HIDDEN = 4.0  # allowances for the rounding of value and gap: a smaller gap is noise


class Point(Protocol):
    """Weights on a working set."""

    @property
    def value(self) -> float:
        """Objective."""
        ...

    @property
    def support(self) -> Sized:
        """Tokens or columns with mass."""
        ...


@dataclass(frozen=True)
class Prices:
    """What would improve a design; engines add to it what they need to widen the working set.

    Attributes:
        gap: Sum over the blocks of the largest score less the mean score of the weights, over everything.
    """

    gap: float


PointT = TypeVar("PointT", bound=Point)
PricesT = TypeVar("PricesT", bound=Prices)


@dataclass
class Run(Generic[PointT]):
    """State of the loop: only a better finished point replaces the point, so it is complete at any interrupt."""

    point: PointT
    budget: int  # how much to add at once
    exact: bool  # all scores in float64
    oracle_calls: int = 0
    history: list[IterationRecord] = field(default_factory=list)
    steps: int = 0
    status: str = ""
    slow: int = 0  # iterations in a row without progress
    goal: float = 0.0  # a gap that would do at the present value

    def report(self) -> dict[str, Any]:
        """Fields of a design that describe its run, except the time."""
        counts = {"iterations": self.steps, "oracle_calls": self.oracle_calls}
        return {"solver": "newton", "status": self.status, **counts, "seconds": 0.0, "history": tuple(self.history)}


class Engine(ABC, Generic[PointT, PricesT]):
    """Operations of the loop on the tokens, or on the columns, of a problem.

    Args:
        problem: The problem.

    Attributes:
        exact: Whether all scores are float64 from the beginning.
    """

    exact = False

    def __init__(self, problem: DesignProblem) -> None:
        self.problem = problem

    @abstractmethod
    def first(self, start: ArrayLike | None, seed: int, deadline: Deadline) -> tuple[PointT, int]:
        """Where to begin, and how many pricing passes it took to find; arguments as in `newton`."""

    @abstractmethod
    def price(self, point: PointT, *, budget: int, exact: bool) -> PricesT:
        """Price everything. Scores that decide the gap are float64; with `exact` all are."""

    @abstractmethod
    def advanced(
        self,
        run: Run[PointT],
        prices: PricesT,
        *,
        target: float,
        max_steps: int,
        deadline: Deadline,
        observe: Callable[[PointT], object],
    ) -> tuple[PointT, float]:
        """A point on the next working set after Newton steps to a restricted gap of `target`, and the last step.

        `observe` is called with the point after every Newton step; a true return value ends them.
        """

    @abstractmethod
    def occupancy(self, point: PointT) -> Floats:
        """Mean occupancy of a point, shape (H, M)."""

    @abstractmethod
    def certified(self, run: Run[PointT]) -> Design:
        """The design of a run with its certificate."""

    @abstractmethod
    def resume(self, run: Run[PointT], attempt: int) -> bool:
        """Prepare to go on after the certificate has disagreed for the `attempt`-th time; False to give up."""

    def largest_budget(self, point: PointT) -> float:
        """Up to where slow progress doubles the budget."""
        return np.inf

    def run_from(self, point: PointT, oracle_calls: int = 0) -> Run[PointT]:
        """A run that begins at a point."""
        return Run(point, max(_SMALLEST_BUDGET, self.problem.dimension // 4), self.exact, oracle_calls)


def solve_by_working_sets(
    engine: Engine[PointT, PricesT],
    *,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[NewtonState], object] | None,
    start: ArrayLike | None,
    seed: int,
    deadline: Deadline,
    begin: float,
) -> Design:
    """Solve the problem of an engine; arguments and result as in `newton`, `begin` is the time when it was called."""
    problem = engine.problem
    run = engine.run_from(*engine.first(start, seed, deadline))

    def observe(run: Run[PointT], point: PointT, bound: float, step: int) -> object:
        return callback is not None and callback(_state(engine, run, point, bound, step, time.perf_counter() - begin))

    def certified() -> Design:
        return replace(engine.certified(run), seconds=time.perf_counter() - begin)

    aim = tolerance
    try:
        for attempt in itertools.count(1):
            iterate(engine, run, aim, max_iterations, observe, deadline)
            design = certified()
            if run.status != "converged" or problem.converged(design.gap, design.value, tolerance):
                break
            if not engine.resume(run, attempt):
                run.status = "stalled"
                break
            aim /= 4.0  # the rest is for rounding
    except KeyboardInterrupt:
        if not run.history:
            raise
        run.status = "interrupted"
        design = certified()
    return _finished(design, run.status, tolerance)


def iterate(
    engine: Engine[PointT, PricesT],
    run: Run[PointT],
    tolerance: float,
    max_iterations: int,
    observe: Callable[[Run[PointT], PointT, float, int], object] = lambda *_: False,
    deadline: Deadline = NEVER,
) -> None:
    """Run the iterations; `run` is valid whenever an exception leaves.

    Args:
        engine: The engine.
        run: Where to begin.
        tolerance: As in `newton`.
        max_iterations: As in `newton`.
        observe: Called with the run, a point, an upper bound of the objective and the number of Newton steps since the
            last pricing, in every iteration that goes on and after every Newton step; a true return value stops.
        deadline: When to leave.

    A run that ends inside an iteration (by an exception, the deadline or the observer) has a point that has not been
    priced, and no record of it.
    """
    problem = engine.problem
    while True:
        if deadline.passed:
            run.status = "time_limit"
            return
        began = time.perf_counter()
        value = run.point.value
        prices = engine.price(run.point, budget=run.budget, exact=run.exact)
        run.oracle_calls += 1
        gap = prices.gap
        _note_progress(engine, run, gap)
        if problem.converged(gap, value, tolerance):
            run.status = "converged"
        elif run.steps >= max_iterations:
            run.status = "iteration_limit"
        elif run.slow >= _PATIENCE and run.exact:
            run.status = "stalled"
        elif observe(run, run.point, value + gap, 0):
            run.status = "interrupted"
        else:
            if run.slow >= _PATIENCE:  # perhaps float32 hides what to add
                run.exact, run.slow = True, 0
            run.goal = _goal(problem, gap, value, tolerance)
            watch = _Watch(run, value + gap, observe)
            run.point, step = engine.advanced(
                run,
                prices,
                target=_RESTRICTED_SHARE * gap,
                max_steps=_MASTER_STEPS,
                deadline=deadline,
                observe=watch,
            )
            run.history.append(IterationRecord(run.steps, value, gap, step, time.perf_counter() - began))
            run.steps += 1
            if not watch.stopped:
                continue
            run.status = "interrupted"
            return
        run.history.append(IterationRecord(run.steps, value, gap, 0.0, time.perf_counter() - began))
        return


def _goal(problem: DesignProblem, gap: float, value: float, tolerance: float) -> float:
    """About the largest gap with which a design of this value would have converged; 0 if no gap would do."""
    powers = range(1, _GOALS + 1)
    first = bisect_left(powers, True, key=lambda power: problem.converged(_GOAL**power * gap, value, tolerance))
    return _GOAL ** powers[first] * gap if first < len(powers) else 0.0


def _note_progress(engine: Engine[PointT, PricesT], run: Run[PointT], gap: float) -> None:
    """Count iterations that neither raised the objective beyond rounding nor lowered the gap; adapt the budget."""
    if not run.history:
        return
    value, last = run.point.value, run.history[-1]
    rounding = 8 * float(np.finfo(np.float64).eps) * max(1.0, abs(value))
    smallest = min(record.gap for record in run.history)
    run.slow = run.slow + 1 if value - last.value <= rounding and gap > 0.5 * smallest else 0
    if gap > 0.5 * last.gap:
        run.budget = int(max(run.budget, min(2 * run.budget, engine.largest_budget(run.point))))


class _Watch(Generic[PointT]):
    """Counts the Newton steps of an iteration, shows them to an observer and remembers whether it stopped them."""

    def __init__(
        self, run: Run[PointT], bound: float, observe: Callable[[Run[PointT], PointT, float, int], object]
    ) -> None:
        self._run, self._bound, self._observe = run, bound, observe
        self._steps = 0
        self.stopped = False

    def __call__(self, point: PointT) -> bool:
        self._steps += 1
        self.stopped = bool(self._observe(self._run, point, self._bound, self._steps))
        return self.stopped


def _finished(design: Design, status: str, tolerance: float) -> Design:
    """A certified design with the status that its certificate bears out, and a record of that if it has none.

    Whatever ended the run, its last steps may have sufficed; and a lack of progress is a matter of precision only where
    the gap is within the tolerance but for the allowance for rounding, or so small that rounding may hide it.
    """
    problem, history, word = design.problem, design.history, status
    if len(history) == design.iterations:
        history = (*history, IterationRecord(design.iterations, design.value, design.gap, 0.0, 0.0))
    computed = max(0.0, design.gap - design.rounding)
    hidden = _HIDDEN * (design.upper_bound - design.value - computed)
    if problem.converged(design.gap, design.value, tolerance):
        word = "converged"
    elif status == "stalled" and (computed <= hidden or problem.converged(computed, design.value, tolerance)):
        word = "precision_reached"
    return replace(design, status=word, history=history)


def _state(
    engine: Engine[PointT, PricesT], run: Run[PointT], point: PointT, bound: float, step: int, seconds: float
) -> NewtonState:
    occupancy = engine.occupancy(point)
    occupancy.setflags(write=False)
    gap = max(0.0, bound - point.value)
    return NewtonState(
        iteration=run.steps,
        value=point.value,
        gap=gap,
        relative_gap=engine.problem.relative_gap(gap, point.value),
        seconds=seconds,
        occupancy=occupancy,
        upper_bound=bound,
        support=len(point.support),
        oracle_calls=run.oracle_calls,
        step=step,
    )
