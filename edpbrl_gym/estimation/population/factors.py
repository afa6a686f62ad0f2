"""The factor model for many features: u = m + L f + e with f ~ N(0, I) of few entries and e ~ N(0, s I).

In the base prior's coordinates the residual is isotropic, so that theta has the covariance R L L' R' + s C with C the
base prior's covariance. Given u, the columns of [m L] are the coefficients of a regression of u on (1, f); EM needs
only sums over people of u, f, u f', f f' and |u|^2 (Rubin & Thayer, 1982), and for each person matrices as small as
the span of its answers. A penalty keeps few people from determining hundreds of numbers each time,

    -k_0/2 |m|^2 / s - 1/2 |L|^2 / s - log(s)^2 / (2 * 3^2):

loadings count one person's weight towards 0, and k_0 is chosen by the evidence, as the precision of the mean is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.blocks import Block, WarmSites, blocks_of
from edpbrl_gym.estimation.population.geometry import Grams

__all__ = ["FactorMoments", "FactorPeople", "Factors"]

_LOG_SPREAD = 3.0  # of the residual variance, as in fit_prior
_PULL = 1.0  # of the loadings
_LEAST_SHARE = 0.01  # of the mean square of the means that is not due to chance


@dataclass(frozen=True, eq=False)
class FactorMoments:
    """Expected sums over people.

    Attributes:
        count: Number of people.
        regressors: Of (1, f) (1, f)', (1 + r, 1 + r).
        products: Of u (1, f)', (d, 1 + r).
        square: Of |u|^2.
        information: Of the precisions with which the answers determine the mean, over all directions.
    """

    count: float
    regressors: Floats
    products: Floats
    square: float
    information: float

    def tensors(self) -> dict[str, Floats]:
        """Its arrays by name."""
        return {
            "count": np.array(self.count),
            "regressors": self.regressors,
            "products": self.products,
            "square": np.array(self.square),
            "information": np.array(self.information),
        }

    def __add__(self, other: FactorMoments) -> FactorMoments:
        return FactorMoments(
            self.count + other.count,
            self.regressors + other.regressors,
            self.products + other.products,
            self.square + other.square,
            self.information + other.information,
        )

    def times(self, factor: float) -> FactorMoments:
        """All sums times a factor."""
        return FactorMoments(
            factor * self.count,
            factor * self.regressors,
            factor * self.products,
            factor * self.square,
            factor * self.information,
        )


@dataclass(frozen=True, eq=False)
class Factors:
    """Parameters of the model.

    Attributes:
        mean: m, (d,).
        loadings: L, (d, r); r = 0 is allowed.
        residual: s.
        pulls: k_0 and the loadings' weights, (1 + r,); zeros: no penalty.
    """

    mean: Floats
    loadings: Floats
    residual: float
    pulls: Floats

    @classmethod
    def isotropic(cls, dimension: int, residual: float, shrunk: bool) -> Factors:
        """No factors, about 0."""
        return cls(np.zeros(dimension), np.zeros((dimension, 0)), residual, np.full(1, 0.1 if shrunk else 0.0))

    def extended(self, loadings: Floats) -> Factors:
        """With other loadings."""
        pulls = np.full(1 + loadings.shape[1], _PULL if self.pulls[0] else 0.0)
        pulls[0] = self.pulls[0]
        return Factors(self.mean, loadings, self.residual, pulls)

    def tensors(self) -> dict[str, Floats]:
        """Its arrays by name."""
        return {
            "mean": self.mean,
            "loadings": self.loadings,
            "residual": np.array(self.residual),
            "pulls": self.pulls,
        }

    @property
    def weights(self) -> Floats:
        """As a mixture of one Gaussian: (1,)."""
        return np.ones(1)

    @property
    def means(self) -> Floats:
        """As a mixture of one Gaussian: (1, d)."""
        return self.mean[None]

    @property
    def covariances(self) -> Floats:
        """As a mixture of one Gaussian: L L' + s I, (1, d, d)."""
        return (self.loadings @ self.loadings.T + self.residual * np.eye(len(self.mean)))[None]

    def mean_square(self) -> float:
        """Mean of |u|^2."""
        return float(np.square(self.mean).sum() + np.square(self.loadings).sum() + self.residual * len(self.mean))

    def maximised(self, moments: FactorMoments) -> Factors:
        """The parameters after one step of EM: the coefficients, then the residual variance."""
        system = moments.regressors + np.diag(self.pulls)
        coefficients = cho_solve(cho_factor(system, lower=True), moments.products.T).T
        remaining = moments.square - float((coefficients * moments.products).sum())
        return Factors(
            coefficients[:, 0], coefficients[:, 1:], self._best_residual(remaining, moments.count), self.pulls
        )

    def with_evident_pull(self, moments: FactorMoments) -> Factors:
        """With k_0 from the evidence, after a fit with a small one.

        The directions' means m_a have the prior variance s / k_0, and the answers determine each with the variance v:
        so the mean of m_a^2 is expected to be s / k_0 + v.
        """
        if not self.pulls[0]:
            return self
        size = float(np.square(self.mean).mean())
        variance = max(size - len(self.mean) / moments.information, _LEAST_SHARE * size, 1e-12 * self.residual)
        pulls = self.pulls.copy()
        pulls[0] = self.residual / variance
        return Factors(self.mean, self.loadings, self.residual, pulls)

    def pack(self) -> Floats:
        """Unconstrained coordinates: mean, loadings and the log residual variance."""
        return np.concatenate([self.mean, self.loadings.ravel(), [np.log(self.residual)]])

    def unpack(self, vector: Floats) -> Factors:
        """The parameters with these coordinates, of the shape of these."""
        dimension = len(self.mean)
        loadings = vector[dimension:-1].reshape(self.loadings.shape)
        return Factors(vector[:dimension], loadings, float(np.exp(vector[-1])), self.pulls)

    def penalty(self) -> float:
        """What is added to the log-likelihood."""
        if not self.pulls[0]:
            return 0.0
        sizes = np.concatenate([[np.square(self.mean).sum()], np.square(self.loadings).sum(axis=0)])
        return -0.5 * float(self.pulls @ sizes) / self.residual - 0.5 * (np.log(self.residual) / _LOG_SPREAD) ** 2

    def _best_residual(self, remaining: float, count: float) -> float:
        """The maximiser of -n d / 2 log s - remaining / (2 s) minus its penalty, by Newton's method in log(s)."""
        half = 0.5 * count * len(self.mean)
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
        """The statistics, each person's bound (N,), and the posterior means of u - m, (N, d)."""
        dimension, number = model.loadings.shape
        total = FactorMoments(0.0, np.zeros((1 + number, 1 + number)), np.zeros((dimension, 1 + number)), 0.0, 0.0)
        bounds, centres = np.empty(self._count), np.empty((self._count, dimension))
        for index, (block, grams) in enumerate(zip(self._blocks, self._grams, strict=True)):
            shares = block.flat @ model.loadings  # P = D L, (B, n k, r)
            kernels = np.matmul(shares, shares.transpose(0, 2, 1)) + model.residual * grams
            geometry = Grams(kernels, block.rows.shape[2])
            found = self.fits.fit(index, 0, geometry, block.offsets_at(model.mean))
            bounds[block.people] = found.bounds
            scores = found.scores.reshape(len(kernels), 1, -1)
            factors = np.matmul(scores, shares)[:, 0]  # E f
            centre = factors @ model.loadings.T + model.residual * np.matmul(scores, block.flat)[:, 0]
            centres[block.people] = centre
            total += _block_moments(model, block, grams, shares, geometry.gain(found.information), factors, centre)
        return total, bounds, centres


