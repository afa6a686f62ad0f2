"""A Gaussian posterior of which only some coordinates have been compared; all others are as they were, independent.

Answers about a few items of a large pool say nothing about the deviations of all others (`ItemsPrior`). Draws, further
answers and the planners' scores need the covariance of the coordinates that were compared, and the variances of the
others; matrices of all coordinates are made when they are read.
"""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import AnyFloats, Booleans, Floats
from edpbrl_gym.estimation.posterior import Apart, Posterior

__all__ = ["ScatteredPosterior"]


class ScatteredPosterior(Posterior):
    """See the module; made by ``of``.

    Attributes:
        part: The posterior of some coordinates, (u,).
        used: Which these are, ascending, (u,).
        variances: Variances of all others, which are independent, (d,); those of ``used`` count for nothing.
    """

    part: Posterior
    used: NDArray[np.intp]
    variances: Floats

    @classmethod
    def of(cls, part: Posterior, used: NDArray[np.intp], mean: Floats, variances: Floats) -> ScatteredPosterior:
        """Arguments are the attributes, and the means of all coordinates, (d,), of which those of ``used`` are set."""
        whole = mean.copy()
        whole[used] = part.mean
        made = object.__new__(cls)
        made.__dict__.update(part=part, used=used, variances=variances, _factor=None)
        object.__setattr__(made, "mean", whole)
        object.__setattr__(made, "precision", partial(_scattered_precision, part, used, variances))
        return made

    @cached_property
    def inverse_factor(self) -> Floats:
        """As of the base class, (d, d)."""
        root = scattered(self.part.inverse_factor, self.used, np.sqrt(self.variances))
        root.flags.writeable = False
        return root

    def draws(self, size: int, rng: np.random.Generator) -> Floats:
        """As of the base class; the same draws."""
        normal = rng.standard_normal((size, self.dimension))
        drawn = self.mean + np.sqrt(self.variances) * normal
        drawn[:, self.used] = self.part.of_normals(normal[:, self.used])
        return drawn

    def think(self) -> None:
        """As of the base class."""
        self.part.think()

    def after(self, differences: Floats, offsets: Floats | None) -> Posterior:
        """As of the base class."""
        known = self._including(np.any(differences, axis=(0, 1)))
        part = known.part.after(differences[:, :, known.used], offsets)
        return ScatteredPosterior.of(part, known.used, self.mean, self.variances)

    def apart(self, rows: AnyFloats, others: Floats) -> Apart:
        """As of the base class."""
        known = self._including(np.logical_or(np.count_nonzero(rows, axis=0) > 1, np.any(others, axis=0)))
        rest = self.variances.copy()
        rest[known.used] = 0.0
        return Apart(known.part, known.used, rest)

    def _including(self, coordinates: Booleans) -> ScatteredPosterior:
        """The same, with these coordinates, (d,), among the used ones."""
        wanted = coordinates.copy()
        wanted[self.used] = True
        used = np.flatnonzero(wanted)
        if len(used) == len(self.used):
            return self
        places, variances = np.searchsorted(used, self.used), self.variances[used]
        root = scattered(self.part.inverse_factor, places, np.sqrt(variances))
        precision = partial(_scattered_precision, self.part, places, variances)
        part = Posterior.from_root(self.mean[used], root, precision)
        return ScatteredPosterior.of(part, used, self.mean, self.variances)


def _scattered_precision(part: Posterior, used: NDArray[np.intp], variances: Floats) -> Floats:
    return scattered(part.precision, used, 1.0 / variances)


def scattered(matrix: Floats, used: NDArray[np.intp], diagonal: Floats) -> Floats:
    """A matrix of the used coordinates among all, the others on the diagonal, (d, d)."""
    whole = np.diag(diagonal)
    whole[np.ix_(used, used)] = matrix
    return whole
