"""One Gaussian of tastes: its parameters, their shrinkage, and a step of EM.

In the coordinates of the base prior u ~ N(m, C). C has d (d + 1) / 2 numbers, too many for few people. A penalty like
the priors of hierarchical Bayes (Rossi, Allenby & McCulloch, 2005, chapter 5) draws C to s I with the weight of k
people, and m to 0 with that of a tenth of a person,

    -k/2 (log det(C / s) + s tr(C^-1)) - 0.1/2 m' C^-1 m - log(s)^2 / (2 * 3^2),

where s is a parameter as well. The sum of this penalty and of the people's variational bounds on their log-likelihoods
rises with the best Gaussian of each person, and with each step of the population (Neal & Hinton, 1998).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import eigh, solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import People
from edpbrl_gym.estimation.population.sites import gain, reduced

__all__ = ["LOG_SPREAD", "Gaussian", "Sums", "best_variance"]

Sums = dict[str, Floats]
"""Expected sums over people, by name."""

LOG_SPREAD = 3.0  # of the scales: as in fit_prior
_PULL = 0.1  # weight of the base prior's mean, in people


@dataclass(frozen=True, eq=False)
class Gaussian:
    """The parameters.

    Attributes:
        mean: m, (d,).
        covariance: C, (d, d).
        scale: s.
        people: k, the weight of the shape s I, in people; 0: no penalty at all (maximum likelihood).
    """

    mean: Floats
    covariance: Floats
    scale: float
    people: float
    tolerance: ClassVar[float] = 1e-4  # nats a person, rise of the objective in the last step of EM

    @classmethod
    def isotropic(cls, dimension: int, scale: float, people: float) -> Gaussian:
        """N(0, scale I)."""
        return cls(np.zeros(dimension), scale * np.eye(dimension), scale, people)

    def tensors(self) -> dict[str, Floats]:
        """Its arrays by name, in the shapes of its file, which knew several Gaussians."""
        return {
            "weights": np.ones(1),
            "means": self.mean[None],
            "covariances": self.covariance[None],
            "scales": np.full(1, self.scale),
        }

    @classmethod
    def of_tensors(cls, tensors: dict[str, Floats], people: float) -> Gaussian:
        """That of ``tensors``."""
        return cls(tensors["means"][0], tensors["covariances"][0], float(tensors["scales"][0]), people)

    def expect(self, people: People) -> tuple[Sums, Floats, Floats]:
        """The E-step: sums of 1, u and u u' over people, each person's bound (N,), and the means of u, (N, d)."""
        dimension = len(self.mean)
        root = np.linalg.cholesky(self.covariance)
        bounds, tastes = np.empty(len(people)), np.empty((len(people), dimension))
        removed = np.zeros((dimension, dimension))
        for number, block in enumerate(people.blocks):
            white = block.rows @ root
            rows = reduced(white)
            sites = people.fit(number, rows, block.offsets + block.rows @ self.mean)
            bounds[block.people] = sites.bounds
            flat = white.reshape(block.flat.shape)
            inner = np.matmul(sites.scores.reshape(len(flat), 1, -1), flat)[:, 0]
            tastes[block.people] = self.mean + inner @ root.T
            pulled = np.matmul(gain(rows, sites.information), flat)
            removed += pulled.reshape(-1, dimension).T @ flat.reshape(-1, dimension)
        within = len(people) * self.covariance - root @ removed @ root.T
        sums = {"counts": np.full(1, float(len(people))), "first": tastes.sum(axis=0)[None]}
        return {**sums, "second": (tastes.T @ tastes + within)[None]}, bounds, tastes

    def maximised(self, sums: Sums) -> Gaussian:
        """The parameters after one step of EM: each in turn, given the others' last values."""
        count, first, second = float(sums["counts"][0]), sums["first"][0], sums["second"][0]
        pull = _PULL if self.people else 0.0
        mean = first / (count + pull)
        spread = second - np.outer(mean, first) - np.outer(first, mean) + (count + pull) * np.outer(mean, mean)
        spread[np.diag_indices(len(mean))] += self.people * self.scale
        covariance = (spread + spread.T) / (2 * (count + self.people))
        scale = self.scale
        if self.people:
            trace = float(np.square(_inverse_root(covariance)).sum())
            # the prior's penalty in 1 / s has the form of a Gaussian's in s
            scale = 1.0 / best_variance(self.people * trace, self.people * len(mean))
        return Gaussian(mean, covariance, scale, self.people)

    def moved(self, to: Gaussian, length: float) -> Gaussian:
        """The parameters as far beyond these as ``length`` steps ``to`` others; variances in the logarithm."""
        values, vectors = eigh(to.covariance, self.covariance)  # V' C V = I
        roots = self.covariance @ vectors * np.sqrt(values) ** length
        mean = self.mean + length * (to.mean - self.mean)
        return Gaussian(mean, roots @ roots.T, self.scale * (to.scale / self.scale) ** length, self.people)

    def penalty(self) -> float:
        """What is added to the log-likelihood."""
        if not self.people:
            return 0.0
        inverse = _inverse_root(self.covariance)
        log_scale = float(np.log(self.scale))
        log_determinant = -2.0 * float(np.log(np.diagonal(inverse)).sum()) - len(self.mean) * log_scale
        total = -0.5 * self.people * (log_determinant + self.scale * float(np.square(inverse).sum()))
        return total - 0.5 * (log_scale / LOG_SPREAD) ** 2 - 0.5 * _PULL * float(np.square(inverse @ self.mean).sum())


def best_variance(squares: float, numbers: float, penalised: bool = True) -> float:
    """The maximiser of -n / 2 log(s) - squares / (2 s) - log(s)^2 / (2 * 3^2), by Newton's method in log(s)."""
    log_variance = float(np.log(squares / numbers))
    for _ in range(100 if penalised else 0):
        pulled = 0.5 * squares * float(np.exp(-log_variance))
        step = (pulled - 0.5 * numbers - log_variance / LOG_SPREAD**2) / (pulled + 1.0 / LOG_SPREAD**2)
        log_variance += step
        if abs(step) < 1e-13 * (1.0 + abs(log_variance)):
            break
    return float(np.exp(log_variance))


def _inverse_root(covariance: Floats) -> Floats:
    """W with W' W the inverse of a covariance, lower triangular."""
    lower = np.linalg.cholesky(covariance)
    return np.asarray(solve_triangular(lower, np.eye(len(lower)), lower=True, check_finite=False))
