"""Column generation with a Newton master, for any finite-horizon MDP.

Each iteration scores every row at every step with the gradient, prices the columns (value iteration over all
policies: this is the certificate), adds the best to those with weight and solves for the weights by Newton's method
(`master`). With deterministic transitions the columns are paths, many of them at once (`paths`); with
stochastic ones they are policies (`policies`): Frank-Wolfe with full correction after every few steps. The objective
rises in every iteration, so the working sets never cycle.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, IterationRecord, certify, check_occupancy
from edpbrl_gym.design.solvers.newton.columns.columns import Column, ColumnSet
from edpbrl_gym.design.solvers.newton.columns.master import ColumnMaster, ColumnPoint
from edpbrl_gym.design.solvers.newton.columns.paths import PathPricing
from edpbrl_gym.design.solvers.newton.columns.policies import PolicyPricing
from edpbrl_gym.design.solvers.state import NewtonState

__all__ = ["solve_columns"]

FloatArray = NDArray[np.float64]

_SMALLEST_START = 128  # columns
_SMALLEST_BUDGET = 64  # columns to add at once
_RESTRICTED_SHARE = 0.1  # the restricted problem is solved to this share of the full gap
_MASTER_STEPS = 10
_PATIENCE = 3  # iterations without progress before giving up
_MOST_PATH_BLOCKS = 24  # initial states
_ATTEMPTS = 4  # certificates that rounding may spoil before giving up


class _Pricing(Protocol):
    """What the solver asks of a family of columns."""

    masses: FloatArray

    def price(self, scores: FloatArray, levels: FloatArray, budget: int) -> tuple[FloatArray, list[Column]]: ...

    def more(self, master: ColumnMaster, point: ColumnPoint, first: list[Column]) -> list[Column]: ...

    def start(self, rng: np.random.Generator, count: int) -> list[Column]: ...

    def split(self, occupancy: FloatArray) -> list[Column]: ...


@dataclass
class _Run:
    """The solver's memory: the point is replaced only by a better finished one, so an interrupt finds it whole."""

    point: ColumnPoint
    history: list[IterationRecord]
    steps: int = 0
    oracle_calls: int = 0
    status: str = "iteration_limit"
    slow: int = 0  # iterations in a row without progress
    budget: int = 0  # columns to add


