"""Covariances of the utility differences of several people, and what follows from them and the answers' information.

A person's n questions have k differences of utilities each, v = c + D w with w ~ N(0, I), so that their covariance is
K = D D'. With the information W = diag(W_1, ..., W_n) of the answers the posterior covariance is V = (K^-1 + W)^-1.
Neither K nor W need be invertible (Rasmussen & Williams, 2006, algorithm 3.1). `Grams` computes with K itself, m = n k
numbers squared, `Rows` with D, for fewer features r than differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from edpbrl_gym._arrays import Floats

__all__ = ["Geometry", "Grams", "Rows", "Solved", "geometry_of", "inverse_lower", "reduction", "roots"]

GeometryT = TypeVar("GeometryT", bound="Geometry")


@dataclass(frozen=True, eq=False)
class Solved:
    """What follows from K and W.

    Attributes:
        blocks: The covariances V_i of each question's differences, (B, n, k, k).
        log_determinant: log det(I + K W), (B,).
        scores: a with (I + W K) a = b, (B, n, k).
    """

    blocks: Floats
    log_determinant: Floats
    scores: Floats


class Geometry(Protocol):
    """The covariances K of B people's differences."""

    def __len__(self) -> int: ...

    def take(self: GeometryT, chosen: NDArray[np.intp]) -> GeometryT:
        """Those of the chosen people."""
        ...

    def times(self, scores: Floats) -> Floats:
        """K a, (B, n, k)."""
        ...

    def blocks(self) -> Floats:
        """The blocks of K that belong to one question each, (B, n, k, k)."""
        ...

    def solve(self, information: Floats, right: Floats) -> Solved:
        """What follows from W, (B, n, k, k), and b, (B, n, k)."""
        ...


@dataclass(frozen=True, eq=False)
class Grams:
    """K itself.

    Attributes:
        kernels: (B, m, m).
        others: k.
    """

    kernels: Floats
    others: int

    def __len__(self) -> int:
        return len(self.kernels)

    def take(self, chosen: NDArray[np.intp]) -> Grams:
        """Those of the chosen people."""
        return Grams(self.kernels[chosen], self.others)

    def times(self, scores: Floats) -> Floats:
        """K a, (B, n, k)."""
        flat = scores.reshape(len(scores), -1, 1)
        return np.matmul(self.kernels, flat).reshape(scores.shape)

    def blocks(self) -> Floats:
        """The blocks of K that belong to one question each, (B, n, k, k)."""
        count, size, _ = self.kernels.shape
        shape = count, size // self.others, self.others
        return self.kernels.reshape(*shape, *shape[1:]).diagonal(axis1=1, axis2=3).transpose(0, 3, 1, 2)

    def gain(self, information: Floats) -> Floats:
        """(K + W^-1)^-1, (B, m, m)."""
        weighted = roots(information)
        half = _times_blocks(self.kernels, weighted)
        system = _times_blocks(half.transpose(0, 2, 1), weighted)
        size = system.shape[1]
        system.reshape(len(system), -1)[:, :: size + 1] += 1.0
        spread = np.zeros((len(system), size, size))
        split = spread.reshape(len(system), *weighted.shape[1:3], *weighted.shape[1:3])
        for question in range(weighted.shape[1]):
            split[:, question, :, question] = weighted[:, question]
        white = np.matmul(inverse_lower(_cholesky(system)), spread.transpose(0, 2, 1))
        return np.matmul(white.transpose(0, 2, 1), white)

    def solve(self, information: Floats, right: Floats) -> Solved:
        """What follows from W and b, through the Cholesky factor of I + S' K S with W = S S'."""
        weighted = roots(information)
        half = _times_blocks(self.kernels, weighted)  # K S
        system = _times_blocks(half.transpose(0, 2, 1), weighted)  # S' K S, symmetric
        size = system.shape[1]
        system.reshape(len(system), -1)[:, :: size + 1] += 1.0
        lower = _cholesky(system)
        inverse = inverse_lower(lower)
        white = np.matmul(inverse, half.transpose(0, 2, 1))  # (B, m, m)
        parts = white.transpose(0, 2, 1).reshape(len(system), -1, self.others, size)
        blocks = self.blocks() - np.matmul(parts, parts.transpose(0, 1, 3, 2))
        pulled = _block_products(weighted.transpose(0, 1, 3, 2), self.times(right))  # S' K b
        solved = np.matmul(inverse, pulled.reshape(len(system), size, 1))
        solved = np.matmul(inverse.transpose(0, 2, 1), solved).reshape(right.shape)
        return Solved(blocks, _log_determinant(lower), right - _block_products(weighted, solved))


