"""The parameters of a mixture of Gaussians, their shrinkage, and the step that maximises both.

In the coordinates of the base prior the parts are N(m_j, C_j) with weights w_j. Each C_j has d (d + 1) / 2 numbers, too
many for few people. A penalty like the priors of hierarchical Bayes (Rossi, Allenby & McCulloch, 2005, chapter 5) draws
C_j to s_j I with the weight of k people, and m_j to 0 with that of a tenth of a person,

    -k/2 (log det(C_j / s_j) + s_j tr(C_j^-1)) - 0.1/2 m_j' C_j^-1 m_j - log(s_j)^2 / (2 * 3^2) + log(w_j) if M > 1,

where the s_j are parameters as well. Each step raises the sum of this penalty and the log-likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Floats

__all__ = ["Moments", "Parts", "Shrinkage"]

_LOG_SPREAD = 3.0  # of the scales: as in fit_prior
_PULL = 0.1  # weight of the base prior's mean, in people


@dataclass(frozen=True, eq=False)
class Moments:
    """Expected sufficient statistics of people: how many belong to each part, and the sums of u and of u u'.

    Attributes:
        counts: (M,).
        first: (M, d).
        second: (M, d, d).
    """

    counts: Floats
    first: Floats
    second: Floats

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.counts + other.counts, self.first + other.first, self.second + other.second)

    def times(self, factor: float) -> Moments:
        """All statistics times a factor."""
        return Moments(factor * self.counts, factor * self.first, factor * self.second)

    def tensors(self) -> dict[str, Floats]:
        """Its arrays by name."""
        return {"counts": self.counts, "first": self.first, "second": self.second}

    def take(self, order: NDArray[np.intp]) -> Moments:
        """The statistics of the given parts."""
        return Moments(self.counts[order], self.first[order], self.second[order])


@dataclass(frozen=True, eq=False)
class Parts:
    """A mixture of Gaussians.

    Attributes:
        weights: (M,), sum 1.
        means: (M, d).
        covariances: (M, d, d).
        scales: s_j, (M,).
    """

    weights: Floats
    means: Floats
    covariances: Floats
    scales: Floats
    loadings: ClassVar[None] = None  # no factors

    @classmethod
    def single(cls, dimension: int, scale: float) -> Parts:
        """One Gaussian N(0, scale I)."""
        return cls(np.ones(1), np.zeros((1, dimension)), scale * np.eye(dimension)[None], np.full(1, scale))

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.means.shape[1]

    def __len__(self) -> int:
        return len(self.weights)

    def tensors(self) -> dict[str, Floats]:
        """Its arrays by name."""
        return {
            "weights": self.weights,
            "means": self.means,
            "covariances": self.covariances,
            "scales": self.scales,
        }

    def take(self, order: NDArray[np.intp]) -> Parts:
        """The given parts."""
        arrays = (self.weights, self.means, self.covariances, self.scales)
        return Parts(*(array[order] for array in arrays))

    def mean_square(self) -> float:
        """Mean of |u|^2."""
        squares = np.trace(self.covariances, axis1=1, axis2=2) + np.square(self.means).sum(axis=1)
        return float(self.weights @ squares)

    def pack(self) -> Floats:
        """Unconstrained coordinates: log weights, means, log-Cholesky factors and log scales."""
        lower = np.linalg.cholesky(self.covariances)
        index = np.arange(self.dimension)
        lower[:, index, index] = np.log(lower[:, index, index])
        rows, columns = np.tril_indices(self.dimension)
        pieces = (np.log(self.weights), self.means, lower[:, rows, columns], np.log(self.scales))
        return np.concatenate([piece.ravel() for piece in pieces])

    def unpack(self, vector: Floats) -> Parts:
        """The mixture with these coordinates, of the shape of this one."""
        count, dimension = self.means.shape
        rows, columns = np.tril_indices(dimension)
        sizes = [count, count * dimension, count * len(rows), count]
        logs, means, packed, scales = np.split(vector, np.cumsum(sizes)[:-1])
        lower = np.zeros((count, dimension, dimension))
        lower[:, rows, columns] = packed.reshape(count, -1)
        index = np.arange(dimension)
        lower[:, index, index] = np.exp(lower[:, index, index])
        weights = np.exp(logs - logs.max())
        covariances = lower @ lower.transpose(0, 2, 1)
        return Parts(weights / weights.sum(), means.reshape(count, dimension), covariances, np.exp(scales))


@dataclass(frozen=True)
class Shrinkage:
    """How strongly the parts are shrunk.

    Attributes:
        people: k, the weight of the shape s_j I, in people; 0: no penalty at all (maximum likelihood).
    """

    people: float

    def maximise(self, moments: Moments, last: Parts) -> Parts:
        """The parameters after one step of EM: each in turn, given the others' last values."""
        dimension = last.dimension
        means, covariances, scales = np.empty_like(last.means), np.empty_like(last.covariances), last.scales.copy()
        extra = 1.0 if self.people else 1e-12  # a part without people keeps a weight that has a logarithm
        weights = (moments.counts + extra) / (float(moments.counts.sum()) + extra * len(last))
        pull = _PULL if self.people else 0.0
        for part, (count, first, second) in enumerate(zip(moments.counts, moments.first, moments.second, strict=True)):
            mean = first / (count + pull)
            spread = second - np.outer(mean, first) - np.outer(first, mean) + (count + pull) * np.outer(mean, mean)
            spread[np.diag_indices(dimension)] += self.people * scales[part]
            means[part], covariances[part] = mean, (spread + spread.T) / (2 * (count + self.people))
            if self.people:
                scales[part] = self._best_scale(float(np.square(_inverse_root(covariances[part])).sum()), dimension)
        return Parts(weights, means, covariances, scales)

    def penalty(self, parts: Parts) -> float:
        """What is added to the log-likelihood."""
        if not self.people:
            return 0.0
        total = float(np.log(parts.weights).sum()) if len(parts) > 1 else 0.0
        for mean, covariance, scale in zip(parts.means, parts.covariances, parts.scales, strict=True):
            inverse = _inverse_root(covariance)
            log_scale = float(np.log(scale))
            log_determinant = -2.0 * float(np.log(np.diagonal(inverse)).sum()) - len(mean) * log_scale
            total -= 0.5 * self.people * (log_determinant + scale * float(np.square(inverse).sum()))
            total -= 0.5 * (log_scale / _LOG_SPREAD) ** 2 + 0.5 * _PULL * float(np.square(inverse @ mean).sum())
        return total

    def _best_scale(self, trace: float, dimension: int) -> float:
        """The maximiser of people / 2 (d log s - s trace) - log(s)^2 / (2 * 3^2), by Newton's method in log(s)."""
        log_scale = float(np.log(dimension / trace))
        for _ in range(100):
            pulled = 0.5 * self.people * trace * float(np.exp(log_scale))
            slope = 0.5 * self.people * dimension - pulled - log_scale / _LOG_SPREAD**2
            step = slope / (pulled + 1.0 / _LOG_SPREAD**2)
            log_scale += step
            if abs(step) < 1e-13 * (1.0 + abs(log_scale)):
                break
        return float(np.exp(log_scale))


def _inverse_root(covariance: Floats) -> Floats:
    """W with W' W the inverse of a covariance, lower triangular."""
    lower = np.linalg.cholesky(covariance)
    return np.asarray(solve_triangular(lower, np.eye(len(lower)), lower=True, check_finite=False))
