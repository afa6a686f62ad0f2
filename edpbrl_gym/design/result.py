"""The result of a solver: occupancies with a certificate."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats, read_only
from edpbrl_gym.design import information
from edpbrl_gym.design.chunks import row_chunks
from edpbrl_gym.design.criteria import cholesky
from edpbrl_gym.design.diagnostics import (
    PriorBalance,
    design_warnings,
    distinct_steps,
    prior_balance,
    support_size,
)
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.rounding import EXACT, Rounding, factor_condition, rounding_of
from edpbrl_gym.mdp import PromptMDP

__all__ = [
    "Design",
    "IterationRecord",
    "assemble",
    "certified",
    "certify",
    "check_occupancies",
    "check_occupancy",
    "identical",
]


_FEASIBILITY_TOLERANCE = 1e-8


def certified(efficiency: float) -> str:
    """An efficiency in percent, rounded down: a certificate must not promise more than was proved."""
    return f"{np.floor(efficiency * 1e4) / 1e2:.2f}%"


class IterationRecord(NamedTuple):
    """One iteration of a solver.

    Attributes:
        iteration: Number of the iteration, from 0.
        value: Objective at its start.
        gap: Gap at its start, without the allowance for rounding that the design's has.
        step: Step size it took; 0 for the last one, which only evaluates.
        seconds: Time it took.
    """

    iteration: int
    value: float
    gap: float
    step: float
    seconds: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Design:
    """Occupancies of K policies with a certificate of how far from optimal they are.

    Attributes:
        problem: The problem that it answers.
        occupancies: Occupancy of each policy, shape (K, H, M), read-only; where policies or steps are the same they
            may share their memory (stride 0).
        value: Objective of the mean occupancy; for the solver "exact" the exact expectation.
        upper_bound: value + gap and an allowance for the rounding of the value (about eps times its condition number,
            see `rounding`); no policies have a larger objective.
        gap: max over all policies of <gradient, d - dbar>, absolute, with an allowance for its rounding in float64; for
            the solver "exact" the distance to the upper bound that the surrogate gives.
        gain: value minus the value without data; inf if the prior is singular.
        relative_gap: gap / gain (see `DesignProblem.relative_gap`).
        efficiency: Certified lower bound on the efficiency (see `Criterion.efficiency`).
        status: "converged", "iteration_limit", "time_limit", "interrupted" (by the callback or Ctrl-C),
            "precision_reached" (float64 allows no further progress), or another word of the solver.
        solver: Name of the solver.
        iterations: Steps taken.
        oracle_calls: Calls of the linear oracle (value iteration).
        seconds: Wall-clock time.
        history: One record for each iteration.
        warnings: What to know before asking these questions (see `design_warnings`).
        rounding: The allowance for rounding in the gap.
    """

    problem: DesignProblem
    occupancies: Floats
    value: float
    upper_bound: float
    gap: float
    gain: float
    relative_gap: float
    efficiency: float
    status: str
    solver: str
    iterations: int
    oracle_calls: int
    seconds: float
    history: tuple[IterationRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    rounding: float = 0.0

    @property
    def mean_occupancy(self) -> Floats:
        """Mean of the K occupancies, shape (H, M)."""
        return np.array(_mean(self.occupancies))

    @property
    def mean_rows(self) -> Floats:
        """Mean occupancy of the feature rows, shape (H, N)."""
        return self.problem.mdp.row_occupancy(_mean(self.occupancies))

    @property
    def policies(self) -> Floats:
        """The K policies pi_h(a | s) by marginalisation, shape (K, H, M)."""
        if identical(self.occupancies):
            single = self.problem.mdp.policy_from_occupancy(self.occupancies[0])
            return np.broadcast_to(single, self.occupancies.shape)
        return np.stack([self.problem.mdp.policy_from_occupancy(occupancy) for occupancy in self.occupancies])

    @property
    def support(self) -> tuple[NDArray[np.intp], ...]:
        """For each step the rows that the design shows at all, most likely first."""
        steps = []
        for mass in distinct_steps(_mean_rows(self.problem, self.occupancies)):
            rows = np.flatnonzero(mass)
            steps.append(rows[np.argsort(-mass[rows], kind="stable")])
        return tuple(steps * (self.problem.horizon // len(steps)))

    def summary(self) -> str:
        """Text for a terminal: problem, certificate, support and warnings."""
        problem = self.problem
        size = support_size(problem, _mean_rows(problem, self.occupancies))
        prior = "a given precision matrix" if problem.regularization is None else f"lambda = {problem.regularization:g}"
        lines = [
            f"Design by {self.solver}: {self.status} after {self.iterations} iterations ({self.seconds:.2f} s)",
            f"  problem      {problem.criterion.name}-optimal, K = {problem.num_policies} policies, T = "
            f"{problem.episodes} episodes, H = {problem.horizon} steps, {problem.mdp.num_rows} rows x "
            f"{problem.dimension} features, prior {prior}",
            f"  value        {self.value:.6f} (no data: {problem.baseline:.6f}, gain {self.gain:.6g})",
            f"  optimum      at most {self.upper_bound:.6f}: gap {self.gap:.3g}, {self.relative_gap:.3g} of the gain",
            f"  efficiency   at least {certified(self.efficiency)}",
            f"  support      effectively {', '.join(f'{value:.1f}' for value in size.effective)} of "
            f"{', '.join(str(count) for count in size.available)} rows at the steps",
        ]
        lines += [f"  warning      {message}" for message in self.warnings]
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the design to a file (npz with JSON inside), atomically. The problem is stored as a hash only.

        Returns:
            The path as given.
        """
        from edpbrl_gym.design.storage import save_design

        return save_design(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], problem: DesignProblem) -> Design:
        """Read a design and check that it belongs to the problem.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged, not a saved design, or of another problem.
        """
        from edpbrl_gym.design.storage import load_design

        return load_design(path, problem)


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
    rows = _mean_rows(problem, distinct)
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
        warnings=design_warnings(problem, _mean_rows(problem, distinct), balance=balance),
        rounding=rounding.gap,
    )


