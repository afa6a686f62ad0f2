"""Newton's method on a small working set, certified over all tokens: the fast solver of prompt problems.

A few hundred tokens carry the optimum, so `newton` keeps a working set of them. Each iteration prices every token
(`scores`, `screening`), which certifies the current point; adds those that would improve the design most, and drops
those without mass (`working_sets`); and solves the problem restricted to that by Newton's method with a quadratic
program over the simplices in every step (`steps`). The objective is concave in the weights once the mean is lifted away
(`objective`), so Newton's method converges quadratically; it rises in every iteration, so working sets never cycle.

Scores are computed in float32 on centred features; those that decide the gap are computed again in float64, at exactly
the returned weights. Where float32 hides what to add, the solver goes on with all scores in float64.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_count, check_tolerance
from edpbrl_gym.design.certificate import assemble
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.problem import Deadline, DesignProblem, IterationState, check_time_limit, naming_a_lost_prior
from edpbrl_gym.design.result import Design, IterationRecord, PriorBalance, check_occupancy
from edpbrl_gym.design.solvers.frank_wolfe import frank_wolfe
from edpbrl_gym.design.solvers.newton.scores import certified_gap
from edpbrl_gym.design.solvers.newton.tokens import PromptLayout
from edpbrl_gym.design.solvers.newton.working_sets import MANY, Effort, Point, WorkingSets
from edpbrl_gym.mdp import PromptMDP

__all__ = ["newton"]


_ITERATIONS = 200  # working sets at most
_FRANK_WOLFE_STEPS = (
    10_000  # of `frank_wolfe` at most: a millionth of the gain took it 30 to 1,340 on MDPs of 60 to 300 states
)
_SMALLEST_BUDGET = 64  # tokens to add at once, or a quarter of d where that is more
_RESTRICTED_SHARE = 0.1  # of the full gap, to which the restricted problem is solved
_STEPS = 10  # Newton steps on one working set
_GOAL, _GOALS = 0.8, 120  # goals are powers of the first, up to the second, of the gap
_PATIENCE = 3  # iterations without progress before giving up
_STUCK = 3  # iterations on one working set that do not halve the gap
_HIDDEN = 4.0  # allowances for the rounding of value and gap: a smaller gap is noise
_POOL = 20_000  # random tokens that are solved for first where there are many
_POOL_TOLERANCE, _POOL_ITERATIONS = 1e-3, 20  # of the pool's solution, which the other tokens will move anyway


@naming_a_lost_prior
def newton(
    problem: DesignProblem,
    *,
    tolerance: float = 1e-6,
    max_iterations: int | None = None,
    callback: Callable[[IterationState], object] | None = None,
    start: ArrayLike | None = None,
    seed: int = 0,
    time_limit: float | None = None,
) -> Design:
    """Solve the design problem by working-set Newton, with a certificate over all policies.

    It is a method for prompts: a problem with any other MDP goes to pairwise `frank_wolfe`, and the design says so in
    its warnings. While it runs, BLAS has one thread in the whole process: several slow small matrices down on a busy
    machine. The products over all tokens take as many threads as BLAS had.

    Args:
        problem: The problem. A criterion without a closed form (`Criterion.form`) takes 2 to 15 times as long.
        tolerance: Stop when gap / gain is at most this, over all policies in float64, and the certified efficiency at
            least 0.99 (1 - tolerance for a tolerance above 0.01). 0 goes on until float64 allows no more.
        max_iterations: Working sets at most; None takes 200 (of pairwise `frank_wolfe` 10,000 steps).
        callback: Called with an `IterationState` in every iteration and after every Newton step inside; a true return
            value stops ("interrupted").
        start: A feasible occupancy, shape (H, M); None takes uniform weights on the tokens that a random sample finds
            most informative.
        seed: Seed of that sample.
        time_limit: Seconds; then the solver stops, inside an iteration too, and returns the best design so far with its
            certificate, which takes one more pass over all rows ("time_limit"). None is no limit.

    Returns:
        The design: K identical occupancies. Its status is "converged" where its certificate meets the tolerance,
        whatever ended the run; else "iteration_limit", "time_limit", "interrupted" (by the callback, or by Ctrl-C once
        one iteration has been finished), "precision_reached": rounding allows no further progress; or "stalled": no
        progress, which rounding does not explain.

    Raises:
        TypeError: If the problem is no `DesignProblem`.
        ValueError: If an option is out of range, or the start is not feasible.
        SingularInformationError: If the information matrix of the start is singular.
    """
    begin = time.perf_counter()
    deadline = check_time_limit(time_limit)
    if not isinstance(problem, DesignProblem):
        raise TypeError(f"Expected a DesignProblem, got {type(problem).__name__}.")
    check_tolerance(tolerance)
    if max_iterations is not None:
        check_count(max_iterations, "max_iterations", minimum=0)
    if not isinstance(problem.mdp, PromptMDP):
        return _by_frank_wolfe(problem, tolerance, max_iterations, callback, start, time_limit)
    with one_blas_thread():
        solver = _Solver(problem, tolerance, _ITERATIONS if max_iterations is None else max_iterations, deadline)
        run = solver.first(start, seed)
        design, status = solver.solve(run, callback, begin)
    return replace(_finished(design, status, tolerance), seconds=time.perf_counter() - begin)


def _by_frank_wolfe(
    problem: DesignProblem,
    tolerance: float,
    max_iterations: int | None,
    callback: Callable[[IterationState], object] | None,
    start: ArrayLike | None,
    time_limit: float | None,
) -> Design:
    design = frank_wolfe(
        problem,
        tolerance=tolerance,
        max_iterations=_FRANK_WOLFE_STEPS if max_iterations is None else max_iterations,
        callback=callback,
        start=start,
        time_limit=time_limit,
        variant="pairwise",
    )
    kind = type(problem.mdp).__name__
    note = f"newton is for prompt MDPs: this problem with a {kind} was solved by pairwise Frank-Wolfe."
    return replace(design, warnings=(*design.warnings, note))


@dataclass
class _Run:
    """State of a run: only a better finished point replaces the point, so it is complete at any interrupt."""

    point: Point
    budget: int  # tokens to add at once
    oracle_calls: int = 0
    exact: bool = False  # all scores in float64
    history: list[IterationRecord] = field(default_factory=list)
    steps: int = 0
    status: str = ""
    slow: int = 0  # iterations in a row without progress

    def note_progress(self, gap: float) -> None:
        """Count iterations that neither raised the objective beyond rounding nor lowered the gap; adapt the budget."""
        if not self.history:
            return
        value, last = self.point.value, self.history[-1]
        rounding = 8 * float(np.finfo(np.float64).eps) * max(1.0, abs(value))
        smallest = min(record.gap for record in self.history)
        self.slow = self.slow + 1 if value - last.value <= rounding and gap > 0.5 * smallest else 0
        if gap > 0.5 * last.gap:
            self.budget *= 2

    def stuck(self, gap: float) -> bool:
        """Whether some iterations in a row have not halved the gap."""
        recent = self.history[-_STUCK:]
        return len(recent) == _STUCK and gap > 0.5 * recent[0].gap


class _Solver:
    """Runs of working-set Newton on one problem; arguments as in `newton`."""

    def __init__(self, problem: DesignProblem, tolerance: float, max_iterations: int, deadline: Deadline) -> None:
        self._problem = problem
        self._tolerance = tolerance
        self._max_iterations = max_iterations
        self._deadline = deadline
        self._layout = PromptLayout(problem)
        self._sets = WorkingSets(problem, self._layout.tokens)

    def first(self, start: ArrayLike | None, seed: int) -> _Run:
        """Where to begin: the start, a good design of a sample, or of many tokens a nearly optimal one of a pool."""
        if start is not None:
            occupancy = np.array(start, dtype=np.float64)
            check_occupancy(self._problem, occupancy)
            weights = self._layout.weights(occupancy)
            tokens = np.flatnonzero(weights)
            return self._run(self._sets.point(tokens, weights[tokens]))
        rng = np.random.default_rng(seed)
        count = len(self._sets.tokens)
        if count <= MANY:
            return self._run(self._sets.first(rng), oracle_calls=1)
        size = _POOL
        while True:
            try:
                return self._run(self._from_pool(self._sets.tokens.sample(size, rng), seed))
            except SingularInformationError:  # no proper prior, and the pool does not reach every direction
                if size >= count:
                    raise
                size *= 2

    def _from_pool(self, pool: np.ndarray, seed: int) -> Point:
        """Weights on all tokens that are nearly optimal on some."""
        sets = WorkingSets(self._problem, self._sets.tokens.restricted(pool))
        run = self._run(sets.first(np.random.default_rng(seed)))
        self.iterate(sets, run, _POOL_TOLERANCE, _POOL_ITERATIONS, lambda *_: False)
        point = run.point
        return self._sets.point(pool[point.support], point.weights[point.weights > 0])

    def _run(self, point: Point, oracle_calls: int = 0) -> _Run:
        return _Run(point, max(_SMALLEST_BUDGET, self._problem.dimension // 4), oracle_calls)

    def solve(self, run: _Run, callback: Callable[[IterationState], object] | None, begin: float) -> tuple[Design, str]:
        """The certified design of a run, and what ended it; `begin` is the time when the solver was called."""

        def observe(point: Point, bound: float, step: int) -> bool:
            if callback is None:
                return False
            return bool(callback(self._state(run, point, bound, step, time.perf_counter() - begin)))

        aim = self._tolerance
        try:
            for attempt in itertools.count(1):
                self.iterate(self._sets, run, aim, self._max_iterations, observe)
                design = self._certified(run)
                if run.status != "converged" or self._problem.converged(design.gap, design.value, self._tolerance):
                    break
                if attempt > 1 or run.exact:
                    run.status = "stalled"
                    break
                run.exact = True  # once more with all scores in float64
                aim /= 4.0  # the rest is for rounding
        except KeyboardInterrupt:
            if not run.history:
                raise
            run.status = "interrupted"
            design = self._certified(run)
        return design, run.status

    def iterate(
        self,
        sets: WorkingSets,
        run: _Run,
        tolerance: float,
        max_iterations: int,
        observe: Callable[[Point, float, int], bool],
    ) -> None:
        """Run the iterations; `run` is valid whenever an exception leaves.

        A run that ends inside an iteration (by an exception, the deadline or the observer) has a point that has not
        been priced, and no record of it. ``observe`` is called with a point, an upper bound of the objective and the
        number of Newton steps since the last pricing, in every iteration that goes on and after every Newton step; a
        true return value stops.
        """
        problem, deadline = self._problem, self._deadline
        while True:
            if deadline.passed:
                run.status = "time_limit"
                return
            began, value = time.perf_counter(), run.point.value
            prices = sets.price(run.point, exact=run.exact)
            run.oracle_calls += 1
            gap = prices.gap
            run.note_progress(gap)
            if problem.converged(gap, value, tolerance):
                run.status = "converged"
            elif run.steps >= max_iterations:
                run.status = "iteration_limit"
            elif run.slow >= _PATIENCE and run.exact:
                run.status = "stalled"
            elif observe(run.point, value + gap, 0):
                run.status = "interrupted"
            else:
                if run.slow >= _PATIENCE:  # perhaps float32 hides what to add
                    run.exact, run.slow = True, 0
                watch = _Watch(value + gap, observe)
                effort = Effort(
                    target=_RESTRICTED_SHARE * gap,
                    goal=_goal(problem, gap, value, tolerance),
                    max_steps=_STEPS,
                    by_factors=run.exact or run.stuck(gap),
                    deadline=deadline,
                )
                run.point, step = sets.advanced(run.point, prices, budget=run.budget, effort=effort, observe=watch)
                run.history.append(IterationRecord(run.steps, value, gap, step, time.perf_counter() - began))
                run.steps += 1
                if not watch.stopped:
                    continue
                run.status = "interrupted"
                return
            run.history.append(IterationRecord(run.steps, value, gap, 0.0, time.perf_counter() - began))
            return

    def _certified(self, run: _Run) -> Design:
        """The design of a run, its gap from scores in float64."""
        problem, point, sets = self._problem, run.point, self._sets
        gap, rounding = certified_gap(
            problem, sets.oracle, point.objective, point.weights, point.value, alternative=sets.by_information
        )
        balance = PriorBalance.of(
            problem, learned=point.objective.learned(point.weights), trace=point.objective.trace(point.weights)
        )
        return assemble(
            problem,
            self._layout.occupancy(point.objective.tokens, point.weights),
            value=point.value,
            gap=gap,
            rounding=rounding,
            balance=balance,
            solver="newton",
            status=run.status,
            iterations=run.steps,
            oracle_calls=run.oracle_calls,
            seconds=0.0,
            history=tuple(run.history),
        )

    def _state(self, run: _Run, point: Point, bound: float, step: int, seconds: float) -> IterationState:
        gap = max(0.0, bound - point.value)
        return IterationState(
            iteration=run.steps,
            value=point.value,
            gap=gap,
            relative_gap=self._problem.relative_gap(gap, point.value),
            seconds=seconds,
            occupancy=self._layout.occupancy(point.objective.tokens, point.weights),
            step=step,
        )


class _Watch:
    """Counts the Newton steps of an iteration, shows them to an observer and remembers whether it stopped them."""

    def __init__(self, bound: float, observe: Callable[[Point, float, int], bool]) -> None:
        self._bound, self._observe = bound, observe
        self._steps = 0
        self.stopped = False

    def __call__(self, point: Point) -> bool:
        self._steps += 1
        self.stopped = self._observe(point, self._bound, self._steps)
        return self.stopped


def _goal(problem: DesignProblem, gap: float, value: float, tolerance: float) -> float:
    """About the largest gap with which a design of this value would have converged; 0 if no gap would do."""
    powers = range(1, _GOALS + 1)
    first = bisect_left(powers, True, key=lambda power: problem.converged(_GOAL**power * gap, value, tolerance))
    return _GOAL ** powers[first] * gap if first < len(powers) else 0.0


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
