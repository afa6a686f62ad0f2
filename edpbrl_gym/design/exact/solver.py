"""K different policies by block ascent on the exact expected information, with certified bounds.

The surrogate (paper, Eq. 6) depends on the K policies only through their mean, so its solvers return K identical ones,
and K independent draws from one policy give only (K - 1)/K of what the surrogate promises. The exact expectation

    I(d_1, ..., d_K) = Lambda + (T/K^2) sum_h [ (K-1) sum_q S_q - sum_{q != p} m_q m_p' ]

is larger where the policies' means differ. It is affine in each policy, so with the others fixed every policy has a
concave problem (`block`); `exact_design` improves them in turn, from several starts. This finds a local
maximum. How good it is follows from bounds that hold for all policies:

- the surrogate's optimum bounds every way of producing the K options, independent draws or not;
- independent draws are bounded more tightly (`independent_bound`): with Cov the mean over q of the policies'
  covariances and between the covariance of their means, summed over the steps,

      I = M + (T/K) between,   M = Lambda + T (K-1)/K (Cov + between),

  where M is what K identical policies with the same mean get, between has rank r <= sum_h min(K-1, N_h - 1) for the
  N_h rows of step h, and (T/K) between <= M/(K-1). So different policies gain at most a factor K/(K-1) in r
  directions of theta, 6 (K-1) of hundreds in a six-step prompt, over the best identical ones:

      D:     s(I) <= max s(M) + r log(K/(K-1)),
      A, V:  s(I) <= max s(M) + (1/K) sum of the r largest eigenvalues of B' Lambda^-1 B,    V = B B'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.design.certificate import assemble
from edpbrl_gym.design.criteria import DCriterion, SingularInformationError
from edpbrl_gym.design.deadline import check_time_limit
from edpbrl_gym.design.diagnostics import PriorBalance
from edpbrl_gym.design.exact.ascent import Ascent, PolicyPoint
from edpbrl_gym.design.exact.block import Local
from edpbrl_gym.design.exact.bounds import BOUND_TOLERANCE, best_identical, independent_bound
from edpbrl_gym.design.exact.result import ExactDesign, StartRecord, expected_data, surrogate_data
from edpbrl_gym.design.exact.starts import STARTS, clustered, random_policies, tilted
from edpbrl_gym.design.lost_prior import naming_a_lost_prior
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, IterationRecord, check_occupancy
from edpbrl_gym.design.solvers.newton import newton

__all__ = ["ExactDesign", "ExactState", "StartRecord", "exact_design"]


@dataclass(frozen=True)
class ExactState:
    """State that a callback of `exact_design` receives after every sweep.

    Attributes:
        start: Number of the start, from 0.
        name: Its name, "given" for occupancies.
        sweep: Sweeps over all policies finished from this start.
        value: Exact objective now.
        best: Largest value of all starts so far.
        block_gap: Sum over the policies of what each alone could still gain, a bound, when it was its turn.
        upper_bound: The certified bound.
        seconds: Time since the beginning.
    """

    start: int
    name: str
    sweep: int
    value: float
    best: float
    block_gap: float
    upper_bound: float
    seconds: float


@dataclass
class _Run:
    """The best finished point so far; it is complete at any interrupt."""

    begin: float
    upper_bound: float
    points: list[PolicyPoint]
    value: float
    records: list[StartRecord] = field(default_factory=list)
    history: list[IterationRecord] = field(default_factory=list)
    best: int = -1

    def offer(self, points: list[PolicyPoint], value: float) -> None:
        if value > self.value:
            self.points, self.value = points, value


@naming_a_lost_prior
def exact_design(
    problem: DesignProblem,
    *,
    starts: str | Sequence[str | Floats] = ("clusters", "clusters", "random"),
    tolerance: float = 1e-4,
    max_sweeps: int = 50,
    seed: int = 0,
    callback: Callable[[ExactState], object] | None = None,
    surrogate: Design | None = None,
    time_limit: float | None = None,
) -> ExactDesign:
    """Maximise the exact expected information over K policies by block ascent from several starts.

    Args:
        problem: A problem with any finite-horizon MDP and the criterion A, V or D.
        starts: Where to begin: occupancies of the K policies, arrays (K, H, M), or names, which may be repeated.
            "clusters" splits the best identical policy, each step's rows, into K clusters of equal mass; "surrogate"
            tilts it a little in K random directions; "random" takes deterministic policies, each the best for a random
            taste.
        tolerance: A start has converged when a sweep has raised the objective by at most this share of its gain over
            no data (of d for D, of |value| for A and V where that is less).
        max_sweeps: Sweeps over all policies at most, from each start.
        seed: Seed of the starts; start number i has the same randomness whatever the others are.
        callback: Called with an `ExactState` after every sweep; a true return value stops.
        surrogate: The surrogate's optimum of this problem, if it is known already (`newton`).
        time_limit: Seconds, those of the bounds included; then the best policies so far are returned with the bounds as
            far as they are known ("time_limit"). None is no limit.

    Returns:
        The best policies of all starts, never worse than the best identical ones. `design.status` is that of the
        best start, "converged" or "sweep_limit", or "time_limit", or "interrupted" (by the callback, or by Ctrl-C once
        the bounds are known); `block_gap` says what changing one policy alone could still gain.

    Raises:
        TypeError: If the problem is no `DesignProblem`.
        ValueError: If the criterion is not A, V or D, an option is out of range, a start is unknown or not feasible,
            or the surrogate's optimum is that of another problem.
    """
    deadline = check_time_limit(time_limit)
    check_number(tolerance, "tolerance", minimum=0.0)
    check_count(max_sweeps, "max_sweeps", minimum=0)
    check_count(seed, "seed", minimum=0)
    origins = [_checked_start(problem, start) for start in ([starts] if isinstance(starts, str) else starts)]
    if not origins:
        raise ValueError(f"Expected at least one start, got none; name some of {', '.join(STARTS)}.")
    begin = time.perf_counter()
    if surrogate is None:
        surrogate = newton(problem, tolerance=BOUND_TOLERANCE, time_limit=deadline.left)
    elif surrogate.problem is not problem and surrogate.problem.fingerprint != problem.fingerprint:
        raise ValueError("Expected the surrogate's optimum of this problem, got that of another; leave it out.")
    with one_blas_thread():
        identical = best_identical(problem, surrogate, deadline.left)
        ascent = Ascent(problem, deadline)
        run = _Run(begin, surrogate.upper_bound, *_best_known(ascent, (surrogate, identical)))
        status = _climb_all(ascent, run, origins, identical, tolerance, max_sweeps, seed, callback)
        return _result(ascent, run, status, surrogate, identical)


def _checked_start(problem: DesignProblem, start: str | Floats) -> str | Floats:
    if not isinstance(problem, DesignProblem):
        raise TypeError(f"Expected a DesignProblem, got {type(problem).__name__}.")
    if isinstance(start, str):
        if start not in STARTS:
            raise ValueError(f"Expected a start among {', '.join(STARTS)}, or occupancies (K, H, M), got {start!r}.")
        return start
    occupancies = np.array(start, dtype=np.float64)
    expected = (problem.num_policies, problem.mdp.horizon, problem.mdp.num_pairs)
    if occupancies.shape != expected:
        raise ValueError(f"Expected a start of shape (K, H, M) = {expected}, got {occupancies.shape}.")
    for occupancy in occupancies:
        check_occupancy(problem, occupancy)
    return occupancies


def _best_known(ascent: Ascent, designs: Sequence[Design]) -> tuple[list[PolicyPoint], float]:
    """The design of identical policies with the largest exact objective, and that."""
    candidates = [[ascent.point(design.mean_occupancy)] * ascent.problem.num_policies for design in designs]
    values = [ascent.value(points) for points in candidates]
    best = int(np.argmax(values))
    return candidates[best], values[best]


def _climb_all(
    ascent: Ascent,
    run: _Run,
    starts: list[str | Floats],
    identical: Design,
    tolerance: float,
    max_sweeps: int,
    seed: int,
    callback: Callable[[ExactState], object] | None,
) -> str:
    """Climb from every start; the best start's status."""
    statuses: list[str] = []
    try:
        for number, start in enumerate(starts):
            if ascent.deadline.passed:
                return "time_limit"
            rng = np.random.default_rng([seed, number])
            points = _first(ascent, start, identical.mean_occupancy, rng)
            name = start if isinstance(start, str) else "given"
            before = run.value
            status = _climb(ascent, run, points, number, name, tolerance, max_sweeps, callback)
            if run.value > before:
                run.best = len(statuses)
            statuses.append(status)
            if status in ("interrupted", "time_limit"):
                return status
    except KeyboardInterrupt:
        return "interrupted"
    return statuses[max(run.best, 0)]


