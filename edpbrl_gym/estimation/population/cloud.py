"""Expectation by importance sampling with fixed points: the exact E-step for up to 20 features.

Person i gets points theta_is from a proposal q_i: Gaussians near the posterior under each part, and the parts
themselves, with fixed shares (Hesterberg, 1995). The likelihood of a population f is then

    L_i(f) = 1/S sum_s p(answers_i | theta_is) f(theta_is) / q_i(theta_is),

which converges to the integral as S grows. As the points stay the same, its logarithm is that of a finite mixture, and
the steps of EM raise it exactly, not only on average (Wei & Tanner, 1990, draw anew each time).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.blocks import blocks_of
from edpbrl_gym.estimation.population.geometry import inverse_lower
from edpbrl_gym.estimation.population.parts import Moments, Parts
from edpbrl_gym.estimation.population.points import log_normal, normal_net
from edpbrl_gym.estimation.population.sites import fit_sites

__all__ = ["Cloud", "Expectation", "Proposals"]

_GRID = {1: 256, 2: 64}  # points along each axis of a product grid, by the number of features
_REACH = 6.0  # standard deviations
_COARSE = 8  # logarithm of the number of points up to which the memory allows no grid
_ENOUGH = 10  # effective points for each number of a mean, from which the moments of points are trusted
_TOLERANCE = 1e-2  # nats, of variational Gaussians
_BLOCK_NUMBERS = 1 << 20  # numbers in a block of people: stays in the cache


@dataclass(frozen=True, eq=False)
class Proposals:
    """A Gaussian near each person's posterior under each part.

    Attributes:
        means: (N, M, d).
        covariances: (N, M, d, d).
    """

    means: Floats
    covariances: Floats

    @classmethod
    def variational(cls, people: Sequence[Answered], parts: Parts) -> Proposals:
        """The variational Gaussians."""
        number, dimension = parts.means.shape
        means = np.empty((len(people), number, dimension))
        covariances = np.empty((len(people), number, dimension, dimension))
        roots = np.linalg.cholesky(parts.covariances)
        for block in blocks_of(people):
            for part, root in enumerate(roots):
                offsets = block.offsets_at(parts.means[part])
                found = fit_sites(block.under(root), offsets, tolerance=_TOLERANCE)
                rows = block.rows @ root
                flat = rows.reshape(block.flat.shape)
                inner = np.matmul(found.scores.reshape(len(rows), 1, -1), flat)[:, 0]
                precision = np.matmul(
                    flat.transpose(0, 2, 1), np.matmul(found.information, rows).reshape(flat.shape)
                ) + np.eye(dimension)
                white = np.matmul(inverse_lower(np.linalg.cholesky(precision)), root.T)
                means[block.people, part] = parts.means[part] + inner @ root.T
                covariances[block.people, part] = np.matmul(white.transpose(0, 2, 1), white)
        return cls(means, covariances)


@dataclass(frozen=True, eq=False)
class Expectation:
    """What the people say under one population.

    Attributes:
        moments: Expected sufficient statistics.
        log_likelihoods: log L_i, (N,).
        memberships: Posterior probabilities of the parts, (N, M).
        effective: Effective share of each person's points, (N,).
    """

    moments: Moments
    log_likelihoods: Floats
    memberships: Floats
    effective: Floats


class Cloud:
    """Points of all people, and their likelihoods.

    Args:
        people: N people's answers.
        proposals: Gaussians near their posteriors.
        parts: The population under which the proposals were made; some points come from its parts.
        log_points: Each part gets 2^log_points points from its proposal and half as many from itself.
        seed: Of the points.
    """

    def __init__(
        self, people: Sequence[Answered], proposals: Proposals, parts: Parts, log_points: int, seed: int
    ) -> None:
        self.points: Floats
        self._log_ratio: Floats
        if parts.dimension in _GRID and len(parts) == 1 and log_points > _COARSE:
            self._lay_grids(people, proposals, parts)
        else:
            self._draw(people, proposals, parts, log_points, seed)

    def _lay_grids(self, people: Sequence[Answered], proposals: Proposals, parts: Parts) -> None:
        """Product grids for one or two features: the trapezoidal rule, whose error falls exponentially.

        In the coordinates w of the proposal the grid is w = 2 sinh(t) along each axis, with t equally spaced and as far
        out as six standard deviations of the proposal and of the part.
        """
        dimension = parts.dimension
        size = _GRID[dimension]
        lower = np.linalg.cholesky(proposals.covariances[:, 0])
        self.points = np.empty((len(people), size**dimension, dimension))
        self._log_ratio = np.empty(self.points.shape[:2])
        for row, person in enumerate(people):
            mean, root = proposals.means[row, 0], lower[row]
            centre = np.linalg.solve(root, parts.means[0] - mean)
            inside = np.linalg.solve(root, np.linalg.solve(root, parts.covariances[0]).T)
            reach = np.maximum(np.abs(centre) + _REACH * np.sqrt(np.diagonal(inside)), _REACH)
            ends = np.arcsinh(reach / 2.0)
            steps = np.linspace(-ends, ends, size)
            axes = [*(2.0 * np.sinh(steps)).T]
            log_cells = [*(np.log(2.0 * np.cosh(steps)) + np.log(2.0 * ends / (size - 1))).T]
            grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dimension)
            self.points[row] = mean + grid @ root.T
            cells = sum(np.meshgrid(*log_cells, indexing="ij"), start=np.zeros(())).ravel()
            self._log_ratio[row] = person.log_likelihood(self.points[row]) + cells
            self._log_ratio[row] += float(np.log(np.diagonal(root)).sum())

    def _draw(self, people: Sequence[Answered], proposals: Proposals, parts: Parts, log_points: int, seed: int) -> None:
        """Quasi-random points of the proposals and of the parts."""
        count, dimension = len(people), parts.dimension
        near, far = 1 << log_points, 1 << (log_points - 1)
        self.points = np.empty((count, (near + far) * len(parts), dimension))
        self._log_ratio = np.empty(self.points.shape[:2])
        lower = np.linalg.cholesky(proposals.covariances)
        inverse = np.linalg.inv(lower)
        part_lower = np.linalg.cholesky(parts.covariances)
        part_inverse = np.linalg.inv(part_lower)
        share = float(np.log(near / self.points.shape[1])), float(np.log(far / self.points.shape[1]))
        for row, person in enumerate(people):
            rng = generator(seed, "population", row)
            blocks = []
            for part in range(len(parts)):
                normal = normal_net(dimension, log_points, rng.random(dimension))
                blocks.append(proposals.means[row, part] + normal @ lower[row, part].T)
                normal = normal_net(dimension, log_points - 1, rng.random(dimension))
                blocks.append(parts.means[part] + normal @ part_lower[part].T)
            points = np.concatenate(blocks)
            logs = [
                share[kind] + log_normal(points, mean, root)
                for kind, means, roots in (
                    (0, proposals.means[row], inverse[row]),
                    (1, parts.means, part_inverse),
                )
                for mean, root in zip(means, roots, strict=True)
            ]
            self.points[row] = points
            self._log_ratio[row] = person.log_likelihood(points) - np.logaddexp.reduce(logs, axis=0)
        self._log_ratio -= np.log(self.points.shape[1])

    def expect(self, parts: Parts) -> Expectation:
        """The E-step: sufficient statistics and likelihoods under a population."""
        count, size, dimension = self.points.shape
        number = len(parts)
        total = Moments(np.zeros(number), np.zeros((number, dimension)), np.zeros((number, dimension, dimension)))
        likelihoods, memberships, effective = np.empty(count), np.empty((count, number)), np.empty(count)
        for block, weights, logs in self._blocks(parts):
            likelihoods[block] = logs
            memberships[block] = weights.sum(axis=2).T
            effective[block] = 1.0 / (np.square(weights.sum(axis=0)).sum(axis=1) * size)
            points = self.points[block].reshape(-1, dimension)
            for part in range(number):
                flat = weights[part].reshape(-1, 1)
                weighted = points * flat
                total.counts[part] += float(flat.sum())
                total.first[part] += weighted.sum(axis=0)
                total.second[part] += weighted.T @ points
        return Expectation(total, likelihoods, memberships, effective)

    def proposals(self, people: Sequence[Answered], parts: Parts) -> Proposals:
        """Gaussians with the moments of the weighted points; where too few points count, variational ones."""
        dimension = parts.dimension
        shape = len(people), len(parts), dimension
        means, covariances, few = np.empty(shape), np.empty((*shape, dimension)), []
        for block, weights, _ in self._blocks(parts):
            points = self.points[block]
            for part in range(len(parts)):
                own = weights[part] / np.maximum(weights[part].sum(axis=1, keepdims=True), 1e-300)
                mean = np.matmul(own[:, None, :], points)[:, 0]
                centred = points - mean[:, None, :]
                covariance = np.matmul((centred * own[:, :, None]).transpose(0, 2, 1), centred)
                means[block, part], covariances[block, part] = mean, covariance
                effective = own.sum(axis=1) ** 2 / np.maximum(np.square(own).sum(axis=1), 1e-300)
                few.append(block.start + np.flatnonzero(effective < _ENOUGH * (dimension + 1)))
        rows = np.unique(np.concatenate(few))
        if len(rows):
            other = Proposals.variational([people[row] for row in rows], parts)
            means[rows], covariances[rows] = other.means, other.covariances
        return Proposals(means, covariances)

    def _blocks(self, parts: Parts) -> Iterator[tuple[slice, Floats, Floats]]:
        """Blocks of people with the weights of their points, (M, n, S), sum 1 for each person, and log L_i, (n,)."""
        count, size, dimension = self.points.shape
        inverse = np.linalg.inv(np.linalg.cholesky(parts.covariances))
        step = max(1, _BLOCK_NUMBERS // (size * dimension))
        for start in range(0, count, step):
            block = slice(start, start + step)
            points = self.points[block].reshape(-1, dimension)
            logs = np.empty((len(parts), *self._log_ratio[block].shape))
            for part, (weight, mean, root) in enumerate(zip(parts.weights, parts.means, inverse, strict=True)):
                density = log_normal(points, mean, root).reshape(logs.shape[1:])
                logs[part] = self._log_ratio[block] + density + np.log(weight)
            largest = logs.max(axis=(0, 2), keepdims=True)
            weights = np.exp(logs - largest)
            total = weights.sum(axis=(0, 2), keepdims=True)
            weights /= total
            yield block, weights, (np.log(total) + largest)[0, :, 0]
