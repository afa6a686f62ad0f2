"""One person's answers under a Gaussian, in the span of the answers.

The answers depend on z = B' u alone, with the columns of B an orthonormal basis of the rows of the differences (n k of
them, or all d directions). Under u ~ N(m, C), z = B' m + L w with L L' = B' C B and w ~ N(0, I); given w, u = m + G w
plus a remainder about which the answers say nothing, with G = C B L^-T. So r = min(n k, d) numbers suffice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import Answered

__all__ = ["Local", "Span"]


@dataclass(frozen=True, eq=False)
class Span:
    """Answers in the coordinates z.

    Attributes:
        answered: The answers in z: rows (n, k, r).
        basis: B, (d, r); None: the identity.
    """

    answered: Answered
    basis: Floats | None

    @classmethod
    def of(cls, answered: Answered) -> Span:
        """The span of answers in u."""
        count, others, dimension = answered.rows.shape
        if answered.empty:
            return cls(Answered(np.zeros((count, others, 0)), answered.offsets), np.zeros((dimension, 0)))
        if count * others >= dimension:
            return cls(answered, None)
        basis, triangle = qr(answered.rows.reshape(-1, dimension).T, mode="economic", check_finite=False)
        rows = np.ascontiguousarray(triangle.T).reshape(count, others, -1)
        return cls(Answered(rows, answered.offsets), basis)

    def under(self, mean: Floats, covariance: Floats) -> Local:
        """The answers under u ~ N(mean, covariance)."""
        middle = mean if self.basis is None else self.basis.T @ mean
        cross = covariance if self.basis is None else covariance @ self.basis
        inner = cross if self.basis is None else self.basis.T @ cross
        lower: Floats = np.asarray(np.linalg.cholesky((inner + inner.T) / 2), dtype=np.float64)
        loadings = solve_triangular(lower, cross.T, lower=True, check_finite=False).T if len(lower) else cross
        rows = self.answered.rows
        offsets = rows @ middle
        if self.answered.offsets is not None:
            offsets += self.answered.offsets
        return Local(rows @ lower, offsets, middle, lower, loadings)


@dataclass(frozen=True, eq=False)
class Local:
    """Answers in w, whose prior is N(0, I).

    Attributes:
        rows: (n, k, r).
        offsets: (n, k).
        middle: B' m, (r,).
        lower: L, (r, r).
        loadings: G, (d, r).
        scale: Factor of the covariance, of which L and G have the root.
    """

    rows: Floats
    offsets: Floats
    middle: Floats
    lower: Floats
    loadings: Floats
    scale: float = 1.0

    def scaled(self, scale: float) -> Local:
        """Under the covariance times ``scale``."""
        root = float(np.sqrt(scale))
        return Local(self.rows * root, self.offsets, self.middle, self.lower * root, self.loadings * root, scale)
