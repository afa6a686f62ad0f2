"""The result of a solver: occupancies with a certificate, its file, and whether it is worth asking.

A certificate says how close a design is to the optimum of its objective, not whether the objective makes sense. Two
ways in which it does not were seen with the paper's own settings (unit-norm features, lambda = 100, T = 60): the
prior outweighs all answers together, and the V-design then asks about ten tokens a step again and again; for
low-noise users it was worse than asking at random. Then a design has warnings.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats, read_only, row_chunks
from edpbrl_gym._files import reading, replacing
from edpbrl_gym._validation import check_array
from edpbrl_gym.design.criteria import SingularInformationError, cholesky, inverse
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.mdp import PromptMDP

__all__ = [
    "COLLAPSED_SHARE",
    "PRIOR_DOMINATED_SHARE",
    "SUPPORT_MASS",
    "Design",
    "IterationRecord",
    "PriorBalance",
    "SupportSize",
    "certified",
    "check_occupancies",
    "check_occupancy",
    "describe_design",
    "design_warnings",
    "distinct_steps",
    "identical",
    "mean_rows",
    "prior_balance",
    "support_size",
]


PRIOR_DOMINATED_SHARE = 0.1  # warn below: the data determine less than a tenth of what could be learned
COLLAPSED_SHARE = 0.5  # warn below: effective rows per direction that could be learned
_ROUNDING = 1e-13  # a spread below this share of the second moment is none
SUPPORT_MASS = 1e-3  # a row with more mass than this at a step counts as shown
_FEASIBILITY_TOLERANCE = 1e-8  # of the flow equations, absolute
_FORMAT = "edpbrl-gym design 1"
_FORMAT_ONE_STEP = "edpbrl-gym design 2"  # the occupancies of one step stand for all steps
_NUMBERS = ("value", "upper_bound", "gap", "gain", "relative_gap", "efficiency", "seconds")
_STORED = (*_NUMBERS, "status", "solver", "iterations", "oracle_calls", "warnings", "rounding")


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
        target = Path(path)
        occupancies = self.occupancies
        document: dict[str, Any] = {name: getattr(self, name) for name in _STORED}
        stored = occupancies[:1] if identical(occupancies) else occupancies
        one_step = stored.shape[1] > 1 and stored.strides[1] == 0
        document["format"] = _FORMAT_ONE_STEP if one_step else _FORMAT
        document["problem"] = self.problem.fingerprint
        document["num_policies"] = self.problem.num_policies
        document["history"] = [list(record) for record in self.history]
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as part, open(part, "wb") as file:
            np.savez_compressed(
                file, occupancies=stored[:, :1] if one_step else stored, document=np.array(json.dumps(document))
            )
        return target

    @staticmethod
    def load(path: str | os.PathLike[str], problem: DesignProblem) -> Design:
        """Read a design and check that it belongs to the problem.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged, not a saved design, or of another problem.
        """
        source = Path(path)
        if not source.is_file():
            raise FileNotFoundError(f"Expected a saved design at {source}, found no such file.")
        with reading(f"a design saved by Design.save ({_FORMAT})", source):
            stored, document = _read(source)
            if document["problem"] == problem.fingerprint:
                return _restored(problem, stored, document)
        raise ValueError(
            f"The design in {source} was made for another problem (MDP, features, K, T, prior or criterion "
            f"differ); load it with the problem that it was saved with, or solve this one."
        )


def _read(source: Path) -> tuple[Floats, dict[str, Any]]:
    """Arrays and document of a saved design; ValueError for any other file."""
    with np.load(source, allow_pickle=False) as archive:
        stored = archive["occupancies"]
        document = json.loads(str(archive["document"]))
    if document["format"] not in (_FORMAT, _FORMAT_ONE_STEP):
        raise ValueError(f"format {document['format']!r}")
    return check_array(stored, "occupancies", shape=("K", "H", "M")), document


def _restored(problem: DesignProblem, stored: Floats, document: dict[str, Any]) -> Design:
    """A design of its file's contents, checked to be one of the problem."""
    occupancies = np.broadcast_to(stored, (problem.num_policies, problem.horizon, problem.mdp.num_pairs))
    check_occupancies(problem, occupancies[: len(stored)])
    fields = {key: document[key] for key in document if key not in ("format", "problem", "num_policies")}
    for name in _NUMBERS:
        fields[name] = float(fields[name])
    fields["history"] = tuple(
        IterationRecord(int(n), value, gap, step, seconds) for n, value, gap, step, seconds in fields["history"]
    )
    fields["warnings"] = tuple(fields["warnings"])
    return Design(problem=problem, occupancies=read_only(occupancies), **fields)


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


