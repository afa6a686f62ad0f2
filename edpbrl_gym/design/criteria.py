"""Optimality criteria: concave, matrix-monotone scalar functions of an information matrix, all to be maximised.

| name | value s(I) | gradient ds/dI | what it makes small |
|---|---|---|---|
| D | log det I | I^-1 | the volume of the confidence ellipsoid of theta |
| A | -tr I^-1 | I^-2 | the mean squared error of theta |
| V | -tr V I^-1 | I^-1 V I^-1 | the mean squared error of the differences in V |

The paper writes A and V as 1 / tr(.); both forms have the same maximisers, and `Criterion.reciprocal` gives the
paper's. See Pukelsheim, "Optimal Design of Experiments" (1993), and the paper's Eq. 6 with "Scalarization".
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve, lapack, solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.design.chunks import row_chunks

__all__ = [
    "ACriterion",
    "Criterion",
    "DCriterion",
    "SingularInformationError",
    "VCriterion",
    "cholesky",
    "make_criterion",
    "positive_semidefinite_factor",
    "token_difference_matrix",
]


_SYMMETRY_TOLERANCE = 1e-8  # relative; a matrix given by the user may carry rounding
_EIGENVALUE_TOLERANCE = 1e-10  # relative; smaller negative eigenvalues count as rounding


class SingularInformationError(ValueError):
    """The information matrix is singular: the questions say nothing about some direction of theta.

    Attributes:
        lost: A prior precision below this would be lost in rounding; None where that is not known.
    """

    def __init__(self, message: str, *, lost: float | None = None) -> None:
        super().__init__(message)
        self.lost = lost


def cholesky(information: Floats) -> Floats:
    """Lower Cholesky factor L of an information matrix, I = L L'.

    Args:
        information: Symmetric positive definite matrix, shape (d, d).

    Returns:
        L, shape (d, d).

    Raises:
        SingularInformationError: If the matrix is not positive definite to working precision.
    """
    dimension = information.shape[0]
    # below this share of the largest the last pivots are rounding errors, and so would be the inverse
    share = dimension * np.finfo(np.float64).eps
    try:
        factor = np.linalg.cholesky(information)
        pivots = np.diag(factor)
        regular = bool(pivots.min() ** 2 > share * pivots.max() ** 2)
    except np.linalg.LinAlgError:
        regular = False
    if not regular:
        largest = float(np.diag(information).max(initial=0.0))
        threshold = share * largest
        raise SingularInformationError(
            f"Expected a positive definite information matrix, got a singular one of dimension {dimension}: the "
            f"questions say nothing about some direction of theta; use a regularization > 0 or more varied features. "
            f"Beside its largest entry, {largest:.3g}, rounding loses a regularization below {threshold:.2g}.",
            lost=threshold,
        )
    return np.asarray(factor, dtype=np.float64)


class Criterion(ABC):
    """A concave, matrix-monotone function of the information matrix, to be maximised.

    A subclass gives `value` and `gradient`, all that the Frank-Wolfe solvers need; newton, reference and query_sets
    know A, V and D only. `evaluate` may be overridden to share work.
    """

    name: str

    @abstractmethod
    def value(self, information: Floats) -> float:
        """Value s(I) of an information matrix of shape (d, d); raises SingularInformationError if it is singular."""

    @abstractmethod
    def gradient(self, information: Floats) -> Floats:
        """Gradient G = ds/dI, symmetric positive semidefinite, shape (d, d): ds = tr(G dI)."""

    def evaluate(self, information: Floats) -> tuple[float, Floats]:
        """Value and gradient together."""
        return self.value(information), self.gradient(information)

    def efficiency(self, value: float, upper_bound: float, dimension: int) -> float:
        """Certified lower bound on the efficiency of a design with this value when the optimum is below the bound.

        An efficiency e means that e times the questions, asked optimally, would give the same value (without a prior).

        Args:
            value: s(I) of the design.
            upper_bound: An upper bound of the optimum.
            dimension: d.

        Returns:
            D: exp((value - upper_bound) / d). A and V: upper_bound / value, the ratio of the traces. In [0, 1].
        """
        if value >= 0:
            raise ValueError(f"Expected a negative value of the criterion {self.name}, got {value:.6g}.")
        return float(min(1.0, max(0.0, upper_bound / value)))

    def fingerprint(self) -> str:
        """Text that identifies the criterion, stored with designs."""
        return self.name


class DCriterion(Criterion):
    """D-optimality: s(I) = log det I."""

    name = "D"

    def value(self, information: Floats) -> float:
        """Value log det I. See the base class."""
        return _log_det(cholesky(information))

    def gradient(self, information: Floats) -> Floats:
        """Gradient I^-1. See the base class."""
        return _inverse(cholesky(information))

    def evaluate(self, information: Floats) -> tuple[float, Floats]:
        """Value and gradient from one Cholesky factor."""
        factor = cholesky(information)
        return _log_det(factor), _inverse(factor)

    def efficiency(self, value: float, upper_bound: float, dimension: int) -> float:
        """Certified D-efficiency exp((value - upper_bound) / d). See the base class."""
        return float(np.exp(min(0.0, value - upper_bound) / dimension))


class _TraceCriterion(Criterion):
    """Common part of A and V: s(I) = -tr(B' I^-1 B) with V = B B'."""

    @abstractmethod
    def target_factor(self, dimension: int) -> Floats:
        """B with V = B B', shape (d, r)."""

    def value(self, information: Floats) -> float:
        """Value -tr(V I^-1). See the base class."""
        factor = cholesky(information)
        half = solve_triangular(factor, self.target_factor(len(factor)), lower=True, check_finite=False)
        return -float(np.vdot(half, half))

    def gradient(self, information: Floats) -> Floats:
        """Gradient I^-1 V I^-1. See the base class."""
        return self.evaluate(information)[1]

    def evaluate(self, information: Floats) -> tuple[float, Floats]:
        """Value and gradient from one Cholesky factor."""
        factor = cholesky(information)
        target = self.target_factor(len(factor))
        solved = cho_solve((factor, True), target, check_finite=False)
        return -float(np.vdot(target, solved)), solved @ solved.T

    def reciprocal(self, information: Floats) -> float:
        """The paper's form of the criterion, 1 / tr(V I^-1): same maximisers, positive."""
        return -1.0 / self.value(information)


class ACriterion(_TraceCriterion):
    """A-optimality: s(I) = -tr I^-1."""

    name = "A"

    def target_factor(self, dimension: int) -> Floats:
        """The identity. See the base class."""
        return np.eye(dimension)


class VCriterion(_TraceCriterion):
    """V-optimality: s(I) = -tr(V I^-1) for a positive semidefinite target V (the paper's choice in its experiments).

    Args:
        v_matrix: V, symmetric positive semidefinite, not zero, shape (d, d); see `token_difference_matrix`.

    Raises:
        ValueError: If V is not square, not symmetric, not positive semidefinite, zero, or has NaN.
    """

    name = "V"

    def __init__(self, v_matrix: ArrayLike) -> None:
        matrix = check_array(v_matrix, "v_matrix", shape=("d", "d"))
        self.factor: Floats = positive_semidefinite_factor(matrix, "v_matrix")
        if self.factor.shape[1] == 0:
            raise ValueError("Expected a v_matrix that is not zero; build it from at least two different tokens.")
        self.matrix: Floats = (matrix + matrix.T) / 2
        self.matrix.setflags(write=False)

    def target_factor(self, dimension: int) -> Floats:
        """B of V = B B'. See the base class."""
        if self.factor.shape[0] != dimension:
            raise ValueError(
                f"Expected an information matrix of the dimension of V, {self.factor.shape[0]}, got {dimension}; "
                f"build V from the features of this problem."
            )
        return self.factor

    def fingerprint(self) -> str:
        """Name and hash of V."""
        return f"V {hashlib.sha256(np.ascontiguousarray(self.matrix).tobytes()).hexdigest()}"


def _log_det(factor: Floats) -> float:
    return 2.0 * float(np.log(np.diag(factor)).sum())


def _inverse(factor: Floats) -> Floats:
    lower, _ = lapack.dpotri(factor, lower=1)  # a third of the work of solving for the identity
    lower = np.tril(lower)
    return np.asarray(lower + np.tril(lower, -1).T)


def positive_semidefinite_factor(matrix: Floats, name: str) -> Floats:
    """Factor B, shape (d, r), of a positive semidefinite matrix B B' of rank r.

    Args:
        matrix: Shape (d, d).
        name: Name for the message.

    Raises:
        ValueError: If the matrix is not square, symmetric and positive semidefinite (to rounding).
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"Expected {name} as a square matrix (d, d), got shape {matrix.shape}.")
    scale = float(np.abs(matrix).max(initial=0.0))
    off = float(np.abs(matrix - matrix.T).max(initial=0.0))
    if off > _SYMMETRY_TOLERANCE * scale:
        raise ValueError(f"Expected a symmetric {name}, got one that differs from its transpose by {off:.3g}.")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    largest = float(values[-1]) if values.size else 0.0
    if values.size and values[0] < -_EIGENVALUE_TOLERANCE * max(largest, scale):
        raise ValueError(f"Expected a positive semidefinite {name}, got an eigenvalue of {values[0]:.3g}.")
    # eigh errs by about eps times the largest eigenvalue, so smaller ones are indistinguishable from 0
    keep = values > largest * len(values) * np.finfo(np.float64).eps
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep]))


def make_criterion(name: str, v_matrix: ArrayLike | None = None) -> Criterion:
    """Build a criterion by its name.

    Args:
        name: "A", "V" or "D".
        v_matrix: V, shape (d, d), for "V" only.

    Raises:
        ValueError: If the name is unknown, or V is missing for "V" or given for another criterion.
    """
    if name not in ("A", "V", "D"):
        raise ValueError(f'Expected a criterion "A", "V" or "D", got {name!r}.')
    if name == "V":
        if v_matrix is None:
            raise ValueError("The criterion V needs a v_matrix; build one with token_difference_matrix.")
        return VCriterion(v_matrix)
    if v_matrix is not None:
        raise ValueError(f'The criterion {name} takes no v_matrix; use "V" for a target matrix.')
    return ACriterion() if name == "A" else DCriterion()


def token_difference_matrix(features: ArrayLike, groups: Iterable[ArrayLike]) -> Floats:
    """The paper's V = C'C, whose rows are differences of tokens of the same category, in closed form.

    V = sum over groups of sum_{i<j} (phi_i - phi_j)(phi_i - phi_j)' = sum over groups of n (S - s s' / n) with
    S = sum phi phi' and s = sum phi: the n (n - 1) / 2 difference rows of a group are never built. (Centring before
    squaring keeps the digits that n S - s s' would cancel when the features have a large common mean.)

    Args:
        features: Feature rows, shape (N, d); float32 rows are converted a few thousand at a time.
        groups: Row indices of each category, integer arrays. The paper leaves out the bases: leave them out here.

    Returns:
        V, symmetric positive semidefinite, shape (d, d).

    Raises:
        ValueError: If there is no group with two rows, or an index is out of range.
    """
    rows = check_array(features, "features", shape=("N", "d"), keep=(np.float32,))
    total = np.zeros((rows.shape[1], rows.shape[1]))
    largest = 0
    for number, group in enumerate(groups):
        index = check_integers(group, f"groups[{number}]", shape=("n",), low=0, high=len(rows) - 1)
        if index.size < 2:
            continue  # a category with one token has no pair
        largest = max(largest, index.size)
        centre = sum(chunk.sum(axis=0) for _, chunk in row_chunks(rows, index)) / index.size
        for _, chunk in row_chunks(rows, index):
            centred = chunk - centre
            total += index.size * (centred.T @ centred)
    if largest < 2:
        raise ValueError("Expected at least one group with two tokens, got none; pass the row indices by category.")
    return total
