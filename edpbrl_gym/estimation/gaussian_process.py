"""A Gaussian process as the prior of a taste that is not linear in the features.

The utility of an option with features x is u(x) ~ GP(0, s k), k(x, y) = (1 - a) x . y + a c_l kappa_l(x, y). The kernel
kappa_l has the length scale l and is centred over landmarks z_1 .. z_m of the vocabulary; c_l makes the utilities of
two random landmarks differ as much by it as by the linear part. With its matrix K on the landmarks, kappa_l(x, y) is
nearly psi_l(x) . psi_l(y), psi_l(x) = K^-1/2 kappa_l(z, x), (m,): exactly at the landmarks, elsewhere by Nystrom's
approximation (Williams & Seeger, 2001). The symmetric root depends neither on the order nor on the signs of the
eigenvectors, so that a taste's file means the same everywhere.

So u(x) = theta . (x, psi_1(x), psi_2(x), ...) is linear in more features, a block of them for each length scale. A pair
(l, a) is a diagonal prior covariance, (1 - a, ..., a c_l, ...), under which the estimate and Laplace's method are those
of any Gaussian prior. The scale s is chosen by the evidence under each pair, and the pairs are averaged with their
evidence as weights. The blocks of other length scales keep a negligible variance.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist
from scipy.special import softmax

from edpbrl_gym._arrays import AnyFloats, Floats
from edpbrl_gym._compat import require
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array, check_choice_of, check_count, check_number
from edpbrl_gym.estimation.evidence import PriorFit, mixture_posterior, search_prior
from edpbrl_gym.estimation.map_estimate import Data, Estimate, answer_terms
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.taste_prior import Described, TastePrior
from edpbrl_gym.features.base import hash_arrays, hash_settings
from edpbrl_gym.likelihood import AnswerFormat, Terms

__all__ = ["GaussianProcessFit", "GaussianProcessPrior"]

_FLOOR = 1e-8  # share of the blocks of other length scales
_LINEAR = 0.5  # prior weight of the linear kernel alone
_RANK = 1e-10  # eigenvalues of a kernel below it, relative to the largest, are rounding
_NEGLIGIBLE = 1e-3  # weight of a pair without which questions are planned


@dataclass(frozen=True, eq=False)
class GaussianProcessFit:
    """Estimates under kernels of several length scales and shares, and their average.

    Attributes:
        parts: The linear kernel alone, then each pair (length scale, share).
        weights: Their posterior weights, sum 1.
        kernels: Their pairs (l, a), with a = 0 first.
        terms: The answers.
    """

    parts: tuple[PriorFit, ...]
    weights: Floats
    kernels: tuple[tuple[float, float], ...]
    terms: Terms = field(repr=False)

    @property
    def hedged(self) -> int:
        """None: no part was selected with the same answers."""
        return len(self.parts)

    @property
    def theta(self) -> Floats:
        """The average of the estimates, (d,)."""
        return np.asarray(self.weights @ np.stack([part.mean for part in self.parts]))

    @property
    def estimate(self) -> Estimate:
        """That of the heaviest part with the averaged theta; ``converged`` if all did."""
        one = self.parts[int(self.weights.argmax())].estimate
        return replace(one, theta=self.theta, converged=all(part.estimate.converged for part in self.parts))

    @functools.cached_property
    def planned(self) -> Posterior:
        """The Gaussian with the moments of Laplace's posteriors."""
        kept = np.flatnonzero(self.weights > _NEGLIGIBLE)
        shares = self.weights[kept] / self.weights[kept].sum()
        return Posterior.of_mixture([self.parts[number].posterior for number in kept.tolist()], shares)

    @functools.cached_property
    def posterior(self) -> Posterior:
        """`mixture_posterior` of all parts."""
        return mixture_posterior(self.parts, self.weights, self.terms)


