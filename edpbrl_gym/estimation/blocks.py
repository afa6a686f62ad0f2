"""A prior for features in blocks, such as those of a text and of its picture, each with a scale of its own.

How much of a taste is about what the words say, and how much about what the picture shows, differs from person to
person. The utility of an option with features x = (x_1, ..., x_B) is a sum over the blocks, and in each block

    theta_b ~ N(0, s_b^2 C_b),

with C_b from the embeddings of a vocabulary or a pool about their mean: in the directions v_i of its principal
components, with variances w_i, C_b = sum_i v_i v_i' w_i^power / sum_j w_j^(1 + power). So s_b^2 is the variance of the
block's utility over the pool. The scales s_b maximise the Laplace evidence of the answers
(`WhitenedAnswers.log_evidence_slopes`) times a log-normal prior, climbing from the best common scale (`search_prior`).
That prior says little about the common scale, and more about the ratios: 20 answers alone would often give all of a
taste to one block.

A block may have more features than answers can say anything about: theta is about the leading components of each block
(``feature_map``), each in units of its prior deviation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import qr
from scipy.optimize import minimize

from edpbrl_gym._arrays import AnyFloats, Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.estimation.evidence import PriorFit, search_prior
from edpbrl_gym.estimation.map_estimate import Data, answer_differences, answer_terms
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.prior_scale import BOUNDS
from edpbrl_gym.estimation.taste_prior import Described, TastePrior
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.features.base import hash_arrays, hash_settings
from edpbrl_gym.likelihood import AnswerFormat, Terms

__all__ = ["BlocksFit", "BlocksPrior"]

_COMMON = 3.0  # deviation of the log of the common scale under its prior, as for a prior with one scale
_RATIO = 1.0  # of the log of a block's scale from the common one
_RANK = 1e-10  # variances of components below it, relative to the largest, are rounding


@dataclass(frozen=True, eq=False)
class BlocksFit(PriorFit):
    """The estimate under the scales with the highest evidence.

    Attributes:
        scales: s_b^2 of each block, (B,).
    """

    scales: Floats = None  # type: ignore[assignment]  # always given

    @property
    def shares(self) -> Floats:
        """Share of each block in the prior variance of a utility, (B,)."""
        return np.asarray(self.scales / self.scales.sum())


class BlocksPrior(TastePrior):
    """The prior of this module.

    Args:
        features: Embeddings of a vocabulary or a pool, (N, D); or the rows of ``landmarks``, if ``mapped``.
        blocks: Numbers of features of the blocks, which add up to D; None: one block.
        power: Exponent of the variances of the components, >= 0, as of `VocabularyPrior`.
        components: Largest number of components of a block.
        mapped: Whether ``features`` are the landmarks of such a prior.

    Raises:
        ValueError: Fewer than two rows, NaN, a block whose rows are all equal, blocks that don't add up to D.
    """

    label = "blocks"

    def __init__(
        self,
        features: ArrayLike,
        *,
        blocks: Sequence[int] | None = None,
        power: float = 0.75,
        components: int = 100,
        mapped: bool = False,
    ) -> None:
        rows = check_array(features, "features", shape=("N", "D"))
        widths = [rows.shape[1]] if blocks is None else [check_count(width, "blocks") for width in blocks]
        if sum(widths) != rows.shape[1]:
            raise ValueError(f"Expected blocks of {rows.shape[1]} features together, got {widths}")
        self.blocks = tuple(widths)
        power = check_number(power, "power", minimum=0.0)
        most = check_count(components, "components")
        if mapped:
            mean, maps = rows[0], rows[1:]
        else:
            mean = rows.mean(axis=0)
            maps = np.concatenate([_leading(rows - mean, part, power, most) for part in _slices(widths)])
        self._mean, self._maps = mean, maps
        starts = [np.flatnonzero(row)[0] for row in maps]
        sizes = np.histogram(starts, np.cumsum([0, *widths]))[0].tolist()
        self.parts = tuple(_slices(sizes))  # of theta
        self.options = {"blocks": list(widths), "mapped": True}
        self.space = hash_settings([self.options, hash_arrays({"landmarks": self.landmarks})])
        self._typical = 1.0 / len(widths)
        self._base = GaussianPrior.isotropic(self.dimension, 1.0)

    @property
    def fingerprint(self) -> str:
        """That of the map."""
        return self.space

    @property
    def dimension(self) -> int:
        """Number of components of all blocks."""
        return len(self._maps)

    @cached_property
    def landmarks(self) -> Floats:
        """The mean of the embeddings, and the rows of the map, (d + 1, D)."""
        return np.concatenate([self._mean[None], self._maps])

    def feature_map(self, rows: AnyFloats) -> AnyFloats:
        """The components of features (..., D), in units of their prior deviations at s_b = 1, (..., d).

        Raises:
            ValueError: Another number of features.
        """
        given = np.asarray(rows, dtype=np.float64)
        flat = check_array(given.reshape(-1, given.shape[-1]), "features", shape=("n", len(self._mean)))
        return np.asarray((flat - self._mean) @ self._maps.T).reshape(*given.shape[:-1], self.dimension)

    def start(self) -> Posterior:
        """N(0, I / B)."""
        return self._gaussian(np.full(len(self.parts), self._typical)).start()

    def fit(self, data: Data, *, model: AnswerFormat | None = None) -> BlocksFit:
        """Choose the scales by the evidence of answers about features of ``feature_map``, and estimate.

        Raises:
            TypeError, ValueError: As for ``fit_prior``.
        """
        with one_blas_thread():  # many small products
            terms = answer_terms(data, model)
            scales, theta = self._search(terms)
            answers = WhitenedAnswers(*answer_differences(terms), self._gaussian(scales))
            answers.start_at(theta)
            found, prior, evidence = answers.estimate(1.0)
            return BlocksFit(prior, found, 1.0, evidence, scales=scales)

    def described(self, fit: BlocksFit) -> Described:
        """By the shares of the blocks."""
        facts = {"prior": "blocks", "prior_options": self.options, "scales": fit.scales.tolist()}
        facts |= {"scale_from": "answers", "log_evidence": fit.log_evidence}
        shares = ", ".join(
            f"{width} features {share:.0%}" for width, share in zip(self.blocks, fit.shares, strict=True)
        )
        return Described(f"blocks of features ({shares})", facts)

    def _gaussian(self, scales: Floats) -> GaussianPrior:
        return GaussianPrior.diagonal(np.repeat(scales, [part.stop - part.start for part in self.parts]))

    def _search(self, terms: Terms) -> tuple[Floats, Floats]:
        """The scales with the highest evidence, (B,), and an estimate of theta under them."""
        common = search_prior(terms, base=self._base, typical_scale=self._typical)
        count = len(self.parts)
        if count == 1:
            return np.array([common.scale]), common.estimate.theta
        typical = np.full(count, self._typical)
        scales = ScalesOfBlocks(*answer_differences(terms), self.parts, typical, common=_COMMON, ratio=_RATIO)
        found = scales.climb(np.full(count, common.scale))
        return found, common.estimate.theta


class ScalesOfBlocks:
    """The evidence of answers as a function of the scale of each block of theta ~ N(0, diag(s_b^2 I)).

    In each block the answers depend on the span of its differences only, which may have fewer dimensions.

    Args:
        differences: Differences to the chosen alternatives, (n, K - 1, d).
        offsets: Their offsets, (n, K - 1), or None.
        parts: The blocks.
        typical: Medians of s_b^2 under their log-normal prior, (B,).
        common: Deviation of the log of a common factor of all s_b^2 under that prior.
        ratio: Deviation of the log of each s_b^2 beside it.
    """

    def __init__(
        self,
        differences: Floats,
        offsets: Floats | None,
        parts: Sequence[slice],
        typical: Floats,
        *,
        common: float,
        ratio: float,
    ) -> None:
        self._offsets = offsets
        shape, reduced = differences.shape[:2], []
        for part in parts:
            rows = differences[:, :, part].reshape(shape[0] * shape[1], part.stop - part.start)
            if len(rows) < rows.shape[1]:
                rows = np.ascontiguousarray(qr(rows.T, mode="r")[0][: len(rows)].T)
            reduced.append(rows.reshape(*shape, rows.shape[1] if len(rows) else 1))
        self._parts = tuple(_slices([rows.shape[2] for rows in reduced]))
        self._rows = np.concatenate(reduced, axis=2)
        self._base = GaussianPrior.isotropic(self._rows.shape[2], 1.0)
        self._typical = np.log(typical)
        count = len(parts)
        self._precision = np.linalg.inv(ratio**2 * np.eye(count) + common**2 * np.ones((count, count)))

    def log_evidence(self, log_scales: Floats) -> tuple[float, Floats]:
        """Laplace log evidence, and its derivatives by the logs of the scales, (B,)."""
        return self._scaled(np.exp(0.5 * log_scales)).log_evidence_slopes(self._parts)

    def log_evidences(self, scales: Floats, factors: Floats) -> list[float]:
        """Laplace log evidence at multiples of the scales (B,), one for each factor."""
        answers = self._scaled(np.sqrt(scales))
        return [answers.log_evidence(factor) for factor in factors.tolist()]

    def _scaled(self, roots: Floats) -> WhitenedAnswers:
        """The answers at the roots s_b of the scales, (B,)."""
        scaled = [root * self._rows[:, :, part] for root, part in zip(roots, self._parts, strict=True)]
        return WhitenedAnswers(np.concatenate(scaled, axis=2), self._offsets, self._base)

    def climb(self, start: Floats) -> Floats:
        """The local maximum of evidence times prior from scales (B,)."""

        def loss(log_scales: Floats) -> tuple[float, Floats]:
            value, slopes = self.log_evidence(log_scales)
            away = log_scales - self._typical
            pull = self._precision @ away
            return 0.5 * float(away @ pull) - value, pull - slopes

        low, high = (self._typical + np.log(bound) for bound in BOUNDS)
        bounds = list(zip(low, high, strict=True))
        found = minimize(
            loss, np.log(start), jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-6, "gtol": 1e-3}
        )
        return np.asarray(np.exp(found.x))


def _slices(sizes: Sequence[int]) -> Iterator[slice]:
    ends = np.cumsum([0, *sizes]).tolist()
    return (slice(first, end) for first, end in zip(ends[:-1], ends[1:], strict=True))


def _leading(rows: Floats, part: slice, power: float, most: int) -> Floats:
    """The map to the leading components of a block of centred rows, (k, D), zero outside of the block."""
    block = rows[:, part]
    _, sizes, directions = np.linalg.svd(block, full_matrices=False)
    variances = np.square(sizes) / len(rows)
    if not variances[0] > 0:
        raise ValueError(
            f"Expected rows that differ in each block, got equal ones in features {part.start}..{part.stop}"
        )
    kept = min(most, int((variances > _RANK * variances[0]).sum()))
    weights = np.sqrt(variances[:kept] ** power / (variances ** (1.0 + power)).sum())
    maps = np.zeros((kept, rows.shape[1]))
    maps[:, part] = weights[:, None] * directions[:kept]
    return maps
