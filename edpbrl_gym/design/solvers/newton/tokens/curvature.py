"""The Hessian on large working sets as an operator in float32: its products, not its factors, are what is needed.

Scaled by its diagonal the Hessian of the design problem is well conditioned on the supports of good designs (condition
numbers of 2 to 12 on isotropic and on clustered features, for lambda from 0.01 to 100), so a first-order method for the
quadratic program takes about ten products. With y_i = L^-1 z_i and u_i what the scores are squared norms of,

    D:     H_ij = c_i c_j (y_i' y_j + S_ij)^2,    A, V:  H_ij = 2 c_i c_j (y_i' y_j + S_ij) u_i' u_j.

In D the square of S is left out: c_i c_j S_ij^2 is 1 within a block and 0 outside, so it vanishes on changes that sum
to 0 in every block, and with a strong prior it would leave nothing but rounding of the rest in float32.

H may be stored, which costs k^2 d and k^2 numbers to read in every product; without it a product costs 4 k d^2 (D):
sum_j (y_i' y_j)(u_i' u_j) v_j = y_i' (sum_j v_j y_j u_j') u_i. `FeatureSpace` takes what costs less.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.linalg import blas

from edpbrl_gym._arrays import Floats, Floats32

__all__ = [
    "ENTRY_READ",
    "LARGEST_MATRIX",
    "NUMBER",
    "Curvature",
    "DiagonalCurvature",
    "ImplicitCurvature",
    "MatrixCurvature",
]


LARGEST_MATRIX = 6000  # tokens whose H may be stored; 144 MB in float32
# in float32 multiplications of the same time
ENTRY_READ = 21.0  # an entry of the stored H in a product
NUMBER = 240.0  # a feature of a token in a product with the H that isn't stored, beside the two d x d products
_CHUNK = 2048
_TILE = 256


class Curvature(Protocol):
    """A symmetric positive semidefinite operator.

    Attributes:
        diagonal: Its diagonal, float64, shape (k,).
        work: What a product costs, in float32 multiplications of the same time.
    """

    diagonal: Floats
    work: float

    def product(self, vector: Floats) -> Floats:
        """H v, shape (k,)."""
        ...


class DiagonalCurvature:
    """A diagonal.

    Args:
        diagonal: Shape (k,).
    """

    def __init__(self, diagonal: Floats) -> None:
        self.diagonal = diagonal
        self.work = float(len(diagonal))

    def product(self, vector: Floats) -> Floats:
        """See `Curvature`."""
        return np.asarray(self.diagonal * vector)


class MatrixCurvature:
    """A stored Hessian.

    Args:
        solved: y, shape (k, d).
        scored: u, shape (k, r); None for D, where u = y.
        scale: c of each token, shape (k,).
        parts: Tokens of each block.
    """

    def __init__(self, solved: Floats32, scored: Floats32 | None, scale: Floats, parts: list[slice]) -> None:
        size = len(solved)
        self._matrix = np.empty((size, size), dtype=np.float32)  # only its upper triangle is filled
        # with sqrt(c) y and sqrt(2 c) u: D (K + 2 [same block]) o K, A and V (K + [same block]) o A, in few passes
        root = np.sqrt(scale).astype(np.float32)[:, None]
        solved = solved * root
        scored = None if scored is None else scored * (np.float32(np.sqrt(2.0)) * root)
        shift = np.float32(2.0 if scored is None else 1.0)
        for begin in range(0, size, _TILE):
            rows = slice(begin, min(begin + _TILE, size))
            tile = solved[rows] @ solved[begin:].T
            second = tile.copy() if scored is None else scored[rows] @ scored[begin:].T
            for part in parts:  # the tokens of the tile's own blocks
                overlap = slice(max(part.start, rows.start), min(part.stop, rows.stop))
                if overlap.start < overlap.stop:
                    across = slice(max(part.start, begin) - begin, part.stop - begin)
                    tile[overlap.start - begin : overlap.stop - begin, across] += shift
            np.multiply(tile, second, out=self._matrix[rows, begin:])
        self.diagonal: Floats = np.diag(self._matrix).astype(np.float64)
        self.work = ENTRY_READ * size**2

    def product(self, vector: Floats) -> Floats:
        """See `Curvature`."""
        # the transpose is what BLAS takes as it is: the upper triangle of a C-ordered array is its lower one
        return np.asarray(blas.ssymv(1.0, self._matrix.T, vector.astype(np.float32), lower=1), dtype=np.float64)


class ImplicitCurvature:
    """A Hessian that is not stored; arguments as in `MatrixCurvature`."""

    def __init__(self, solved: Floats32, scored: Floats32 | None, scale: Floats, parts: list[slice]) -> None:
        self._solved, self._scored = solved, scored
        self._scale, self._parts = scale, parts
        self.work = (4.6 * solved.shape[1] + NUMBER) * solved.size
        solved_squares = np.einsum("kd,kd->k", solved, solved, dtype=np.float64)
        if scored is None:
            self.diagonal = scale**2 * solved_squares * (solved_squares + 2.0 / scale)
        else:
            scored_squares = np.einsum("kr,kr->k", scored, scored, dtype=np.float64)
            self.diagonal = 2.0 * scale**2 * (solved_squares + 1.0 / scale) * scored_squares

    def product(self, vector: Floats) -> Floats:
        """See `Curvature`."""
        solved = self._solved
        scored = solved if self._scored is None else self._scored
        weighted = (self._scale * vector).astype(np.float32)
        moment = np.zeros((solved.shape[1], scored.shape[1]), dtype=np.float32)
        chunks = [slice(begin, begin + _CHUNK) for begin in range(0, len(solved), _CHUNK)]
        for chunk in chunks:
            moment += solved[chunk].T @ (weighted[chunk, None] * scored[chunk])
        result = np.empty(len(solved))
        for chunk in chunks:
            result[chunk] = np.einsum("kr,kr->k", solved[chunk] @ moment, scored[chunk])
        for part in self._parts:  # the terms of S, of blocks that have tokens
            if part.stop == part.start:
                continue
            inverse = 1.0 / self._scale[part.start]
            cross = scored[part] @ (weighted[part] @ scored[part])
            result[part] += (2.0 if self._scored is None else 1.0) * inverse * cross
        return np.asarray(result * self._scale * (1.0 if self._scored is None else 2.0))