@dataclass(frozen=True)
class PriorBalance:
    """Weight of the data of a design against the prior.

    Attributes:
        learned: Effective number of parameters that the data determine, tr(I_data (I_data + Lambda)^-1), in [0, d].
        share: learned / d.
        data_per_dimension: tr(I_data) / d.
        prior_per_dimension: tr(Lambda) / d; lambda for an isotropic prior.
    """

    learned: float
    share: float
    data_per_dimension: float
    prior_per_dimension: float

    @classmethod
    def of(cls, problem: DesignProblem, *, learned: float, trace: float) -> PriorBalance:
        """From tr(I_data (I_data + Lambda)^-1) and tr(I_data), which a solver may have at hand.

        With z the tokens less their mean, both are sums over the support: sum_i T w_i z_i' I^-1 z_i (for D the mean
        score under the weights) and sum_i T w_i ||z_i||^2, over all steps.
        """
        dimension = problem.dimension
        return cls(learned, learned / dimension, trace / dimension, float(np.trace(problem.prior)) / dimension)


@dataclass(frozen=True)
class SupportSize:
    """How many rows a design shows at each step.

    Attributes:
        effective: exp(entropy) of the rows at each step: the number of equally likely rows it amounts to.
        shown: Rows with mass above `SUPPORT_MASS` at each step.
        available: Rows that some policy reaches at each step.
    """

    effective: tuple[float, ...]
    shown: tuple[int, ...]
    available: tuple[int, ...]


def describe_design(design: Design) -> dict[str, Any]:
    """Numbers and warnings of a design for reports, JSON-able; "support" is the effective rows of each step."""
    problem = design.problem
    return {
        "episodes": problem.episodes,
        "criterion": problem.criterion.name,
        "regularization": problem.regularization,
        "num_policies": problem.num_policies,
        "solver": design.solver,
        "status": design.status,
        "iterations": int(design.iterations),
        "value": float(design.value),
        "upper_bound": float(design.upper_bound),
        "gain": float(design.gain),
        "gap": float(design.gap),
        "relative_gap": float(design.relative_gap),
        "efficiency": float(design.efficiency),
        "support": [round(float(size), 1) for size in support_size(problem, design.mean_rows).effective],
        "seconds": round(float(design.seconds), 3),
        "warnings": list(design.warnings),
    }


def prior_balance(problem: DesignProblem, mean_rows: Floats, *, data: Floats | None = None) -> PriorBalance:
    """Measure the weight of the data against the prior.

    Args:
        problem: The problem.
        mean_rows: Mean occupancy of the feature rows, shape (H, N).
        data: Its `data_information`, shape (d, d), if that is known already.
    """
    if data is None:
        data = problem.data_information(mean_rows)
    try:
        covariance = inverse(cholesky(data + problem.prior))
        learned = problem.dimension - float(np.vdot(problem.prior, covariance))  # tr(I_data I^-1) = d - tr(Lambda I^-1)
    except SingularInformationError:  # no prior and too little data: the design informs the range of its own data
        learned = float(np.linalg.matrix_rank(data, hermitian=True))
    return PriorBalance.of(problem, learned=max(learned, 0.0), trace=float(np.trace(data)))


