"""Is a design worth asking? Measures and warnings for a prior that dominates and a support that collapses.

A certificate says how close a design is to the optimum of its objective, not whether the objective makes sense. Two
ways in which it does not were seen with the paper's own settings (unit-norm features, lambda = 100, T = 60): the
prior outweighs all answers together, and the V-design then asks about ten tokens a step again and again; for
low-noise users it was worse than asking at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from edpbrl_gym.design._chunks import row_chunks
from edpbrl_gym.design.criteria import SingularInformationError, cholesky
from edpbrl_gym.design.problem import DesignProblem

__all__ = [
    "COLLAPSED_SHARE",
    "PRIOR_DOMINATED_SHARE",
    "SUPPORT_MASS",
    "PriorBalance",
    "SupportSize",
    "design_warnings",
    "prior_balance",
    "support_size",
]

FloatArray = NDArray[np.float64]

PRIOR_DOMINATED_SHARE = 0.1  # warn below: the data determine less than a tenth of the parameters
COLLAPSED_SHARE = 0.5  # warn below: effective rows per direction that could be learned
_ROUNDING = 1e-13  # a spread below this share of the second moment is none
SUPPORT_MASS = 1e-3  # a row with more mass than this at a step counts as shown


@dataclass(frozen=True)
class PriorBalance:
    """How much the data of a design say beside the prior.

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


def prior_balance(problem: DesignProblem, mean_rows: FloatArray) -> PriorBalance:
    """Measure the weight of the data against the prior for a mean occupancy of shape (H, N)."""
    data = problem.data_information(mean_rows)
    dimension = problem.dimension
    try:
        factor = cholesky(data + problem.prior)
        learned = float(np.trace(cho_solve((factor, True), data, check_finite=False)))
    except SingularInformationError:  # no prior and too little data: the design informs the range of its own data
        learned = float(np.linalg.matrix_rank(data, hermitian=True))
    return PriorBalance(
        learned=learned,
        share=learned / dimension,
        data_per_dimension=float(np.trace(data)) / dimension,
        prior_per_dimension=float(np.trace(problem.prior)) / dimension,
    )


def support_size(problem: DesignProblem, mean_rows: FloatArray) -> SupportSize:
    """Count the rows that a mean occupancy of shape (H, N) shows at each step."""
    mdp = problem.mdp
    reach = mdp.row_occupancy(mdp.occupancy(mdp.uniform_policy())) > 0
    logs = np.log(mean_rows, out=np.zeros_like(mean_rows), where=mean_rows > 0)
    entropy = -(mean_rows * logs).sum(axis=1)
    return SupportSize(
        effective=tuple(float(value) for value in np.exp(entropy)),
        shown=tuple(int(count) for count in (mean_rows > SUPPORT_MASS).sum(axis=1)),
        available=tuple(int(count) for count in reach.sum(axis=1)),
    )


def design_warnings(problem: DesignProblem, mean_rows: FloatArray) -> tuple[str, ...]:
    """Warnings of a design as text, empty when there is nothing to say.

    No information: the rows that it shows at a step are all equal to rounding; then nothing else is said.
    Prior-dominated: the data determine less than `PRIOR_DOMINATED_SHARE` of the d parameters.
    Collapsed support: the effective rows of all steps together, less one a step (only differences within a step
    inform), are fewer than `COLLAPSED_SHARE` times the directions that could be learned, min(d, available - H).

    Args:
        problem: The problem.
        mean_rows: Mean occupancy of the feature rows, shape (H, N).
    """
    messages = []
    balance = prior_balance(problem, mean_rows)
    if balance.data_per_dimension * problem.dimension <= _ROUNDING * _uncentred_trace(problem, mean_rows):
        return (
            "no information: the options of a step all have the same features, so no answer says anything about the "
            "taste, whatever the regularization; use features that differ, and more than one token a step.",
        )
    if balance.share < PRIOR_DOMINATED_SHARE:
        messages.append(
            f"prior-dominated: the {problem.episodes * problem.horizon} questions determine about "
            f"{balance.learned:.1f} of {problem.dimension} parameters ({balance.share:.1%}); the prior precision is "
            f"{balance.prior_per_dimension:.3g} a dimension, the data add {balance.data_per_dimension:.3g}. The design "
            f"can change the estimate little, and random questions may do as well: lower the regularization towards "
            f"{balance.data_per_dimension:.2g}, or ask more episodes."
        )
    size = support_size(problem, mean_rows)
    effective = sum(value - 1.0 for value in size.effective)
    possible = min(problem.dimension, sum(max(count - 1, 0) for count in size.available))
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


def _uncentred_trace(problem: DesignProblem, mean_rows: FloatArray) -> float:
    """T sum_h Phi' diag(dbar_h) Phi, traced: what the data information is a small difference of."""
    weights = mean_rows.sum(axis=0)
    shown = np.flatnonzero(weights)
    return problem.episodes * sum(
        float(weights[shown[part]] @ np.einsum("nd,nd->n", rows, rows))
        for part, rows in row_chunks(problem.features, shown)
    )


def _few(values: tuple[float, ...] | tuple[int, ...]) -> str:
    """At most eight numbers of a list, for a message."""
    shown = "/".join(f"{value:.3g}" for value in values[:8])
    return shown + ("/..." if len(values) > 8 else "")