def _first(ascent: Ascent, start: str | Floats, identical: Floats, rng: np.random.Generator) -> list[PolicyPoint]:
    """The policies of a start; mixed with the best identical one where their information is singular."""
    problem = ascent.problem
    mdp, count = problem.mdp, problem.num_policies
    if not isinstance(start, str):
        occupancies = start
    elif start == "random":
        occupancies = random_policies(mdp, ascent.features, count, rng)
    else:
        point = ascent.point(identical)
        local = Local.at(ascent.information([point] * count), ascent.target)
        make = clustered if start == "clusters" else tilted
        occupancies = make(mdp, ascent.features, identical, local.score_factor(), count, rng)
    points = [ascent.point(occupancy) for occupancy in occupancies]
    try:
        ascent.value(points)
    except SingularInformationError:
        points = [ascent.point(0.5 * (occupancy + identical)) for occupancy in occupancies]
    return points


def _climb(
    ascent: Ascent,
    run: _Run,
    points: list[PolicyPoint],
    number: int,
    name: str,
    tolerance: float,
    max_sweeps: int,
    callback: Callable[[ExactState], object] | None,
) -> str:
    """Improve the policies in turn until none can gain much; returns the status."""
    problem, count = ascent.problem, len(points)
    started = time.perf_counter()
    value = ascent.value(points)
    values, history, first, sweep, status = [], [], value, 0, "sweep_limit"
    run.offer(points, value)
    for sweep in range(1, max_sweeps + 1):
        begin, before, gap = time.perf_counter(), value, 0.0
        target = 0.5 * tolerance * _unit(problem, value) / count
        for policy in range(count):
            if ascent.deadline.passed:
                status = "time_limit"
                break
            new_points, own_gap = ascent.improved(points, policy, target=target)
            gap += own_gap
            new_value = ascent.value(new_points)
            if new_value > value:  # not where only rounding has changed
                points, value = new_points, new_value
            values.append(value)
        run.offer(points, value)
        history.append(IterationRecord(sweep - 1, before, run.upper_bound - before, 1.0, time.perf_counter() - begin))
        seconds = time.perf_counter() - run.begin
        state = ExactState(number, name, sweep, value, run.value, gap, run.upper_bound, seconds)
        stop = callback is not None and callback(state)
        if status != "time_limit" and value - before <= tolerance * _unit(problem, value):
            status = "converged"
        if stop:
            status = "interrupted"
        if status != "sweep_limit":
            break
    run.records.append(StartRecord(name, first, value, sweep, status, tuple(values), time.perf_counter() - started))
    if value == run.value:
        run.history = history
    return status


