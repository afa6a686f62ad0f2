"""The model for many features: u = m_j + L f + e for people of type j, f ~ N(0, I) of few entries, e ~ N(0, s I).

The types, one or a few, share loadings and residual. In the base prior's coordinates the residual is isotropic, so that
theta has the covariance R L L' R' + s C with C the base prior's covariance. With z the type as a unit vector, the
columns of [m_1 .. m_M L] are the coefficients of a regression of u on (z, f); EM needs only sums over people of
(z, f) (z, f)', u (z, f)' and |u|^2 (Rubin & Thayer, 1982; Ghahramani & Hinton, 1996), and for each person matrices as
small as the span of its answers, one covariance for all types. A penalty keeps few people from determining hundreds of
numbers each time,

    -1/2 sum_j k_j |m_j|^2 / s - 1/2 |L|^2 / s - log(s)^2 / (2 * 3^2) + sum_j log(w_j) if M > 1:

loadings count one person's weight towards 0, and so do the means of several types; that of one mean is chosen by the
evidence, as its precision is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.blocks import WarmSites, blocks_of
from edpbrl_gym.estimation.population.geometry import Grams

__all__ = ["FactorMoments", "FactorPeople", "Factors"]

_LOG_SPREAD = 3.0  # of the residual variance, as in fit_prior
_PULL = 1.0  # of the loadings
_LEAST_SHARE = 0.01  # of the mean square of the means that is not due to chance
_NEGLIGIBLE = 1e-8  # membership of a person that leaves the sums over a type as they are


@dataclass(frozen=True, eq=False)
class FactorMoments:
    """Expected sums over people.

    Attributes:
        regressors: Of (z, f) (z, f)', (M + r, M + r).
        products: Of u (z, f)', (d, M + r).
        square: Of |u|^2.
        information: Of the precisions with which the answers determine the mean, over all directions.
        types: M.
    """

    regressors: Floats
    products: Floats
    square: float
    information: float
    types: int

    @classmethod
    def zero(cls, dimension: int, types: int, factors: int) -> FactorMoments:
        """Those of nobody."""
        size = types + factors
        return cls(np.zeros((size, size)), np.zeros((dimension, size)), 0.0, 0.0, types)

    @property
    def counts(self) -> Floats:
        """Expected number of people of each type, (M,)."""
        return np.asarray(self.regressors.diagonal()[: self.types])

    def tensors(self) -> dict[str, Floats]:
        """Its arrays by name."""
        return {
            "regressors": self.regressors,
            "products": self.products,
            "square": np.array(self.square),
            "information": np.array(self.information),
            "types": np.array(float(self.types)),
        }

    def __add__(self, other: FactorMoments) -> FactorMoments:
        return FactorMoments(
            self.regressors + other.regressors,
            self.products + other.products,
            self.square + other.square,
            self.information + other.information,
            self.types,
        )

    def times(self, factor: float) -> FactorMoments:
        """All sums times a factor."""
        return FactorMoments(
            factor * self.regressors,
            factor * self.products,
            factor * self.square,
            factor * self.information,
            self.types,
        )

    def take(self, order: NDArray[np.intp]) -> FactorMoments:
        """With the types in another order."""
        index = np.concatenate([order, np.arange(len(order), len(self.regressors))])
        ordered = self.regressors[np.ix_(index, index)]
        return FactorMoments(ordered, self.products[:, index], self.square, self.information, self.types)


@dataclass(frozen=True, eq=False)
class Factors:
    """Parameters of the model.

    Attributes:
        weights: w_j, (M,), sum 1.
        means: m_j, (M, d).
        loadings: L, (d, r); r = 0 is allowed.
        residual: s.
        pulls: k_j of the means, then the loadings' weights, (M + r,); zeros: no penalty.
    """

    weights: Floats
    means: Floats
    loadings: Floats
    residual: float
    pulls: Floats

    @classmethod
    def isotropic(cls, dimension: int, residual: float, shrunk: bool) -> Factors:
        """One type about 0, without factors."""
        return cls(
            np.ones(1), np.zeros((1, dimension)), np.zeros((dimension, 0)), residual, np.full(1, 0.1 if shrunk else 0.0)
        )

    @classmethod
    def types(cls, means: Floats, residual: float, shrunk: bool) -> Factors:
        """Types of equal weight about the given means, (M, d), without factors; pulled like loadings."""
        count, dimension = means.shape
        pulls = np.full(count, _PULL if shrunk else 0.0)
        return cls(np.full(count, 1.0 / count), means, np.zeros((dimension, 0)), residual, pulls)

    def extended(self, loadings: Floats) -> Factors:
        """With other loadings."""
        more = np.full(loadings.shape[1], _PULL if self.pulls[0] else 0.0)
        pulls = np.concatenate([self.pulls[: len(self.weights)], more])
        return Factors(self.weights, self.means, loadings, self.residual, pulls)

    def tensors(self) -> dict[str, Floats]:
        """Its arrays by name."""
        return {
            "weights": self.weights,
            "means": self.means,
            "loadings": self.loadings,
            "residual": np.array(self.residual),
            "pulls": self.pulls,
        }

    def take(self, order: NDArray[np.intp]) -> Factors:
        """With the types in another order; they have the same pull."""
        return Factors(self.weights[order], self.means[order], self.loadings, self.residual, self.pulls)

    @property
    def covariances(self) -> Floats:
        """As a mixture of Gaussians: L L' + s I for each type, (M, d, d)."""
        one = self.loadings @ self.loadings.T + self.residual * np.eye(len(self.loadings))
        return np.repeat(one[None], len(self.weights), axis=0)

    def mean_square(self) -> float:
        """Mean of |u|^2."""
        middle = float(self.weights @ np.square(self.means).sum(axis=1))
        return middle + float(np.square(self.loadings).sum()) + self.residual * len(self.loadings)

    def maximised(self, moments: FactorMoments) -> Factors:
        """The parameters after one step of EM: the coefficients, then the residual variance."""
        types = len(self.weights)
        system = moments.regressors + np.diag(self.pulls)
        coefficients = cho_solve(cho_factor(system, lower=True), moments.products.T).T
        remaining = moments.square - float((coefficients * moments.products).sum())
        extra = 1.0 if self.pulls[0] else 1e-12  # a type without people keeps a weight that has a logarithm
        counts = moments.counts
        weights = (counts + extra) / (float(counts.sum()) + extra * types)
        means, loadings = coefficients[:, :types].T, coefficients[:, types:]
        return Factors(weights, means, loadings, self._best_residual(remaining, float(counts.sum())), self.pulls)

    def with_evident_pull(self, moments: FactorMoments) -> Factors:
        """With k of one mean from the evidence, after a fit with a small one.

        The directions' means m_a have the prior variance s / k, and the answers determine each with the variance v:
        so the mean of m_a^2 is expected to be s / k + v.
        """
        if not self.pulls[0]:
            return self
        size = float(np.square(self.means).mean())
        variance = max(size - self.means.shape[1] / moments.information, _LEAST_SHARE * size, 1e-12 * self.residual)
        pulls = self.pulls.copy()
        pulls[0] = self.residual / variance
        return Factors(self.weights, self.means, self.loadings, self.residual, pulls)

    def pack(self) -> Floats:
        """Unconstrained coordinates: log weights, means, loadings and the log residual variance."""
        pieces = np.log(self.weights), self.means.ravel(), self.loadings.ravel(), [np.log(self.residual)]
        return np.concatenate(pieces)

    def unpack(self, vector: Floats) -> Factors:
        """The parameters with these coordinates, of the shape of these."""
        count, dimension = self.means.shape
        logs, means, loadings = np.split(vector[:-1], [count, count * (1 + dimension)])
        weights = np.exp(logs - logs.max())
        return Factors(
            weights / weights.sum(),
            means.reshape(count, dimension),
            loadings.reshape(self.loadings.shape),
            float(np.exp(vector[-1])),
            self.pulls,
        )

    def penalty(self) -> float:
        """What is added to the log-likelihood."""
        if not self.pulls[0]:
            return 0.0
        sizes = np.concatenate([np.square(self.means).sum(axis=1), np.square(self.loadings).sum(axis=0)])
        total = float(np.log(self.weights).sum()) if len(self.weights) > 1 else 0.0
        return (
            total - 0.5 * float(self.pulls @ sizes) / self.residual - 0.5 * (np.log(self.residual) / _LOG_SPREAD) ** 2
        )

    def _best_residual(self, remaining: float, count: float) -> float:
        """The maximiser of -n d / 2 log s - remaining / (2 s) minus its penalty, by Newton's method in log(s)."""
        half = 0.5 * count * len(self.loadings)
        log_residual = float(np.log(remaining / (2.0 * half)))
        if not self.pulls[0]:
            return float(np.exp(log_residual))
        for _ in range(100):
            pulled = 0.5 * remaining * float(np.exp(-log_residual))
            step = (pulled - half - log_residual / _LOG_SPREAD**2) / (pulled + 1.0 / _LOG_SPREAD**2)
            log_residual += step
            if abs(step) < 1e-13 * (1.0 + abs(log_residual)):
                break
        return float(np.exp(log_residual))


