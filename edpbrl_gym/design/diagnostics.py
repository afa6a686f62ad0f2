"""Is a design worth asking? Measures and warnings for a prior that dominates and a support that collapses.

A certificate says how close a design is to the optimum of its objective, not whether the objective makes sense. Two
ways in which it does not were seen with the paper's own settings (unit-norm features, lambda = 100, T = 60): the
prior outweighs all answers together, and the V-design then asks about ten tokens a step again and again; for
low-noise users it was worse than asking at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.chunks import row_chunks
from edpbrl_gym.design.criteria import DCriterion, SingularInformationError
from edpbrl_gym.design.problem import DesignProblem

if TYPE_CHECKING:
    from edpbrl_gym.design.result import Design

__all__ = [
    "COLLAPSED_SHARE",
    "PRIOR_DOMINATED_SHARE",
    "SUPPORT_MASS",
    "PriorBalance",
    "SupportSize",
    "design_warnings",
    "distinct_steps",
    "prior_balance",
    "support_size",
]


PRIOR_DOMINATED_SHARE = 0.1  # warn below: the data determine less than a tenth of what could be learned
COLLAPSED_SHARE = 0.5  # warn below: effective rows per direction that could be learned
_ROUNDING = 1e-13  # a spread below this share of the second moment is none
SUPPORT_MASS = 1e-3  # a row with more mass than this at a step counts as shown


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
        inverse = DCriterion().gradient(data + problem.prior)
        learned = problem.dimension - float(np.vdot(problem.prior, inverse))  # tr(I_data I^-1) = tr((I - Lambda) I^-1)
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
