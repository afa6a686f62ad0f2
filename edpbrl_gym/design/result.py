"""The result of a solver: occupancies with a certificate."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.diagnostics import distinct_steps, support_size
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.mdp import PromptMDP

__all__ = [
    "Design",
    "IterationRecord",
    "certified",
    "check_occupancies",
    "check_occupancy",
    "identical",
    "mean_rows",
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
        for mass in distinct_steps(mean_rows(self.problem, self.occupancies)):
            rows = np.flatnonzero(mass)
            steps.append(rows[np.argsort(-mass[rows], kind="stable")])
        return tuple(steps * (self.problem.horizon // len(steps)))

    def summary(self) -> str:
        """Text for a terminal: problem, certificate, support and warnings."""
        problem = self.problem
        size = support_size(problem, mean_rows(problem, self.occupancies))
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


def mean_rows(problem: DesignProblem, occupancies: Floats) -> Floats:
    """Mean of occupancies (K, H, M) over the policies by feature rows, shape (H, N); no copy where rows are pairs."""
    mean = _mean(occupancies)
    return mean if isinstance(problem.mdp, PromptMDP) else problem.mdp.row_occupancy(mean)
