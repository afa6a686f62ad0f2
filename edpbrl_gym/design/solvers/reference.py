"""The design problem through cvxpy: slow, independent of Frank-Wolfe, accurate to about 1e-6; for small problems.

The information matrix is not affine in the occupancy, but its lift to the rows (phi_n ; e_h) is:

    M(d) = [[ sum_h Phi' diag(d_h) Phi + Lambda / T,  m' ], [ m,  I_H ]],     m_h = Phi' d_h,

with log det I = log det M + d log T and I^-1 = (M^-1)_11 / T (Schur complement). So log det I is one log-det and
-tr B' I^-1 B one linear matrix inequality (`cvxpy.matrix_frac`), over occupancies that satisfy the flow equations.

A criterion of which cvxpy has no expression (`Criterion.cvxpy_objective`) is maximised by a sequence of these traces:
with G its gradient at I_k, the trace with B B' = I_k G I_k has the same gradient there, so towards its best design the
criterion rises, and the best point on the way is the next (`exact_step`). Where nothing rises both have the same
optimum: the certified gap was below 1e-5 of the gain after 3 to 45 such steps.

Needs the extra ``edpbrl-gym[reference]``; cvxpy is imported inside the functions.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from edpbrl_gym._arrays import Floats, positive_semidefinite_factor
from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.design.certificate import certify
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.criteria.trace import TraceCriterion
from edpbrl_gym.design.problem import Deadline, DesignProblem, IterationState, check_time_limit
from edpbrl_gym.design.result import Design
from edpbrl_gym.design.solvers.frank_wolfe import Moments
from edpbrl_gym.design.solvers.line_search import Segment, exact_step

__all__ = ["MAX_ENTRIES", "MAX_LIFTED_DIMENSION", "reference"]


MAX_LIFTED_DIMENSION = 64  # d + H; Clarabel takes about a minute at 45
# tighter than the defaults, which leave gaps of about 1e-5 of the gain
_SETTINGS: dict[str, dict[str, Any]] = {
    "CLARABEL": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    "SCS": {"eps": 1e-8, "max_iters": 100_000},
}
_TIME_LIMITS = {"CLARABEL": "time_limit", "SCS": "time_limit_secs"}
_TRACES = 50  # solved at most for a criterion that cvxpy has no expression of
_TOLERANCE, _ACCEPTED = 1e-6, 1e-4  # relative gaps at which they end, and up to which that is "converged"
MAX_ENTRIES = 20_000_000  # pairs x (d + H)^2, the dense linear map from occupancies to the lifted matrix


def reference(
    problem: DesignProblem,
    *,
    solver: str = "CLARABEL",
    callback: Callable[[IterationState], object] | None = None,
    time_limit: float | None = None,
) -> Design:
    """Solve a small design problem with cvxpy.

    The solver's occupancy is clipped, made exactly feasible by extracting its policy, and then certified like any
    other: value and gap are those of the returned design.

    Args:
        problem: The problem.
        solver: "CLARABEL" (accurate) or "SCS" (larger problems, less accurate).
        callback: Called once, with an `IterationState` of the design at the end: cvxpy reports no iterations.
        time_limit: Seconds; then the solver's last point is certified, or the uniform policy where that is better
            ("time_limit"). cvxpy looks at it once it has written the problem down. None is no limit.

    Returns:
        The design, K identical occupancies; status "converged", "time_limit", or "inaccurate" when the solver said so
        or a sequence of traces ended with a gap above 1e-4 of the gain.

    Raises:
        ImportError: If cvxpy is not installed.
        ValueError: If the problem is too large.
        RuntimeError: If the solver fails.
    """
    deadline = check_time_limit(time_limit)
    check_choice_of(solver, "solver", tuple(_SETTINGS))
    check_installed(Need("cvxpy", "the reference solver"))
    import cvxpy

    start = time.perf_counter()
    mdp = problem.mdp
    reachable = np.flatnonzero(mdp.occupancy(mdp.uniform_policy()))  # into (H, M); no policy uses any other pair
    _check_size(problem, reachable.size)
    task = _Task(cvxpy, problem, reachable, solver, deadline)
    best = mdp.occupancy(mdp.uniform_policy())
    objective = problem.criterion.cvxpy_objective(cvxpy, task.lifted, problem.dimension)
    if objective is None:
        best, status, iterations = _by_traces(problem, task, best)
    else:
        answer = task.solve(objective)
        status, iterations = answer.status, answer.iterations
        if answer.occupancy is not None:
            if status != "time_limit" or _value(problem, answer.occupancy) > _value(problem, best):
                best = answer.occupancy
    design = certify(
        problem,
        best,
        status=status,
        solver=f"cvxpy {solver}",
        iterations=iterations,
        oracle_calls=0,
        seconds=time.perf_counter() - start,
    )
    if callback is not None:
        callback(
            IterationState(
                iteration=design.iterations,
                value=design.value,
                gap=design.gap,
                relative_gap=design.relative_gap,
                seconds=design.seconds,
                occupancy=design.occupancies[0],
            )
        )
    return design


class _Answer(NamedTuple):
    occupancy: Floats | None  # (H, M), made exactly feasible; None if the solver gave none
    status: str  # of the design
    iterations: int


class _Task:
    """The constraints, and objectives over them solved in turn; arguments as in `reference`."""

    def __init__(
        self, cvxpy: Any, problem: DesignProblem, reachable: NDArray[np.intp], solver: str, deadline: Deadline
    ) -> None:
        self.deadline = deadline
        self._cvxpy, self._problem, self._solver, self._reachable = cvxpy, problem, solver, reachable
        self._masses = cvxpy.Variable(reachable.size, nonneg=True)
        self.lifted = _lifted_matrix(cvxpy, problem, self._masses, reachable)
        balance, inflow = _flow_equations(problem, reachable)
        self._constraints = [balance @ self._masses == inflow]

    def solve(self, objective: Any, *, quiet: bool = False) -> _Answer:
        """Solve for an objective; `quiet` keeps to itself that a solution may be inaccurate."""
        task: Any = self._cvxpy.Problem(objective, self._constraints)
        status = _solve(self._cvxpy, task, self._solver, self.deadline, quiet=quiet)
        iterations = 0 if task.solver_stats is None else int(task.solver_stats.num_iters or 0)
        if self._masses.value is None:
            return _Answer(None, status, iterations)
        mdp = self._problem.mdp
        measure = np.zeros(mdp.horizon * mdp.num_pairs)
        measure[self._reachable] = np.maximum(self._masses.value, 0.0)
        policy = mdp.policy_from_occupancy(measure.reshape(mdp.horizon, mdp.num_pairs))
        return _Answer(mdp.occupancy(policy), status, iterations)

    def trace(self, factor: Floats) -> Any:
        """The objective -tr(B' I^-1 B) for a factor B."""
        return TraceCriterion(factor).cvxpy_objective(self._cvxpy, self.lifted, self._problem.dimension)


def _by_traces(problem: DesignProblem, task: _Task, start: Floats) -> tuple[Floats, str, int]:
    """The best occupancy by a sequence of traces, the design's status and the number of traces."""
    point = Moments.of(problem, start)
    count, relative = 0, np.inf
    for count in range(_TRACES + 1):
        information = point.information(problem)
        value, gradient = problem.criterion.evaluate(information)
        reward = problem.gradient(point.rows)
        gap = problem.mdp.best_response(reward)[1] - float(np.vdot(reward, point.rows))
        relative = problem.relative_gap(max(0.0, gap), value)
        if relative <= _TOLERANCE or count == _TRACES:
            break
        factor = information @ positive_semidefinite_factor(gradient, "gradient")
        try:
            answer = task.solve(task.trace(factor), quiet=True)
        except RuntimeError:
            if count == 0:
                raise
            break
        if answer.occupancy is None or answer.status == "time_limit":
            return point.occupancy, "time_limit", count
        change = Moments.of(problem, answer.occupancy).minus(point)
        segment = Segment(information, point.means, change.second, change.means, problem.episodes, 1.0)
        moved = Moments.of(problem, point.moved(change, exact_step(problem.criterion, segment)).occupancy)
        if not _value(problem, moved.occupancy) > value:
            break
        point = moved
    return point.occupancy, "converged" if relative <= _ACCEPTED else "inaccurate", count


def _solve(cvxpy: Any, task: Any, solver: str, deadline: Deadline, *, quiet: bool) -> str:
    """Run the solver for the time that is left; the design's status."""
    options = dict(_SETTINGS[solver])
    if deadline.left is not None:
        if deadline.passed:
            return "time_limit"
        # what writing the problem down will take is not known before; 1e-3: SCS takes 0 for no limit
        options[_TIME_LIMITS[solver]] = max(1e-3, deadline.left)
    try:
        with warnings.catch_warnings():
            if quiet or deadline.left is not None:  # "may be inaccurate": it is certified below, whatever it is
                warnings.simplefilter("ignore", UserWarning)
            task.solve(solver=solver, **options)
    except cvxpy.error.SolverError as error:
        if deadline.passed:
            return "time_limit"
        raise RuntimeError(f"cvxpy with {solver} failed: {error}; try the other of CLARABEL and SCS.") from error
    if task.status == "user_limit" or (task.status == "optimal_inaccurate" and deadline.passed):
        return "time_limit"
    if task.status not in ("optimal", "optimal_inaccurate"):
        raise RuntimeError(f"Expected cvxpy with {solver} to solve the problem, it ended with status {task.status}.")
    return "converged" if task.status == "optimal" else "inaccurate"


def _value(problem: DesignProblem, occupancy: Floats) -> float:
    """The objective; -inf where the information is singular."""
    try:
        return problem.objective(problem.mdp.row_occupancy(occupancy))
    except SingularInformationError:
        return -np.inf


def _check_size(problem: DesignProblem, pairs: int) -> None:
    lifted = problem.dimension + problem.horizon
    if lifted > MAX_LIFTED_DIMENSION or pairs * lifted**2 > MAX_ENTRIES:
        raise ValueError(
            f"Expected a problem with d + H <= {MAX_LIFTED_DIMENSION} and pairs x (d + H)^2 <= {MAX_ENTRIES:,} for "
            f"cvxpy, got d + H = {lifted} and {pairs:,} pairs ({pairs * lifted**2:,}); use frank_wolfe, or fewer "
            f"features or tokens."
        )


def _lifted_matrix(cvxpy: Any, problem: DesignProblem, masses: Any, reachable: NDArray[np.intp]) -> Any:
    """The lifted matrix M / T as an affine expression of the masses of the reachable (step, pair)."""
    dimension, horizon = problem.dimension, problem.horizon
    step, pair = np.divmod(reachable, problem.mdp.num_pairs)
    # every row has one step, so a common part of the features drops out of det M and of (M^-1)_11
    rows = problem.rows(problem.mdp.pair_row[pair]) - problem.features.mean(axis=0, dtype=np.float64)
    products = (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
    second = cvxpy.reshape(products.T @ masses, (dimension, dimension), order="C")
    means = []
    for h in range(horizon):
        at_step = step == h
        means.append(rows[at_step].T @ masses[np.flatnonzero(at_step)])
    cross = cvxpy.vstack(means)
    top = second + problem.prior / problem.episodes
    return cvxpy.bmat([[top, cross.T], [cross, np.eye(horizon)]])


def _flow_equations(problem: DesignProblem, reachable: NDArray[np.intp]) -> tuple[sparse.csr_array, Floats]:
    """Flow equations of the occupancy polytope: sum_a d^0(s, a) = rho(s), sum_a d^h(s, a) = sum d^{h-1} P(s | .)."""
    mdp = problem.mdp
    leaves = sparse.csr_array(
        (np.ones(mdp.num_pairs), (mdp.pair_state, np.arange(mdp.num_pairs))), shape=(mdp.num_states, mdp.num_pairs)
    )
    blocks: list[list[Any]] = [[None] * mdp.horizon for _ in range(mdp.horizon)]
    for h in range(mdp.horizon):
        blocks[h][h] = leaves
        if h:
            blocks[h][h - 1] = -mdp.transitions.T
    inflow = np.zeros(mdp.horizon * mdp.num_states)
    inflow[: mdp.num_states] = mdp.initial
    equations = sparse.csr_array(sparse.block_array(blocks, format="csc")[:, reachable])
    used = np.flatnonzero(np.diff(equations.indptr))  # an equation of an unreachable state reads 0 = 0
    return sparse.csr_array(equations[used]), inflow[used]
