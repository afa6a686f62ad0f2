"""The model for many features: u = m + L f + e, f ~ N(0, I) of few entries, e ~ N(0, s I).

In the base prior's coordinates the residual is isotropic, so that theta has the covariance R L L' R' + s C with C the
base prior's covariance. The columns of [m L] are the coefficients of a regression of u on (1, f); EM needs only sums
over people of (1, f) (1, f)', u (1, f)' and |u|^2 (Rubin & Thayer, 1982), and for each person matrices as small as the
span of its answers. A penalty keeps few people from determining hundreds of numbers each time,

    -1/2 k |m|^2 / s - 10/2 |L|^2 / s - log(s)^2 / (2 * 3^2):

loadings count ten people's weight towards 0; that of the mean, k, is chosen by the evidence, as its precision is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import People
from edpbrl_gym.estimation.population.gaussian import LOG_SPREAD, Sums, best_variance
from edpbrl_gym.estimation.population.sites import gain, rows_of

__all__ = ["Factors"]

_PULL = 10.0  # of the loadings; with less, a few hundred people are fitted too closely (docs/people.md)
_LEAST_SHARE = 0.01  # of the mean square of the means that is not due to chance


@dataclass(frozen=True, eq=False)
class Factors:
    """The parameters.

    Attributes:
        mean: m, (d,).
        loadings: L, (d, r); r = 0 is allowed.
        residual: s.
        pulls: k, then the weights of the columns of L, (1 + r,); zeros: no penalty.
    """

    mean: Floats
    loadings: Floats
    residual: float
    pulls: Floats
    tolerance: ClassVar[float] = 1e-3  # nats a person, rise of the objective in the last step of EM

    @classmethod
    def isotropic(cls, dimension: int, residual: float, shrunk: bool) -> Factors:
        """N(0, residual I)."""
        return cls(np.zeros(dimension), np.zeros((dimension, 0)), residual, np.full(1, 0.1 if shrunk else 0.0))

    def tensors(self) -> dict[str, Floats]:
        """Its arrays by name, in the shapes of its file, which knew several means."""
        return {
            "weights": np.ones(1),
            "means": self.mean[None],
            "loadings": self.loadings,
            "residual": np.array(self.residual),
            "pulls": self.pulls,
        }

    @classmethod
    def of_tensors(cls, tensors: dict[str, Floats]) -> Factors:
        """Those of ``tensors``."""
        return cls(tensors["means"][0], tensors["loadings"], float(tensors["residual"]), tensors["pulls"])

    @property
    def covariance(self) -> Floats:
        """L L' + s I, (d, d)."""
        return np.asarray(self.loadings @ self.loadings.T + self.residual * np.eye(len(self.loadings)))

    def expect(self, people: People) -> tuple[Sums, Floats, Floats]:
        """The E-step: sums over people, each person's bound (N,), and the means of u, (N, d).

        The sums are "regressors" of (1, f) (1, f)', "products" of u (1, f)', "square" of |u|^2, and "information" of
        the precisions with which the answers determine the mean, over all directions.
        """
        dimension, number = self.loadings.shape
        count = len(people)
        bounds, tastes, regressors = np.empty(count), np.empty((count, dimension)), np.ones((count, 1 + number))
        inner, cross, information = np.zeros((number, number)), np.zeros((dimension, number)), 0.0
        for place, block in enumerate(people.blocks):
            projections = block.flat @ self.loadings  # P = D L, (B, n k, r)
            kernels = np.matmul(projections, projections.transpose(0, 2, 1)) + self.residual * block.grams
            rows = rows_of(kernels, block.rows.shape[2])
            sites = people.fit(place, rows, block.offsets + block.rows @ self.mean)
            bounds[block.people] = sites.bounds
            scores = sites.scores.reshape(len(rows), 1, -1)
            factors = np.matmul(scores, projections)[:, 0]  # E f
            regressors[block.people, 1:] = factors
            own = self.residual * np.matmul(scores, block.flat)[:, 0]
            tastes[block.people] = self.mean + factors @ self.loadings.T + own
            # Cov(u) = C - C D' Q D C with C = L L' + s I, Cov(f) = I - P' Q P, Cov(u, f) = L - C D' Q P
            gained = gain(rows, sites.information)
            pulled = np.matmul(gained, projections)
            inner += np.einsum("bmr,bms->rs", projections, pulled, optimize=True)
            cross += np.einsum("bmd,bmr->dr", block.flat, pulled, optimize=True)
            information += float((gained * block.grams).sum())
        gram = self.loadings.T @ self.loadings
        squares, products = regressors.T @ regressors, tastes.T @ regressors
        squares[1:, 1:] += count * np.eye(number) - inner
        products[:, 1:] += self.loadings @ (count * np.eye(number) - inner) - self.residual * cross
        square = float(np.square(tastes).sum()) + count * (float(np.trace(gram)) + self.residual * dimension)
        square -= float((inner * gram).sum()) + 2.0 * self.residual * float(np.trace(inner))
        square -= self.residual**2 * information
        sums = {"regressors": squares, "products": products, "square": np.array(square)}
        return {**sums, "information": np.array(information)}, bounds, tastes

    def maximised(self, sums: Sums) -> Factors:
        """The parameters after one step of EM: the coefficients, then the residual variance."""
        system = sums["regressors"] + np.diag(self.pulls)
        coefficients = cho_solve(cho_factor(system, lower=True), sums["products"].T).T
        remaining = float(sums["square"]) - float((coefficients * sums["products"]).sum())
        count = float(sums["regressors"][0, 0]) * len(self.loadings)
        residual = best_variance(remaining, count, penalised=self.pulls[0] > 0)
        return Factors(coefficients[:, 0], coefficients[:, 1:], residual, self.pulls)

    def moved(self, to: Factors, length: float) -> Factors:
        """The parameters as far beyond these as ``length`` steps ``to`` others; variances in the logarithm."""
        mean, loadings = (a + length * (b - a) for a, b in ((self.mean, to.mean), (self.loadings, to.loadings)))
        return Factors(mean, loadings, self.residual * (to.residual / self.residual) ** length, self.pulls)

    def penalty(self) -> float:
        """What is added to the log-likelihood."""
        if not self.pulls[0]:
            return 0.0
        columns = np.concatenate([self.mean[:, None], self.loadings], axis=1)
        pulled = float(np.square(columns).sum(axis=0) @ self.pulls)
        return -0.5 * pulled / self.residual - 0.5 * float(np.log(self.residual) / LOG_SPREAD) ** 2

    def extended(self, sums: Sums, tastes: Floats, number: int) -> Factors:
        """With first factors, the principal axes of people's estimates (N, d), and k from the evidence.

        Pulled estimates spread too little, so the axes are shorter than the factors will be. The directions' means m_a
        have the prior variance s / k, and the answers determine each with the variance v: so the mean of m_a^2 is
        expected to be s / k + v.
        """
        pulls = np.full(1 + number, _PULL if self.pulls[0] else 0.0)
        if self.pulls[0]:
            size = float(np.square(self.mean).mean())
            by_chance = len(self.mean) / float(sums["information"])
            pulls[0] = self.residual / max(size - by_chance, _LEAST_SHARE * size, 1e-12 * self.residual)
        centred = tastes - self.mean
        _, sizes, axes = np.linalg.svd(centred, full_matrices=len(centred) < number)
        lengths = np.zeros(number)
        lengths[: len(sizes)] = sizes[:number] / np.sqrt(len(centred))
        return replace(self, loadings=np.asarray((axes[:number] * lengths[:, None]).T), pulls=pulls)