class FactorPeople:
    """People's answers, for the E-step."""

    def __init__(self, people: Sequence[Answered]) -> None:
        self._blocks = blocks_of(people)
        self._grams = [np.matmul(block.flat, block.flat.transpose(0, 2, 1)) for block in self._blocks]
        self._count = len(people)
        self.fits = WarmSites()

    def expect(self, model: Factors) -> tuple[FactorMoments, Floats, Floats]:
        """The statistics, each person's bound (N,), and the posterior means of u, (N, d).

        Weights of the types are proportional to the exponential of the bounds.
        """
        types, dimension = model.means.shape
        total = FactorMoments.zero(dimension, types, model.loadings.shape[1])
        bounds, tastes = np.empty(self._count), np.zeros((self._count, dimension))
        for index, (block, grams) in enumerate(zip(self._blocks, self._grams, strict=True)):
            projections = block.flat @ model.loadings  # P = D L, (B, n k, r)
            kernels = np.matmul(projections, projections.transpose(0, 2, 1)) + model.residual * grams
            geometry = Grams(kernels, block.rows.shape[2])
            fits = [self.fits.fit(index, part, geometry, block.offsets_at(m)) for part, m in enumerate(model.means)]
            logs = np.stack([found.bounds for found in fits], axis=1) + np.log(model.weights)
            bounds[block.people] = logsumexp(logs, axis=1)
            memberships = np.exp(logs - bounds[block.people, None])
            for part, found in enumerate(fits):
                some = np.flatnonzero(memberships[:, part] > _NEGLIGIBLE)
                shares = memberships[some, part]
                scores = found.scores[some].reshape(len(some), 1, -1)
                factors = np.matmul(scores, projections[some])[:, 0]  # E f
                means = factors @ model.loadings.T + model.residual * np.matmul(scores, block.flat[some])[:, 0]
                means += model.means[part]
                tastes[block.people[some]] += shares[:, None] * means
                gain = geometry.take(some).gain(found.information[some])
                about = _Type(part, shares, factors, means, block.flat[some], grams[some], projections[some], gain)
                total += about.moments(model)
        return total, bounds, tastes