class GaussianProcessPrior(TastePrior):
    """The prior u ~ GP(0, s k) of this module, as features that theta is about.

    Args:
        features: Embeddings of a vocabulary, or other options' features, (N, D).
        kernel: "rbf", "matern" (smoothness 5/2), or "linear" alone, which is the ridge with its scale from the answers.
        length_scales: L, in units of the landmarks' median distance, each > 0.
        shares: A, each in (0, 1).
        landmarks: M, the largest number of landmarks; of more rows as many are drawn.

    Raises:
        ModuleNotFoundError: scikit-learn isn't installed.
        ValueError: Fewer than two rows, NaN, rows that are all equal, or an argument out of its range.
    """

    label = "gaussian_process"

    def __init__(
        self,
        features: ArrayLike,
        *,
        kernel: Literal["rbf", "matern", "linear"] = "rbf",
        length_scales: Sequence[float] = (0.5, 1.0),
        shares: Sequence[float] = (0.5, 0.9),
        landmarks: int = 64,
    ) -> None:
        rows = check_array(features, "features", shape=("N", "D"))
        most = check_count(landmarks, "landmarks", minimum=2)
        if len(rows) > most:
            rows = rows[np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))]
        check_choice_of(kernel, "kernel", ("rbf", "matern", "linear"))
        relative = [check_number(one, "length_scales", minimum=0.0, exclusive=True) for one in length_scales]
        self.shares = tuple(check_number(one, "shares", minimum=0.0, exclusive=True) for one in shares)
        if max(self.shares, default=0.0) >= 1.0:
            raise ValueError(f"Expected shares in (0, 1), got {list(shares)}; the linear part keeps some")
        distances = pdist(rows) if len(rows) > 1 else np.zeros(1)
        if not distances.any():
            raise ValueError(f"Expected at least two different rows of features, got features of shape {rows.shape}")
        self._landmarks = np.array(rows)
        self.options = {"kernel": kernel, "length_scales": relative, "shares": list(self.shares), "landmarks": most}
        self.length_scales = () if kernel == "linear" else tuple(one * float(np.median(distances)) for one in relative)
        kernels = require("sklearn.gaussian_process.kernels", "the prior 'gp'")
        make = kernels.RBF if kernel == "rbf" else functools.partial(kernels.Matern, nu=2.5)
        self._kernels = [make(scale) for scale in self.length_scales]
        matrices = [one(self._landmarks) for one in self._kernels]
        self._means = [matrix.mean(axis=0) for matrix in matrices]
        matrices = [_centred(matrix, means) for matrix, means in zip(matrices, self._means, strict=True)]
        self._roots = [_inverse_root(matrix) for matrix in matrices]
        self.space = "" if kernel == "linear" else hash_settings([self.options, hash_arrays({"z": self._landmarks})])
        spread = float(np.square(distances).mean())
        sizes = [rows.shape[1], *[len(rows)] * len(matrices)]
        self._blocks = np.repeat(np.arange(len(sizes)), sizes)
        # the mean squared distance of two landmarks by a kernel is 2 tr(K) / (m - 1)
        factors = [1.0, *(spread * (len(rows) - 1) / (2.0 * float(np.trace(matrix))) for matrix in matrices)]
        self.kernels = ((0.0, 0.0), *((scale, share) for scale in self.length_scales for share in self.shares))
        chosen = [(block, share) for block in range(1, len(sizes)) for share in self.shares]
        self.bases = (
            self._gaussian({0: 1.0}, factors),
            *(self._gaussian({0: 1.0 - share, block: share}, factors) for block, share in chosen),
        )
        rest = len(self.bases) - 1
        self.weights = np.array([_LINEAR, *[(1.0 - _LINEAR) / rest] * rest]) if rest else np.ones(1)

    def _gaussian(self, shares: dict[int, float], factors: list[float]) -> GaussianPrior:
        """N(0, diag) with the share and the factor of each block."""
        diagonal = np.array([shares.get(int(block), _FLOOR) * factors[block] for block in self._blocks])
        return GaussianPrior.diagonal(diagonal)

    @property
    def fingerprint(self) -> str:
        """That of the map and its options."""
        return self.space or hash_settings(self.options)

    @property
    def dimension(self) -> int:
        """Number of features that theta is about."""
        return len(self._blocks)

    @property
    def landmarks(self) -> Floats | None:
        """The landmarks, (m, D)."""
        return self._landmarks if self.space else None

    def feature_map(self, rows: AnyFloats) -> AnyFloats:
        """(x, psi_1(x), psi_2(x), ...), (..., d), of features x, (..., D).

        Raises:
            ValueError: Another number of features than the landmarks have.
        """
        if not self.space:
            return rows
        flat = np.asarray(rows, dtype=np.float64).reshape(-1, np.shape(rows)[-1])
        check_array(flat, "features", shape=("n", self._landmarks.shape[1]), hint="as the landmarks have")
        blocks = zip(self._kernels, self._means, self._roots, strict=True)
        curved = [_centred(kernel(flat, self._landmarks), means) @ root for kernel, means, root in blocks if len(flat)]
        return np.concatenate([flat, *curved], axis=1).reshape(*np.shape(rows)[:-1], self.dimension)

    def start(self) -> Posterior:
        """The Gaussian with the average covariance of all kernels, s = 1."""
        variances = self.weights @ np.stack([1.0 / np.diagonal(base.precision) for base in self.bases])
        return Posterior(np.zeros(self.dimension), np.diag(1.0 / variances))

    @one_blas_thread()  # many small products
    def fit(self, data: Data, *, model: AnswerFormat | None = None) -> GaussianProcessFit:
        """Estimate under each kernel, and average by the evidence.

        Args:
            data: Answers about features of ``feature_map``, as for ``estimate``.
            model: Response model, as for ``estimate``.

        Raises:
            TypeError, ValueError: As for ``fit_prior``.
        """
        terms = answer_terms(data, model)
        parts = tuple(search_prior(terms, base=base) for base in self.bases)
        weights = softmax(np.log(self.weights) + [part.log_evidence for part in parts])
        return GaussianProcessFit(parts, np.asarray(weights), self.kernels, terms)

    def described(self, fit: GaussianProcessFit) -> Described:
        """By the heaviest kernel."""
        best = int(fit.weights.argmax())
        (scale, share), curved = fit.kernels[best], 1.0 - float(fit.weights[0])
        facts = {"prior": "gp", "prior_options": self.options, "length_scale": scale, "share": share}
        facts |= {"scale": fit.parts[best].scale, "scale_from": "answers", "weight_of_the_kernel": curved}
        facts["log_evidence"] = fit.parts[best].log_evidence
        return Described(f"Gaussian process ({self.options['kernel']}, weight of the kernel {curved:.0%})", facts)


def _centred(matrix: Floats, means: Floats) -> Floats:
    """Values of a kernel at n points and the m landmarks, (n, m), centred over the landmarks, whose means are (m,)."""
    return np.asarray(matrix - matrix.mean(axis=1, keepdims=True) - means + means.mean())


def _inverse_root(matrix: Floats) -> Floats:
    """The symmetric K^-1/2 on the span of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > _RANK * values[-1]
    return np.asarray((vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T)