def _unit(problem: DesignProblem, value: float) -> float:
    """What tolerances are relative to: the gain over no data, or what a whole efficiency is worth if that is less.

    With a weak prior the gain is so large that a small share of it says little: then it is d for D, |value| for A, V.
    """
    scale = float(problem.dimension) if isinstance(problem.criterion, DCriterion) else abs(value)
    return min(scale, value - problem.baseline)


def _result(ascent: Ascent, run: _Run, status: str, surrogate: Design, identical: Design) -> ExactDesign:
    """Evaluate the best policies from scratch, with all bounds."""
    problem = ascent.problem
    count = problem.num_policies
    occupancies = np.stack([point.occupancy for point in run.points])
    data = expected_data(problem, occupancies)
    matrix = data + problem.prior
    value = problem.criterion.value(matrix)
    learned = problem.dimension - float(np.vdot(problem.prior, DCriterion().gradient(matrix)))
    design = assemble(
        problem,
        occupancies,
        value=value,
        gap=max(0.0, surrogate.upper_bound - value),
        status=status,
        solver="exact",
        iterations=sum(record.sweeps for record in run.records),
        oracle_calls=ascent.oracle_calls + surrogate.oracle_calls + identical.oracle_calls,
        seconds=time.perf_counter() - run.begin,
        history=tuple(run.history),
        balance=PriorBalance.of(problem, learned=max(learned, 0.0), trace=float(np.trace(data))),
    )
    return ExactDesign(
        design=design,
        surrogate=surrogate,
        identical_value=problem.criterion.value(surrogate_data(problem, surrogate) + problem.prior),
        best_identical=identical,
        independent_bound=independent_bound(ascent, surrogate, identical),
        block_gap=max(ascent.gap(run.points, policy) for policy in range(count)),
        starts=tuple(run.records),
    )
