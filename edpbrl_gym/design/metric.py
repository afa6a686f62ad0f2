"""The inverse of the prior precision as an inner product, x' Lambda^-1 y."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.criteria import cholesky
from edpbrl_gym.design.problem import DesignProblem

__all__ = ["PriorMetric"]


class PriorMetric:
    """Products with the inverse of a proper prior precision, a division where it is lambda I.

    Args:
        problem: A problem with a positive definite prior; SingularInformationError otherwise.

    Attributes:
        isotropic: lambda if the prior precision is lambda I, else None.
    """

    def __init__(self, problem: DesignProblem) -> None:
        self.isotropic: float | None = problem.regularization or None
        self._root = float(np.sqrt(self.isotropic or 1.0))
        self._factor = None if self.isotropic else cholesky(problem.prior)

    def half(self, rows: Floats) -> Floats:
        """Rows times L^-T, Lambda = L L': their inner products are those of the metric. Shape (k, d) as given."""
        if self._factor is None:
            return np.asarray(rows / self._root)
        return np.asarray(solve_triangular(self._factor, rows.T, lower=True, check_finite=False).T)

    def half_transposed(self, rows: Floats) -> Floats:
        """Rows times L^-1: `half_transposed(half(rows))` is rows times Lambda^-1."""
        if self._factor is None:
            return np.asarray(rows / self._root)
        return np.asarray(solve_triangular(self._factor, rows.T, lower=True, trans=1, check_finite=False).T)

    def whole(self, halves: Floats) -> Floats:
        """The rows that `half` was given: rows times L'."""
        if self._factor is None:
            return np.asarray(halves * self._root)
        return np.asarray(halves @ self._factor.T)

    def solve(self, rows: Floats) -> Floats:
        """Rows times Lambda^-1, shape as given."""
        if self.isotropic:
            return np.asarray(rows / self.isotropic)
        return self.half_transposed(self.half(rows))

    def factor_inverse(self, dimension: int) -> Floats:
        """L^-1, shape (d, d), lower triangular."""
        return self.half(np.eye(dimension)).T
