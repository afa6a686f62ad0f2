"""Newton's method on a small working set, certified over everything: the fast solver of every design problem.

A few hundred tokens (or paths, or policies) carry the optimum, so the solvers behind `newton` keep a working set of
them, solve the problem restricted to it by Newton's method with a quadratic program over the simplex in every step,
score everything else with the gradient, add what would improve the design most, and stop when nothing does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.design.criteria import ACriterion, DCriterion, VCriterion
from edpbrl_gym.design.deadline import check_time_limit
from edpbrl_gym.design.lost_prior import naming_a_lost_prior
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design
from edpbrl_gym.design.solvers.newton.columns.solver import ColumnSolver
from edpbrl_gym.design.solvers.newton.tokens.backend import ArrayBackend, NumpyBackend, make_backend
from edpbrl_gym.design.solvers.newton.tokens.solver import TokenSolver
from edpbrl_gym.design.solvers.newton.working_set import solve_by_working_sets
from edpbrl_gym.design.solvers.state import NewtonState
from edpbrl_gym.mdp import PromptMDP

__all__ = ["newton"]


@naming_a_lost_prior
def newton(
    problem: DesignProblem,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
    callback: Callable[[NewtonState], object] | None = None,
    start: ArrayLike | None = None,
    seed: int = 0,
    backend: str | ArrayBackend = "numpy",
    time_limit: float | None = None,
) -> Design:
    """Solve the design problem by working-set Newton, with a certificate over all policies.

    Tokens form the working set of a `PromptMDP`, paths or policies that of any other MDP. While it runs, BLAS has one
    thread in the whole process: several slow small matrices down on a busy machine. The products over all tokens take
    as many threads as BLAS had.

    Args:
        problem: A problem with any finite-horizon MDP and the criterion A, V or D.
        tolerance: Stop when gap / gain is at most this, over all policies in float64, and the certified efficiency at
            least 0.99 (1 - tolerance for a tolerance above 0.01). 0 goes on until float64 allows no more.
        max_iterations: Working sets at most.
        callback: Called with a `NewtonState` in every iteration and after every Newton step inside; a true return value
            stops ("interrupted").
        start: A feasible occupancy, shape (H, M); None takes uniform weights on the tokens or paths that a random
            sample finds most informative, or the uniform policy where transitions are stochastic.
        seed: Seed of that sample.
        backend: Where the products over all tokens of a `PromptMDP` run: "numpy", "torch" (on the CPU), "torch:cuda",
            "torch:cuda:1", or an `ArrayBackend`. All give the same design to rounding. The small matrices are numpy's
            in any case, and so is all of any other MDP, for which other backends are refused.
        time_limit: Seconds; then the solver stops, inside an iteration too, and returns the best design so far with its
            certificate, which takes one more pass over all rows ("time_limit"). None is no limit.

    Returns:
        The design: K identical occupancies. Its status is "converged" where its certificate meets the tolerance,
        whatever ended the run; else "iteration_limit", "time_limit", "interrupted" (by the callback, or by Ctrl-C once
        one iteration has been finished), "precision_reached": rounding allows no further progress; or "stalled": no
        progress, which rounding does not explain.

    Raises:
        TypeError: If the problem is no `DesignProblem`.
        ImportError: If the backend needs torch, which is not installed.
        ValueError: If the criterion is not A, V or D, an option is out of range, the start is not feasible, the backend
            is unknown or not for this MDP, or its device is missing.
        SingularInformationError: If the information matrix of the start is singular.
    """
    begin = time.perf_counter()
    deadline = check_time_limit(time_limit)
    _check(problem)
    check_number(tolerance, "tolerance", minimum=0.0)
    check_count(max_iterations, "max_iterations", minimum=0)
    native = make_backend(backend)
    by_tokens = isinstance(problem.mdp, PromptMDP)
    if not by_tokens and not isinstance(native, NumpyBackend):
        raise ValueError(
            f'Expected the backend "numpy" for a problem with a {type(problem.mdp).__name__}, got {native.name!r}; '
            "other backends are for problems with a PromptMDP."
        )
    options: dict[str, Any] = {
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "callback": callback,
        "start": start,
        "seed": seed,
        "deadline": deadline,
        "begin": begin,
    }
    with one_blas_thread():
        if by_tokens:
            return solve_by_working_sets(TokenSolver.of(problem, native), **options)
        return solve_by_working_sets(ColumnSolver(problem, tolerance), **options)


def _check(problem: DesignProblem) -> None:
    advice = "use frank_wolfe, which takes any criterion"
    if not isinstance(problem, DesignProblem):
        raise TypeError(f"Expected a DesignProblem, got {type(problem).__name__}.")
    if not isinstance(problem.criterion, (ACriterion, VCriterion, DCriterion)):
        raise ValueError(f"newton expects the criterion A, V or D, got {problem.criterion.name!r}; {advice}.")
