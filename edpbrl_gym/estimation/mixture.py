"""A mixture of Gaussian posteriors, as the answers leave it where a person may be unlike all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count
from edpbrl_gym.comparisons.queries import QuestionShape
from edpbrl_gym.estimation.posterior import Posterior

__all__ = ["MixturePosterior"]

_NEGLIGIBLE = 1e-3  # weight of a part that is left out


@dataclass(frozen=True, eq=False, kw_only=True)
class MixturePosterior(Posterior):
    """A mixture of Gaussians; mean, precision, intervals and accuracies are those of the Gaussian with its moments.

    Attributes:
        mean: Mean of the mixture, (d,).
        precision: Inverse of its covariance, (d, d).
        parts: Its Gaussians, at least two.
        weights: Their weights, sum 1.
    """

    parts: tuple[Posterior, ...] = field(repr=False)
    weights: Floats

    @classmethod
    def of(cls, parts: Sequence[Posterior], weights: ArrayLike) -> Posterior:
        """The mixture, without parts of a weight below 0.001; the part itself where only one is left.

        Args:
            parts: Gaussians of one dimension, at least one.
            weights: Their weights >= 0, sum 1.

        Raises:
            ValueError: Weights of another number, negative, or with another sum.
        """
        whole = Posterior.of_mixture(parts, weights)  # checks them
        shares = np.asarray(weights, dtype=np.float64)
        kept = np.flatnonzero(shares > min(_NEGLIGIBLE, float(shares.max()) / 2))
        if len(kept) == 1:
            return parts[int(kept[0])]
        shares = shares[kept] / shares[kept].sum()
        found = tuple(parts[int(number)] for number in kept)
        if len(kept) < len(parts):
            whole = Posterior.of_mixture(found, shares)
        return cls(whole.mean, whole.precision, parts=found, weights=shares)

    def choice_probabilities(self, options: ArrayLike | Sequence[ArrayLike] | QuestionShape) -> Floats:
        """E[softmax(X theta)] under the mixture itself, (n, K); see `Posterior.choice_probabilities`."""
        found = [part.choice_probabilities(options) for part in self.parts]
        return np.asarray(np.tensordot(self.weights, found, axes=1))

    def draws(self, size: int, rng: np.random.Generator) -> Floats:
        """``size`` >= 0 draws from the mixture itself, (size, d), part after part.

        They are stratified: each part gives its share of the draws, rounded up or down at random, so that a few draws
        show the parts in their proportions.

        Raises:
            ValueError: Size < 0.
        """
        number = check_count(size, "size", minimum=0)
        ends = np.floor(np.cumsum(self.weights) * number + rng.random()).astype(np.int64)
        ends[-1] = number
        counts = np.diff(np.minimum(ends, number), prepend=0)
        return np.concatenate([part.draws(int(count), rng) for part, count in zip(self.parts, counts, strict=True)])
