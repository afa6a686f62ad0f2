"""Gaussian priors with mean zero over the taste: the ridge, any precision matrix, and one from embeddings."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_array, check_count, check_number

__all__ = ["GaussianPrior"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """A Gaussian prior with mean zero over theta, given by its precision (inverse covariance).

    Attributes:
        precision: symmetric positive semidefinite, (d, d). A singular one is improper: it says nothing about the
            directions of its null space, and the answers alone must determine theta there.
        null_space: orthonormal basis of those directions, (d, r); r = 0 for a proper prior. Computed.

    Raises:
        ValueError: the matrix is not square, not symmetric, not finite, or has a negative eigenvalue.
    """

    precision: Floats
    null_space: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        matrix = check_array(self.precision, "precision", shape=("d", "d"))
        if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 1:
            raise ValueError(f"Expected a square precision matrix (d, d), got shape {matrix.shape}")
        size = float(np.abs(matrix).max())
        asymmetry = float(np.abs(matrix - matrix.T).max())
        if asymmetry > 1e-8 * size:
            raise ValueError(f"Expected a symmetric precision matrix, got entries that differ by {asymmetry:.3g}")
        matrix = (matrix + matrix.T) / 2
        matrix.flags.writeable = False  # the null space below must stay true
        object.__setattr__(self, "precision", matrix)
        object.__setattr__(self, "null_space", _null_space(matrix))

    @classmethod
    def isotropic(cls, dimension: int, regularization: float) -> GaussianPrior:
        """The ridge: precision lambda I.

        Args:
            dimension: d.
            regularization: lambda >= 0; 0 is the improper flat prior (maximum likelihood).

        Raises:
            ValueError: d < 1 or lambda < 0.
        """
        ridge = check_number(regularization, "regularization (lambda)", minimum=0.0)
        return cls(ridge * np.eye(check_count(dimension, "dimension")))

    @classmethod
    def from_precision(cls, matrix: ArrayLike) -> GaussianPrior:
        """A prior with the given precision matrix (d, d), symmetric positive semidefinite.

        Raises:
            ValueError: as for the class.
        """
        return cls(np.asarray(matrix))

    @classmethod
    def from_embeddings(
        cls, features: ArrayLike, power: float = 0.5, scale: float = 1.0, *, floor: float = 1e-4
    ) -> GaussianPrior:
        """A prior that expects tastes to lie where the vocabulary's own embeddings vary.

        With the covariance C = U diag(w) U' of the features, the prior covariance is U diag(v) U', v proportional to
        w^power with sum(v) = scale * d: its trace is that of a ridge with lambda = 1 / scale, so the two are
        comparable. power = 0 is exactly that ridge.

        Args:
            features: embeddings of the vocabulary, (N, d), N >= 2.
            power: exponent of the eigenvalues, >= 0; 0.5 by default.
            scale: mean prior variance of a coordinate, > 0 (1 / lambda).
            floor: prior variances below ``floor`` times the largest are raised to it, so that a direction in which the
                vocabulary does not vary stays unlikely, not impossible. In (0, 1].

        Raises:
            ValueError: fewer than 2 rows, NaN, rows that are all equal, or an argument out of its range.
        """
        rows = check_array(features, "features", shape=("N", "d"))
        power = check_number(power, "power", minimum=0.0)
        scale = check_number(scale, "scale", minimum=0.0, exclusive=True)
        floor = check_number(floor, "floor", minimum=0.0, exclusive=True)
        if floor > 1:
            raise ValueError(f"Expected floor in (0, 1], got {floor}")
        if len(rows) < 2:
            raise ValueError(f"Expected the embeddings of at least 2 tokens, got features of shape {rows.shape}")
        centred = rows - rows.mean(axis=0)
        values, vectors = np.linalg.eigh(centred.T @ centred / len(rows))
        rounding = np.finfo(np.float64).eps * float(np.square(rows).sum()) / len(rows)
        if values[-1] <= rounding:
            raise ValueError("Expected embeddings that differ from each other, got features whose rows are all equal")
        # a root would blow up the rounding of a zero eigenvalue (1e-16 to the power 0.25 is 1e-4)
        shares = np.where(values > len(values) * rounding, values, 0.0) / values[-1]
        variances = np.maximum(shares**power, floor)
        variances *= scale * len(variances) / variances.sum()
        return cls((vectors / variances) @ vectors.T)

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return len(self.precision)

    @property
    def proper(self) -> bool:
        """Whether the precision is positive definite, so that the estimate exists for all data."""
        return self.null_space.shape[1] == 0


def _null_space(matrix: Floats) -> Floats:
    """Orthonormal basis of the null space of a positive semidefinite matrix, (d, r)."""
    dimension = len(matrix)
    diagonal = np.diagonal(matrix)
    if np.count_nonzero(matrix - np.diag(diagonal)) == 0 and np.ptp(diagonal) == 0 and diagonal[0] >= 0:
        return np.eye(dimension)[:, : 0 if diagonal[0] > 0 else dimension]  # a ridge needs no decomposition
    values, vectors = np.linalg.eigh(matrix)
    tolerance = dimension * np.finfo(np.float64).eps * float(np.abs(values).max())
    if values[0] < -1e3 * tolerance:
        raise ValueError(f"Expected a positive semidefinite precision matrix, got the eigenvalue {values[0]:.3g}")
    return np.asarray(vectors[:, values <= tolerance])