@dataclass(frozen=True, eq=False)
class Rows:
    """The differences D.

    Attributes:
        rows: (B, n, k, r).
    """

    rows: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: NDArray[np.intp]) -> Rows:
        """Those of the chosen people."""
        return Rows(self.rows[chosen])

    def times(self, scores: Floats) -> Floats:
        """K a, (B, n, k)."""
        flat = self._flat()
        inner = np.matmul(flat.transpose(0, 2, 1), scores.reshape(len(scores), -1, 1))
        return np.matmul(flat, inner).reshape(scores.shape)

    def blocks(self) -> Floats:
        """The blocks of K that belong to one question each, (B, n, k, k)."""
        return np.matmul(self.rows, self.rows.transpose(0, 1, 3, 2))

    def solve(self, information: Floats, right: Floats) -> Solved:
        """What follows from W and b, through the Cholesky factor of I + D' W D."""
        flat = self._flat()
        count, _, rank = flat.shape
        system = np.matmul(flat.transpose(0, 2, 1), np.matmul(information, self.rows).reshape(flat.shape))
        system.reshape(count, -1)[:, :: rank + 1] += 1.0
        lower = _cholesky(system)
        inverse = inverse_lower(lower)
        white = np.matmul(flat, inverse.transpose(0, 2, 1)).reshape(self.rows.shape)
        inner = np.matmul(white.reshape(flat.shape).transpose(0, 2, 1), right.reshape(count, -1, 1))
        values = np.matmul(white.reshape(flat.shape), inner).reshape(right.shape)  # D (I + D' W D)^-1 D' b
        blocks = np.matmul(white, white.transpose(0, 1, 3, 2))
        return Solved(blocks, _log_determinant(lower), right - _block_products(information, values))

    def _flat(self) -> Floats:
        count, questions, others, rank = self.rows.shape
        return self.rows.reshape(count, questions * others, rank)


def geometry_of(rows: Floats) -> Grams | Rows:
    """The cheaper of both for the differences D, (B, n, k, r)."""
    count, questions, others, rank = rows.shape
    if rank <= questions * others:
        return Rows(rows)
    flat = rows.reshape(count, -1, rank)
    return Grams(np.matmul(flat, flat.transpose(0, 2, 1)), others)


def reduction(rows: Floats, information: Floats, shares: Floats) -> Floats:
    """What answers take away from the covariance I of w: the sum of I - (I + D' W D)^-1 over people, (r, r).

    Args:
        rows: D, (B, n, k, r).
        information: W, (B, n, k, k).
        shares: Weights of the people in the sum, (B,).
    """
    count, questions, others, rank = rows.shape
    half = np.matmul(roots(information).transpose(0, 1, 3, 2), rows).reshape(count, -1, rank)  # S' D
    if rank <= questions * others:
        system = np.matmul(half.transpose(0, 2, 1), half) + np.eye(rank)
        inverse = inverse_lower(_cholesky(system)).reshape(-1, rank)
        weighted = inverse * np.repeat(shares, rank)[:, None]
        return np.asarray(shares.sum() * np.eye(rank) - weighted.T @ inverse)
    system = np.matmul(half, half.transpose(0, 2, 1)) + np.eye(half.shape[1])
    white = np.matmul(inverse_lower(_cholesky(system)), half).reshape(-1, rank)
    return np.asarray((white * np.repeat(shares, half.shape[1])[:, None]).T @ white)


def roots(matrices: Floats) -> Floats:
    """Lower triangular S with S S' the positive semidefinite matrices, (..., k, k); zero columns where singular."""
    size = matrices.shape[-1]
    found = np.zeros(matrices.shape)
    for column in range(size):
        done = found[..., column, :column]
        rest = matrices[..., column:, column] - np.matmul(found[..., column:, :column], done[..., None])[..., 0]
        pivot = rest[..., 0]
        safe = pivot > 1e-14 * matrices[..., column, column]
        scale = np.where(safe, 1.0 / np.sqrt(np.where(safe, pivot, 1.0)), 0.0)
        found[..., column:, column] = rest * scale[..., None]
    return found


def _times_blocks(matrices: Floats, blocks: Floats) -> Floats:
    """M S for the block diagonal, lower triangular S, (B, n, k, k), and M, (B, m, n k)."""
    count, questions, others, _ = blocks.shape
    split = matrices.reshape(count, -1, questions, others)
    product = np.empty(split.shape)
    for column in range(others):
        total = split[..., column] * blocks[:, None, :, column, column]
        for row in range(column + 1, others):
            total += split[..., row] * blocks[:, None, :, row, column]
        product[..., column] = total
    return product.reshape(matrices.shape)


def inverse_lower(lower: Floats) -> Floats:
    """Inverses of lower triangular matrices, (B, r, r)."""
    inverse = np.empty(lower.shape)
    for row in range(len(lower) if lower.shape[1] else 0):  # numpy has no triangular inverse
        inverse[row] = lapack.dtrtri(lower[row].T, lower=0)[0].T  # in Fortran's order
    return inverse


def _cholesky(matrices: Floats) -> Floats:
    return np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)


def _block_products(blocks: Floats, vectors: Floats) -> Floats:
    return np.matmul(blocks, vectors[..., None])[..., 0]


def _log_determinant(lower: Floats) -> Floats:
    return np.asarray(2.0 * np.log(lower.diagonal(axis1=1, axis2=2)).sum(axis=1))