def solve_columns(
    problem: DesignProblem,
    *,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[NewtonState], object] | None,
    start: ArrayLike | None,
    seed: int,
    deadline: Deadline = NEVER,
) -> Design:
    """Solve the design problem of any MDP by column generation; arguments and result as in `newton`.

    In the states that the callback sees `support` counts the columns with weight, `oracle_calls` the pricing passes.
    """
    begun = time.perf_counter()
    mdp = problem.mdp
    by_paths = PathPricing.applies(mdp, _most_path_blocks(tolerance))
    pricing: _Pricing = PathPricing(mdp) if by_paths else PolicyPricing(mdp)
    master = ColumnMaster(problem, pricing.masses)
    first, calls = _first(problem, pricing, master, start, seed)
    budget = max(_SMALLEST_BUDGET, problem.dimension // 4)
    run = _Run(point=first, history=[], oracle_calls=calls, budget=budget)
    aim = tolerance
    try:
        for _ in range(_ATTEMPTS):
            _iterate(problem, pricing, master, run, aim, max_iterations, callback, begun, deadline)
            design = _certified(problem, run, begun)
            if run.status == "time_limit":
                return _closed(problem, design, tolerance)
            if run.status != "converged" or problem.converged(design.gap, design.value, tolerance):
                return design
            run.history.pop()  # the final certificate, of uncentred features, disagrees: go on
            aim /= 4.0
        return replace(design, status="stalled")
    except KeyboardInterrupt:
        if not run.history:
            raise
        run.status = "interrupted"
        return _certified(problem, run, begun)


def _most_path_blocks(tolerance: float) -> int:
    """Initial states up to which paths take less time than policies.

    A working set of paths grows with the initial states, each a block with a support of its own, one of policies with
    the digits that are asked for. They break even (CPU time, D and A, 200 to 3,000 states, 4 to 10 steps, d = 8 to 64)
    at about 6 initial states for a gap of 1e-3 of the gain and 24 for 1e-6.
    """
    digits = 6.0 if tolerance <= 1e-6 else max(0.0, -np.log10(tolerance))
    return max(1, int(_MOST_PATH_BLOCKS * 4.0 ** ((digits - 6.0) / 3.0) + 1e-9))


def _closed(problem: DesignProblem, design: Design, tolerance: float) -> Design:
    """A design that was cut short with the record of its certificate; its last steps may have been all it needed."""
    record = IterationRecord(design.iterations, design.value, design.gap, 0.0, 0.0)
    status = "converged" if problem.converged(design.gap, design.value, tolerance) else design.status
    return replace(design, status=status, history=(*design.history, record))


def _first(
    problem: DesignProblem, pricing: _Pricing, master: ColumnMaster, start: ArrayLike | None, seed: int
) -> tuple[ColumnPoint, int]:
    """The given start or a random sample; or uniform weights on the columns that it finds best, if they are better.

    Returns:
        The point, and how many pricing passes it took.
    """
    if start is None:
        sample = _sample(problem, pricing, master, seed)
    else:
        occupancy = np.array(start, dtype=np.float64)
        check_occupancy(problem, occupancy)
        columns = ColumnSet(problem.mdp, pricing.split(occupancy))
        sample = master.point(columns, _uniform(columns))
    if not np.isfinite(problem.baseline):  # the best columns alone need not reach every direction
        return sample, 0
    count = max(_SMALLEST_START, problem.dimension // 2)
    _, priced = pricing.price(master.scores(sample.local), np.full(len(pricing.masses), -np.inf), count)
    columns = ColumnSet(problem.mdp, priced)
    point = master.point(columns, _uniform(columns))
    return (point if point.value > sample.value else sample), 1


def _sample(problem: DesignProblem, pricing: _Pricing, master: ColumnMaster, seed: int) -> ColumnPoint:
    """Uniform weights on random columns through at least 2d nodes, more until the information is regular."""
    count = -(-2 * problem.dimension // problem.horizon)
    while True:
        columns = ColumnSet(problem.mdp, pricing.start(np.random.default_rng(seed), count))
        try:
            return master.point(columns, _uniform(columns))
        except SingularInformationError:  # no proper prior, and the sample does not reach every direction
            if count >= problem.horizon * problem.mdp.num_rows:
                break
            count *= 2
    # `DesignProblem` made sure that the uniform policy reaches every direction
    uniform = problem.mdp.occupancy(problem.mdp.uniform_policy())
    columns = ColumnSet(problem.mdp, pricing.split(uniform))
    return master.point(columns, _uniform(columns))


def _uniform(columns: ColumnSet) -> FloatArray:
    sizes = [own.stop - own.start for own in columns.slices]
    return np.repeat(1.0 / np.array(sizes), sizes)


def _iterate(
    problem: DesignProblem,
    pricing: _Pricing,
    master: ColumnMaster,
    run: _Run,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[NewtonState], object] | None,
    begun: float,
    deadline: Deadline,
) -> None:
    """Run the iterations; `run` is valid whenever an exception leaves."""
    while True:
        if deadline.passed:
            run.status = "time_limit"
            return
        started = time.perf_counter()
        point = run.point
        scores = master.scores(point.local)
        levels = master.levels(point, scores)
        best, columns = pricing.price(scores, levels, run.budget)
        run.oracle_calls += 1
        gap = float(np.maximum(best - levels, 0.0).sum())
        _note_progress(run, point.value, gap)
        if problem.converged(gap, point.value, tolerance):
            run.status = "converged"
        elif run.steps >= max_iterations:
            run.status = "iteration_limit"
        elif run.slow >= _PATIENCE:
            run.status = "stalled"
        elif callback is not None and callback(_state(problem, run, gap, started - begun)):
            run.status = "interrupted"
        else:
            more = [] if deadline.passed else pricing.more(master, point, columns)
            run.oracle_calls += len(more)
            wider = master.moved(point, ColumnSet(problem.mdp, [*point.support, *columns, *more]))
            run.point, step = master.improve(
                wider, target=_RESTRICTED_SHARE * gap, max_steps=_MASTER_STEPS, deadline=deadline
            )
            seconds = time.perf_counter() - started
            run.history.append(IterationRecord(run.steps, point.value, gap, step, seconds))
            run.steps += 1
            continue
        run.history.append(IterationRecord(run.steps, point.value, gap, 0.0, time.perf_counter() - started))
        return


def _note_progress(run: _Run, value: float, gap: float) -> None:
    """Count iterations that neither raised the objective beyond rounding nor lowered the gap; adapt the budget."""
    if not run.history:
        return
    last = run.history[-1]
    rounding = 8 * float(np.finfo(np.float64).eps) * max(1.0, abs(value))
    smallest = min(record.gap for record in run.history)
    run.slow = run.slow + 1 if value - last.value <= rounding and gap > 0.5 * smallest else 0
    if gap > 0.5 * last.gap:
        run.budget = max(run.budget, min(2 * run.budget, 2 * len(run.point.support)))


def _state(problem: DesignProblem, run: _Run, gap: float, seconds: float) -> NewtonState:
    point = run.point
    occupancy = point.occupancy
    occupancy.setflags(write=False)
    return NewtonState(
        iteration=run.steps,
        value=point.value,
        gap=gap,
        relative_gap=problem.relative_gap(gap, point.value),
        seconds=seconds,
        occupancy=occupancy,
        upper_bound=point.value + gap,
        support=len(point.support),
        oracle_calls=run.oracle_calls,
    )


def _certified(problem: DesignProblem, run: _Run, begun: float) -> Design:
    design = certify(
        problem,
        run.point.occupancy,
        status=run.status,
        solver="newton",
        iterations=run.steps,
        oracle_calls=run.oracle_calls,
        seconds=0.0,
        history=tuple(run.history),
    )
    return replace(design, seconds=time.perf_counter() - begun)