@dataclass(frozen=True, eq=False)
class _Type:
    """What is expected of the people of a block if they are of one type.

    Attributes:
        part: The type.
        shares: Their memberships, (B,).
        factors: E f, (B, r).
        means: E u, (B, d).
        flat: D, (B, m, d).
        grams: D D', (B, m, m).
        projections: D L, (B, m, r).
        gain: Q = (K + W^-1)^-1, so that Cov(u) = C - C D' Q D C, (B, m, m).
    """

    part: int
    shares: Floats
    factors: Floats
    means: Floats
    flat: Floats
    grams: Floats
    projections: Floats
    gain: Floats

    def moments(self, model: Factors) -> FactorMoments:
        """The sums."""
        types, number = len(model.weights), self.factors.shape[1]
        size = float(self.shares.sum())
        pulled = np.matmul(self.gain, self.projections) * self.shares[:, None, None]
        inner = np.matmul(self.projections.transpose(0, 2, 1), pulled).sum(axis=0)
        cross = np.einsum("bmd,bmr->dr", self.flat, pulled, optimize=True)
        information = float(self.shares @ (self.gain * self.grams).sum(axis=(1, 2)))
        gram = model.loadings.T @ model.loadings
        removed = float((inner * gram).sum()) + 2.0 * model.residual * float(np.trace(inner))
        regressors = np.zeros((len(self.shares), types + number))
        regressors[:, self.part], regressors[:, types:] = 1.0, self.factors
        weighted = regressors * self.shares[:, None]
        squares = weighted.T @ regressors
        squares[types:, types:] += size * np.eye(number) - inner
        products = self.means.T @ weighted
        products[:, types:] += model.loadings @ (size * np.eye(number) - inner) - model.residual * cross
        square = float(self.shares @ np.square(self.means).sum(axis=1)) - removed
        square -= model.residual**2 * information
        square += size * (float(np.trace(gram)) + model.residual * len(model.loadings))
        return FactorMoments(squares, products, square, information, types)