def _policies(problem: DesignProblem, occupancies: ArrayLike) -> Floats:
    """Occupancies as an array (K, H, M), or (1, H, M) for all policies."""
    array = np.asarray(occupancies, dtype=np.float64)
    policies = array[None] if array.ndim == 2 else array
    if policies.ndim != 3 or policies.shape[0] not in (1, problem.num_policies):
        raise ValueError(f"Expected occupancies (K, H, M) with K = {problem.num_policies}, got shape {array.shape}.")
    return policies[:1] if policies.strides[0] == 0 else policies


def check_occupancies(problem: DesignProblem, occupancies: Floats) -> None:
    """`check_occupancy` for each of several, shape (K, H, M)."""
    for occupancy in occupancies:
        check_occupancy(problem, occupancy)


def check_occupancy(problem: DesignProblem, occupancy: Floats) -> None:
    """Raise ValueError unless an array (H, M) is the occupancy of some policy (it satisfies the flow equations)."""
    mdp = problem.mdp
    expected = (mdp.horizon, mdp.num_pairs)
    if occupancy.shape != expected:
        raise ValueError(f"Expected an occupancy of shape (H, M) = {expected}, got {occupancy.shape}.")
    advice = "start from mdp.occupancy(policy) of a policy (the all-zero start of the paper's Alg. 2 is not feasible)"
    if not np.isfinite(occupancy).all() or occupancy.min() < 0 or occupancy[~mdp.admissible].any():
        raise ValueError(f"Expected a non-negative occupancy on admissible pairs only; {advice}.")
    off = mdp.flow_violation(occupancy)
    if off > _FEASIBILITY_TOLERANCE:
        raise ValueError(f"Expected a feasible occupancy, this one violates the flow equations by {off:.3g}; {advice}.")


def identical(occupancies: Floats) -> bool:
    """Whether occupancies (K, H, M) are those of one policy."""
    return occupancies.strides[0] == 0 or bool((occupancies == occupancies[:1]).all())


def _mean(occupancies: Floats) -> Floats:
    # the mean of equal numbers is not always that number in floating point
    return occupancies[0] if identical(occupancies) else np.asarray(occupancies.mean(axis=0))


def _mean_rows(problem: DesignProblem, occupancies: Floats) -> Floats:
    """Mean occupancy of the feature rows, shape (H, N), without a copy where rows are pairs."""
    mean = _mean(occupancies)
    return mean if isinstance(problem.mdp, PromptMDP) else problem.mdp.row_occupancy(mean)
