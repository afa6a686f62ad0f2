"""Bounds of exact designs; the mathematics is in the text of `exact`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import cho_solve

from edpbrl_gym.design.certificate import assemble
from edpbrl_gym.design.criteria import DCriterion, SingularInformationError, cholesky
from edpbrl_gym.design.exact.ascent import Ascent
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design
from edpbrl_gym.design.solvers.newton import newton

__all__ = ["BOUND_TOLERANCE", "best_identical", "independent_bound"]

BOUND_TOLERANCE = 1e-6  # of the two surrogate problems behind the bounds


def best_identical(problem: DesignProblem, surrogate: Design, time_limit: float | None = None) -> Design:
    """The best identical policies: their exact information is the surrogate's with T (K-1)/K episodes.

    s(T (K-1)/K S + Lambda) = s((K-1)/K (T S + K/(K-1) Lambda)): the surrogate with a larger prior, its value shifted
    by d log((K-1)/K) for D and scaled by K/(K-1) for A and V. `time_limit` as in `newton`.
    """
    count = problem.num_policies
    share = (count - 1.0) / count
    if not problem.prior.any():
        design = surrogate
    elif problem.prior_precision is None:
        scaled = replace(problem, regularization=float(problem.regularization or 0.0) / share)
        design = newton(scaled, tolerance=BOUND_TOLERANCE, start=surrogate.mean_occupancy, time_limit=time_limit)
    else:
        scaled = replace(problem, prior_precision=problem.prior_precision / share)
        design = newton(scaled, tolerance=BOUND_TOLERANCE, start=surrogate.mean_occupancy, time_limit=time_limit)

    def translated(value: float) -> float:
        if isinstance(problem.criterion, DCriterion):
            return value + problem.dimension * float(np.log(share))
        return value / share

    value = translated(design.value)
    return assemble(
        problem,
        design.occupancies,
        value=value,
        gap=translated(design.upper_bound) - value,
        status=design.status,
        solver="newton, identical policies",
        iterations=design.iterations,
        oracle_calls=design.oracle_calls,
        seconds=design.seconds,
        history=design.history,
    )


def independent_bound(ascent: Ascent, surrogate: Design, best_identical: Design) -> float:
    """Bound for K independent policies; see the module."""
    problem = ascent.problem
    count = problem.num_policies
    rank = min(problem.dimension, sum(min(count - 1, rows - 1) for rows in problem.mdp.available_rows()))
    if ascent.target is None:
        allowance = rank * float(np.log(count / (count - 1.0)))
    else:
        try:
            factor = cholesky(problem.prior)
        except SingularInformationError:
            return surrogate.upper_bound
        without_data = ascent.target.T @ cho_solve((factor, True), ascent.target, check_finite=False)
        allowance = float(np.linalg.eigvalsh(without_data)[::-1][:rank].sum()) / count
    return min(surrogate.upper_bound, best_identical.upper_bound + allowance)