def _block_moments(
    model: Factors, block: Block, grams: Floats, shares: Floats, gain: Floats, factors: Floats, centre: Floats
) -> FactorMoments:
    """The sums over a block; ``gain`` is Q = (K + W^-1)^-1, so that Cov(u) = C - C D' Q D C."""
    count, number = factors.shape
    gain_shares = np.matmul(gain, shares)
    inner = np.matmul(shares.transpose(0, 2, 1), gain_shares).sum(axis=0)
    cross = np.einsum("bmd,bmr->dr", block.flat, gain_shares, optimize=True)
    information = float((gain * grams).sum())
    gram = model.loadings.T @ model.loadings
    removed = float((inner * gram).sum()) + 2.0 * model.residual * float(np.trace(inner))
    means = model.mean + centre
    regressors = np.concatenate([np.ones((count, 1)), factors], axis=1)
    squares = regressors.T @ regressors
    squares[1:, 1:] += count * np.eye(number) - inner
    products = means.T @ regressors
    products[:, 1:] += model.loadings @ (count * np.eye(number) - inner) - model.residual * cross
    square = float(np.square(means).sum()) - removed - model.residual**2 * information
    square += count * (float(np.trace(gram)) + model.residual * len(model.mean))
    return FactorMoments(float(count), squares, products, square, information)
