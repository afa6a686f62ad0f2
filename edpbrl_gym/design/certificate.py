"""The certificate of occupancies: evaluated from scratch, or computed by the solver itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, read_only
from edpbrl_gym.design import information
from edpbrl_gym.design.chunks import row_chunks
from edpbrl_gym.design.criteria import cholesky
from edpbrl_gym.design.diagnostics import PriorBalance, design_warnings, prior_balance
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, IterationRecord, check_occupancies, mean_rows
from edpbrl_gym.design.rounding import EXACT, Rounding, factor_condition, rounding_of

__all__ = ["assemble", "certify"]


def certify(
    problem: DesignProblem,
    occupancies: ArrayLike,
    *,
    status: str,
    solver: str,
    iterations: int,
    oracle_calls: int,
    seconds: float,
    history: tuple[IterationRecord, ...] = (),
) -> Design:
    """Evaluate occupancies from scratch in float64 and wrap them with their certificate.

    The gap comes from the gradient at exactly these occupancies and from value iteration over all policies.

    Args:
        problem: The problem.
        occupancies: Occupancies of the K policies, shape (K, H, M), or one for all of them, shape (H, M).
        status: Status to report.
        solver: Name to report.
        iterations: Steps taken.
        oracle_calls: Calls of value iteration, without the one here.
        seconds: Time taken.
        history: Records of the iterations.

    Returns:
        The design, with warnings.

    Raises:
        ValueError: If an occupancy is not feasible.
    """
    distinct = _policies(problem, occupancies)
    check_occupancies(problem, distinct)
    rows = mean_rows(problem, distinct)
    centre = information.common_centre(problem.features, rows)
    data = information.surrogate_information(problem.features, rows, problem.episodes, centre=centre)
    value, curvature = problem.criterion.evaluate(data + problem.prior)
    means = information.mean_features(problem.features, rows, centre)
    reward = information.gradient(problem.features, rows, curvature, problem.episodes, centre=centre)
    _, best = problem.mdp.best_response(reward)
    balance = prior_balance(problem, rows, data=data)
    gap = max(0.0, best - float(np.vdot(reward, rows)))
    rounding = rounding_of(
        problem,
        condition=factor_condition(cholesky(data + problem.prior), means, np.full(len(means), problem.episodes)),
        value=value,
        learned=balance.learned,
        reward=float(np.vdot(curvature, data)) + gap,  # the mean score, and what the best exceeds it by
        magnitude=_magnitude(problem, means, curvature, centre),
    )
    return assemble(
        problem,
        distinct,
        value=value,
        gap=gap,
        rounding=rounding,
        status=status,
        solver=solver,
        iterations=iterations,
        oracle_calls=oracle_calls + 1,
        seconds=seconds,
        history=history,
        balance=balance,
    )


def _magnitude(problem: DesignProblem, means: Floats, curvature: Floats, centre: Floats) -> float:
    """Size of the terms of z' G z in the largest sum over the steps; |G_ij| is at most sqrt(G_ii G_jj)."""
    diagonal = np.diag(curvature)
    largest = max(float((rows**2 @ diagonal).max()) for _, rows in row_chunks(problem.features, None, centre))
    return problem.episodes * (problem.horizon * largest + float((means**2 @ diagonal).sum()))


def assemble(
    problem: DesignProblem,
    occupancies: ArrayLike,
    *,
    value: float,
    gap: float,
    status: str,
    solver: str,
    iterations: int,
    oracle_calls: int,
    seconds: float,
    history: tuple[IterationRecord, ...] = (),
    balance: PriorBalance | None = None,
    rounding: Rounding = EXACT,
) -> Design:
    """Make a design of occupancies and a certificate that the solver has computed itself, in float64.

    Where no answer can say anything (`DesignProblem.uninformative`) the value is the one without data, and the gap 0.
    Nothing is computed over rows without mass: `certify` is for solvers that have no certificate of their own.

    Args:
        problem: The problem.
        occupancies: Occupancies of the K policies, shape (K, H, M), or one for all of them, shape (H, M). Policies or
            steps that are the same may be broadcast (stride 0), and stay so.
        value: Objective of their mean.
        gap: max over all policies of <gradient at their mean, d - dbar>.
        status: Status to report.
        solver: Name to report.
        iterations: Steps taken.
        oracle_calls: Calls of the linear oracle.
        seconds: Time taken.
        history: Records of the iterations.
        balance: `prior_balance` of their mean; None computes it.
        rounding: What rounding may hide of gap and value, which the certificate then allows for; none where they
            come from a certificate that does.

    Returns:
        The design, with warnings.

    Raises:
        ValueError: If an occupancy is not feasible, or the gap is negative or NaN.
    """
    if not gap >= 0:
        raise ValueError(f"Expected a gap >= 0, got {gap}.")
    distinct = _policies(problem, occupancies)
    check_occupancies(problem, distinct)
    if problem.uninformative:
        value, gap, rounding = problem.baseline, 0.0, EXACT
    gap += rounding.gap
    upper_bound = value + gap + rounding.value
    return Design(
        problem=problem,
        occupancies=read_only(np.broadcast_to(distinct, (problem.num_policies, *distinct.shape[1:]))),
        value=value,
        upper_bound=upper_bound,
        gap=gap,
        gain=float(value - problem.baseline),
        relative_gap=float(problem.relative_gap(gap, value)),
        efficiency=problem.criterion.efficiency(value, upper_bound, problem.dimension),
        status=status,
        solver=solver,
        iterations=iterations,
        oracle_calls=oracle_calls,
        seconds=seconds,
        history=history,
        warnings=design_warnings(problem, mean_rows(problem, distinct), balance=balance),
        rounding=rounding.gap,
    )


def _policies(problem: DesignProblem, occupancies: ArrayLike) -> Floats:
    """Occupancies as an array (K, H, M), or (1, H, M) for all policies."""
    array = np.asarray(occupancies, dtype=np.float64)
    policies = array[None] if array.ndim == 2 else array
    if policies.ndim != 3 or policies.shape[0] not in (1, problem.num_policies):
        raise ValueError(f"Expected occupancies (K, H, M) with K = {problem.num_policies}, got shape {array.shape}.")
    return policies[:1] if policies.strides[0] == 0 else policies
