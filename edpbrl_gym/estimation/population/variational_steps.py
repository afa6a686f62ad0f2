"""Expectation by variational Gaussians: the E-step for many features.

Importance sampling needs too many points there. The sum of the people's variational bounds takes the place of the
log-likelihood: the best Gaussian of each person raises it, and so does each step of the population (Neal & Hinton,
1998).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.blocks import WarmSites, blocks_of
from edpbrl_gym.estimation.population.cloud import Expectation
from edpbrl_gym.estimation.population.geometry import reduction
from edpbrl_gym.estimation.population.parts import Moments, Parts
from edpbrl_gym.estimation.population.sites import Sites

__all__ = ["VariationalPeople"]


class VariationalPeople:
    """People's answers, and their fits under the parts of a population."""

    def __init__(self, people: Sequence[Answered]) -> None:
        self._blocks = blocks_of(people)
        self._count = len(people)
        self.fits = WarmSites()

    def expect(self, parts: Parts) -> Expectation:
        """The E-step: statistics and bounds. Weights of the parts are proportional to the exponential of the bounds."""
        number = len(parts)
        roots = np.asarray(np.linalg.cholesky(parts.covariances), dtype=np.float64)
        bounds = np.empty((self._count, number))
        fits: dict[tuple[int, int], Sites] = {}
        for index, block in enumerate(self._blocks):
            for part in range(number):
                offsets = block.offsets_at(parts.means[part])
                fits[index, part] = self.fits.fit(index, part, block.under(roots[part]), offsets)
                bounds[block.people, part] = fits[index, part].bounds
        logs = bounds + np.log(parts.weights)
        likelihoods = logsumexp(logs, axis=1)
        memberships = np.exp(logs - likelihoods[:, None])
        moments = self._moments(parts, roots, fits, memberships)
        return Expectation(moments, likelihoods, memberships, np.ones(self._count))

    def _moments(self, parts: Parts, roots: Floats, fits: dict[tuple[int, int], Sites], memberships: Floats) -> Moments:
        number, dimension = parts.means.shape
        moments = Moments(
            memberships.sum(axis=0), np.zeros((number, dimension)), np.zeros((number, dimension, dimension))
        )
        for part, root in enumerate(roots):
            removed = np.zeros((dimension, dimension))
            for index, block in enumerate(self._blocks):
                found, shares = fits[index, part], memberships[block.people, part]
                rows = block.rows @ root
                inner = np.matmul(found.scores.reshape(len(rows), 1, -1), rows.reshape(block.flat.shape))[:, 0]
                means = parts.means[part] + inner @ root.T
                moments.first[part] += shares @ means
                moments.second[part] += (means * shares[:, None]).T @ means
                removed += reduction(rows, found.information, shares)
            moments.second[part] += moments.counts[part] * parts.covariances[part] - root @ removed @ root.T
        return moments
