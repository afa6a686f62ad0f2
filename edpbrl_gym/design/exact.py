"""K different policies by block-coordinate Frank-Wolfe on the exact expected information, with a certified bound.

The surrogate (paper, Eq. 6) depends on the K policies only through their mean, so its solvers return K identical ones,
and K independent draws from one policy give only (K - 1)/K of what the surrogate promises. The exact expectation

    I(d_1, ..., d_K) = Lambda + (T/K^2) sum_h [ (K-1) sum_q S_q - sum_{q != p} m_q m_p' ]

is larger where the policies' mean features m_q differ. It holds no square of a single m_q, so it is affine in each
policy, and with the others fixed each has a concave problem, whose gradient is a reward for value iteration:

    r_h(phi) = (T/K^2) [ (K-1) phi' G phi - 2 phi' G sum_{p != q} m_p ],    G = ds/dI.

The policies take steps of pairwise Frank-Wolfe in turn, with exact line search (Lacoste-Julien, Jaggi, Schmidt and
Pletscher, "Block-coordinate Frank-Wolfe optimization for structural SVMs", 2013). Where the sum over the policies of
max_d <r, d - d_q> is 0 no policy alone can gain to first order: a local maximum, as a rule. How good it is says the
certificate: the surrogate's optimum bounds every way of producing the K options.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from edpbrl_gym._arrays import Floats, read_only
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_count, check_tolerance
from edpbrl_gym.design import information
from edpbrl_gym.design.certificate import assemble
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.problem import Deadline, DesignProblem, IterationState, check_time_limit, naming_a_lost_prior
from edpbrl_gym.design.result import Design, IterationRecord, prior_balance
from edpbrl_gym.design.solvers.frank_wolfe import Moments
from edpbrl_gym.design.solvers.line_search import ActiveSet, Segment, exact_step
from edpbrl_gym.design.solvers.newton import newton

__all__ = ["exact_design"]

_BOUND_TOLERANCE = 1e-6  # relative gap of the surrogate's optimum, which is the bound
_NUDGE = 0.1  # weight of the policy that K equal ones are moved towards


@dataclass
class _Run:
    """State of a run; a policy is replaced only by a finished one, so it is complete at any interrupt."""

    policies: list[Moments]
    history: list[IterationRecord] = field(default_factory=list)
    oracle_calls: int = 0
    status: str = "iteration_limit"


@naming_a_lost_prior
def exact_design(
    problem: DesignProblem,
    *,
    max_iterations: int = 50,
    tolerance: float = 1e-4,
    callback: Callable[[IterationState], object] | None = None,
    surrogate: Design | None = None,
    time_limit: float | None = None,
) -> Design:
    """Maximise the exact expected information over K policies, from a split of the best identical one.

    Args:
        problem: A problem with any finite-horizon MDP.
        max_iterations: Steps of each policy at most.
        tolerance: Stop when all policies together can gain at most this share of the gain over no data, each by itself
            and to first order. What the policies share at the start reaches most of it; in many dimensions steps add
            little, and all are taken.
        callback: Called with an `IterationState` in every iteration, whose gap is the one of ``tolerance``; a true
            return value stops ("interrupted").
        surrogate: The surrogate's optimum of this problem, if it is known already (`newton`).
        time_limit: Seconds, those of the surrogate's optimum included; then the best policies so far are returned
            ("time_limit"). None is no limit.

    Returns:
        The policies, never worse than the surrogate's optimum played K times. `value` is the exact expectation,
        `upper_bound` the surrogate's, and `gap` the distance of the two.

    Raises:
        ValueError: If an option is out of range, or the surrogate's optimum is that of another problem.
    """
    deadline = check_time_limit(time_limit)
    check_tolerance(tolerance)
    check_count(max_iterations, "max_iterations", minimum=0)
    begin = time.perf_counter()
    if surrogate is None:
        surrogate = newton(problem, tolerance=_BOUND_TOLERANCE, time_limit=deadline.left)
    elif surrogate.problem is not problem and surrogate.problem.fingerprint != problem.fingerprint:
        raise ValueError("Expected the surrogate's optimum of this problem, got that of another; leave it out.")
    with one_blas_thread():
        copies = [Moments.of(problem, surrogate.mean_occupancy)] * problem.num_policies
        run = _Run(_first(problem, surrogate.mean_occupancy, copies))
        try:
            _iterate(problem, run, max_iterations, tolerance, callback, deadline)
        except KeyboardInterrupt:
            run.status = "interrupted"
        best = max(copies, run.policies, key=lambda policies: problem.criterion.value(_information(problem, policies)))
        occupancies = np.stack([policy.occupancy for policy in best])
        rows = problem.mdp.row_occupancy(occupancies)
        data = information.exact_information(problem.features, rows, problem.episodes)
        value = problem.criterion.value(data + problem.prior)
    return assemble(
        problem,
        occupancies,
        value=value,
        gap=max(0.0, surrogate.upper_bound - value),
        status=run.status,
        solver="exact",
        iterations=sum(record.step > 0 for record in run.history),
        oracle_calls=run.oracle_calls + surrogate.oracle_calls,
        seconds=time.perf_counter() - begin,
        history=tuple(run.history),
        balance=prior_balance(problem, rows.mean(axis=0), data=data),
    )


def _iterate(
    problem: DesignProblem,
    run: _Run,
    max_iterations: int,
    tolerance: float,
    callback: Callable[[IterationState], object] | None,
    deadline: Deadline,
) -> None:
    """Let the policies take steps in turn; `run` is valid whenever an exception leaves."""
    begin = time.perf_counter()
    atoms = [ActiveSet(policy.occupancy) for policy in run.policies]
    for iteration in range(max_iterations + 1):
        started = time.perf_counter()
        if deadline.passed:
            run.status = "time_limit"
            return
        value = problem.criterion.value(_information(problem, run.policies))
        gap, step = 0.0, 0.0
        for index in range(len(run.policies)):
            policy_gap, policy_step = _advance(problem, run, atoms[index], index, move=iteration < max_iterations)
            gap, step = gap + policy_gap, max(step, policy_step)
        run.history.append(IterationRecord(iteration, value, gap, step, time.perf_counter() - started))
        mean = read_only(np.mean([policy.occupancy for policy in run.policies], axis=0))
        state = IterationState(iteration, value, gap, problem.relative_gap(gap, value), started - begin, mean)
        if callback is not None and callback(state):
            run.status = "interrupted"
            return
        if problem.converged(gap, value, tolerance):
            run.status = "converged"
            return


def _advance(problem: DesignProblem, run: _Run, atoms: ActiveSet, index: int, *, move: bool) -> tuple[float, float]:
    """Move one policy by an exact pairwise step, the others as they are; returns its gap before, and the step."""
    mdp, count = problem.mdp, problem.num_policies
    policy = run.policies[index]
    matrix = _information(problem, run.policies)
    curvature = problem.criterion.gradient(matrix)
    others = np.sum([other.means for number, other in enumerate(run.policies) if number != index], axis=0)
    unit = problem.episodes / count**2
    # the mean of the others takes the place of the policy's own, of which the surrogate's gradient has a square
    reward = information.row_scores(problem.features, others / (count - 1), curvature, unit * (count - 1))
    best_policy, best = mdp.best_response(reward)
    run.oracle_calls += 1
    gap = max(0.0, best - float(np.vdot(reward, mdp.row_occupancy(policy.occupancy))))
    if not move:
        return gap, 0.0
    away, longest = atoms.worst(reward[:, mdp.pair_row])
    vertex = mdp.occupancy(best_policy)
    source, target = Moments.of(problem, atoms.occupancy(away)), Moments.of(problem, vertex)
    cross = (target.means - source.means).T @ others
    segment = Segment(
        information=matrix,
        means=np.zeros((0, problem.dimension)),  # the information is affine: nothing bends along the segment
        moment_change=unit * ((count - 1) * (target.second - source.second) - cross - cross.T),
        mean_change=np.zeros((0, problem.dimension)),
        episodes=1.0,
        longest=longest,
    )
    step = exact_step(problem.criterion, segment)
    atoms.shift(away, vertex, step)
    run.policies[index] = Moments.of(problem, atoms.mean())
    return gap, step


def _information(problem: DesignProblem, policies: list[Moments]) -> Floats:
    """Exact expected information with the prior, shape (d, d)."""
    count = len(policies)
    total = np.sum([policy.means for policy in policies], axis=0)
    squares = np.sum([policy.means.T @ policy.means for policy in policies], axis=0)
    second = np.sum([policy.second for policy in policies], axis=0)
    return np.asarray(
        problem.prior + problem.episodes / count**2 * ((count - 1) * second - (total.T @ total - squares))
    )


def _first(problem: DesignProblem, occupancy: Floats, copies: list[Moments]) -> list[Moments]:
    """K policies that share what one shows among them.

    Where an action decides only what is shown later they can't share the actions of a step; then each is moved a
    little towards its share by value iteration, as K copies of the best are a saddle point.
    """
    mdp = problem.mdp
    matrix = _information(problem, copies)
    shares = _shares(problem, occupancy, problem.criterion.gradient(matrix))
    split = [mdp.occupancy(mdp.policy_from_occupancy(occupancy * share[:, mdp.pair_row])) for share in shares]
    policies = [Moments.of(problem, part) for part in split]
    try:
        if problem.criterion.value(_information(problem, policies)) > problem.criterion.value(matrix):
            return policies
    except SingularInformationError:
        pass
    best = [mdp.occupancy(mdp.best_response(share)[0]) for share in shares]
    return [Moments.of(problem, (1.0 - _NUDGE) * occupancy + _NUDGE * vertex) for vertex in best]


def _shares(problem: DesignProblem, occupancy: Floats, curvature: Floats) -> Floats:
    """Share of each policy in the rows of each step, shape (K, H, N): equal masses, in the order of one direction.

    The direction is the one in which the rows spread most in the metric of the gradient G: the exact information has
    all of the spread between the policies, and (K - 1)/K of the spread within.
    """
    mdp, count = problem.mdp, problem.num_policies
    values, vectors = np.linalg.eigh(curvature)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    shares = np.zeros((count, mdp.horizon, mdp.num_rows))
    for step, masses in enumerate(mdp.row_occupancy(occupancy)):
        shown = np.flatnonzero(masses)
        weights = masses[shown]
        spread = problem.rows(shown) @ factor
        spread -= weights @ spread / weights.sum()
        direction = np.linalg.eigh(spread.T @ (weights[:, None] * spread))[1][:, -1]
        order = np.argsort(spread @ direction, kind="stable")
        ends = np.cumsum(weights[order]) / weights.sum()
        starts = np.concatenate(([0.0], ends[:-1]))
        widths = ends - starts  # 0 where a mass is lost in the sum: such a row is shared by all
        for index in range(count):
            overlap = np.maximum(np.minimum(ends, (index + 1) / count) - np.maximum(starts, index / count), 0.0)
            share = np.divide(overlap, widths, out=np.full(len(widths), 1.0 / count), where=widths > 0)
            shares[index, step, shown[order]] = share
    return shares