def support_size(problem: DesignProblem, mean_rows: Floats) -> SupportSize:
    """Count the rows that a mean occupancy of shape (H, N) shows at each step."""
    effective, counts = [], []
    for row in distinct_steps(mean_rows):
        mass = row[row > 0]
        effective.append(float(np.exp(-(mass * np.log(mass)).sum())))
        counts.append(int((mass > SUPPORT_MASS).sum()))
    same = len(mean_rows) // len(effective)
    return SupportSize(tuple(effective * same), tuple(counts * same), problem.mdp.available_rows())


def distinct_steps(table: Floats) -> Floats:
    """The first step of an array (H, ...) that was broadcast over the steps (stride 0), the array itself if not."""
    return table[:1] if len(table) and table.strides[0] == 0 else table


def design_warnings(
    problem: DesignProblem, mean_rows: Floats, *, balance: PriorBalance | None = None
) -> tuple[str, ...]:
    """Warnings of a design as text, empty when there is nothing to say.

    No information: the rows that it shows at a step are all equal to rounding; then nothing else is said.
    Prior-dominated: the data determine less than `PRIOR_DOMINATED_SHARE` of the directions that could be learned,
    min(d, available - H), as only differences within a step inform.
    Collapsed support: the effective rows of all steps together, less one a step, are fewer than `COLLAPSED_SHARE` times
    these directions.

    Args:
        problem: The problem.
        mean_rows: Mean occupancy of the feature rows, shape (H, N).
        balance: Its `prior_balance`, if that is known already.
    """
    messages = []
    if balance is None:
        balance = prior_balance(problem, mean_rows)
    if balance.data_per_dimension * problem.dimension <= _ROUNDING * _uncentred_trace(problem, mean_rows):
        return (
            "no information: the options of a step all have the same features, so no answer says anything about the "
            "taste, whatever the regularization; use features that differ, and more than one token a step.",
        )
    size = support_size(problem, mean_rows)
    possible = min(problem.dimension, sum(max(count - 1, 0) for count in size.available))
    if balance.learned < PRIOR_DOMINATED_SHARE * possible:
        added = balance.data_per_dimension * problem.dimension / possible
        messages.append(
            f"prior-dominated: the {problem.episodes * problem.horizon} questions determine about "
            f"{balance.learned:.1f} of the {possible} directions that these options can tell apart "
            f"({balance.learned / possible:.1%}); the prior precision is {balance.prior_per_dimension:.3g} a "
            f"dimension, the data add {added:.3g} a direction. Which questions are asked changes such an estimate "
            f"little: lower the regularization towards {added:.2g}, ask more episodes, or let every question follow "
            f"from the answers before it (the adaptive planner)."
        )
    effective = sum(value - 1.0 for value in size.effective)
    if effective < COLLAPSED_SHARE * possible:
        draws = problem.episodes * problem.num_policies
        messages.append(
            f"collapsed support: the steps show effectively {_few(size.effective)} rows of {_few(size.available)} "
            f"({_few(size.shown)} with mass above {SUPPORT_MASS:g}), so the questions inform about {effective:.0f} of "
            f"{possible} directions, and in {draws} draws a step the user meets a row about "
            f"{draws / max(min(size.effective), 1.0):.0f} times where it is narrowest. Use the D criterion, a smaller "
            f"regularization, or random questions."
        )
    return tuple(messages)


def _uncentred_trace(problem: DesignProblem, mean_rows: Floats) -> float:
    """T sum_h Phi' diag(dbar_h) Phi, traced: what the data information is a small difference of."""
    weights = mean_rows.sum(axis=0)
    support = np.flatnonzero(weights)
    return problem.episodes * sum(
        float(weights[support[part]] @ np.einsum("nd,nd->n", rows, rows))
        for part, rows in row_chunks(problem.features, support)
    )


def _few(values: tuple[float, ...] | tuple[int, ...]) -> str:
    """At most eight numbers of a list, for a message."""
    text = "/".join(f"{value:.3g}" for value in values[:8])
    return text + ("/..." if len(values) > 8 else "")
