"""Gaussian priors over the taste: a ridge, any precision matrix, from embeddings or attributes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, lapack
from scipy.linalg.blas import dtrsv

from edpbrl_gym._arrays import Floats, read_only
from edpbrl_gym._files import replacing
from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.covariance import ledoit_wolf_intensity, spectrum
from edpbrl_gym.estimation.taste_prior import Described, TastePrior

if TYPE_CHECKING:
    from edpbrl_gym.estimation.evidence import PriorFit
    from edpbrl_gym.estimation.map_estimate import Data
    from edpbrl_gym.estimation.posterior import Posterior
    from edpbrl_gym.likelihood import AnswerFormat

__all__ = ["GaussianPrior", "attribute_prior"]

_SAFE_FLOOR = 1e-8  # of relative variances: above it a precision is positive definite in floating point
_BLOCK = 4096  # rows


@dataclass(frozen=True, eq=False)
class GaussianPrior(TastePrior):
    """A Gaussian prior over theta, given by its precision (inverse covariance) and its mean.

    Attributes:
        precision: Symmetric positive semidefinite matrix, (d, d). A singular one makes the prior improper: it says
            nothing about the directions of its null space, where the answers alone must determine theta.
        mean: Mean, (d,); None: zeros.
        null_space: Orthonormal basis of the null space, (d, r); r = 0 for a proper prior. Computed.
        log_determinant: Log determinant of the precision, without its zero eigenvalues. Computed.

    Raises:
        ValueError: The matrix is not square, not symmetric, not finite or has a negative eigenvalue, or the mean has
            another length.
    """

    file = "prior.npz"
    is_fixed = True
    fallback_weight = 0.03

    precision: Floats
    mean: Floats = None  # type: ignore[assignment]  # never None after __post_init__
    null_space: Floats = field(init=False, repr=False)
    log_determinant: float = field(init=False, repr=False)
    _root: Floats | None = field(init=False, repr=False, default=None)  # of the covariance, once it is known
    _ridge: float | None = field(init=False, repr=False, default=None)  # lambda, where the precision is lambda I

    def __post_init__(self) -> None:
        matrix = check_array(self.precision, "precision", shape=("d", "d"))
        if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 1:
            raise ValueError(f"Expected a square precision matrix (d, d), got shape {matrix.shape}")
        size = float(np.abs(matrix).max())
        asymmetry = float(np.abs(matrix - matrix.T).max())
        if asymmetry > 1e-8 * size:
            raise ValueError(f"Expected a symmetric precision matrix, got entries that differ by {asymmetry:.3g}")
        matrix = (matrix + matrix.T) / 2
        ridge = _ridge_of(matrix)
        null_space, log_determinant = _null_space(matrix) if ridge is None else _null_space_of_ridge(len(matrix), ridge)
        self._set(matrix, _checked_mean(self.mean, len(matrix)), null_space, log_determinant, ridge=ridge)

    def _set(
        self,
        precision: Floats,
        mean: Floats,
        null_space: Floats,
        log_determinant: float,
        root: Floats | None = None,
        ridge: float | None = None,
    ) -> None:
        for array in (precision, mean):
            array.flags.writeable = False  # the fields computed from them must stay valid
        object.__setattr__(self, "precision", precision)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "null_space", null_space)
        object.__setattr__(self, "log_determinant", log_determinant)
        object.__setattr__(self, "_root", root)
        object.__setattr__(self, "_ridge", ridge)

    @classmethod
    def _made(cls, *fields: Any, **more: Any) -> GaussianPrior:
        """A prior with fields that are right (see ``_set``), without a decomposition of the precision."""
        prior = object.__new__(cls)
        prior._set(*fields, **more)
        return prior

    @classmethod
    def isotropic(cls, dimension: int, regularization: float) -> GaussianPrior:
        """The ridge: precision lambda I.

        Args:
            dimension: d.
            regularization: lambda >= 0; 0 is the improper flat prior (maximum likelihood).

        Raises:
            ValueError: d < 1 or lambda < 0.
        """
        ridge = check_number(regularization, "regularization (lambda)", minimum=0.0)
        size = check_count(dimension, "dimension")
        return cls._made(ridge * np.eye(size), np.zeros(size), *_null_space_of_ridge(size, ridge), ridge=ridge)

    @classmethod
    def from_precision(cls, matrix: ArrayLike, mean: ArrayLike | None = None) -> GaussianPrior:
        """A prior with the given precision matrix (d, d), symmetric positive semidefinite, and mean (d,), 0 by default.

        Raises:
            ValueError: As for the class.
        """
        return cls(np.asarray(matrix), mean)  # type: ignore[arg-type]

    @classmethod
    def from_covariance(cls, matrix: ArrayLike, mean: ArrayLike | None = None) -> GaussianPrior:
        """A prior with the given covariance matrix (d, d), symmetric positive definite, and mean (d,), 0 by default.

        Raises:
            ValueError: As for the class, or a singular covariance (which would rule directions out).
        """
        covariance = check_array(matrix, "covariance", shape=("d", "d"))
        try:
            root = np.linalg.cholesky(covariance[::-1, ::-1])[::-1, ::-1]  # upper triangular R, covariance = R R'
        except LinAlgError:
            raise ValueError(
                f"Expected a positive definite covariance matrix (d, d), got one of shape {covariance.shape} that is "
                f"none; raise its smallest eigenvalues above 0"
            ) from None
        inverse, status = lapack.dtrtri(root)
        reciprocal, _ = lapack.dtrcon(inverse, norm="1", uplo="U", diag="N") if status == 0 else (0.0, 0)
        precision = inverse.T @ inverse
        if (
            reciprocal**2 <= 1e3 * len(root) * np.finfo(np.float64).eps
        ):  # nearly singular: by the eigenvalues of the precision
            return cls((precision + precision.T) / 2, mean)  # type: ignore[arg-type]
        return cls.from_root(precision, root, _checked_mean(mean, len(root)))

    @classmethod
    def from_root(cls, precision: Floats, root: Floats, mean: Floats) -> GaussianPrior:
        """A proper prior of which the precision and the root of its covariance are known; they are not checked.

        Args:
            precision: (d, d).
            root: Upper triangular, with covariance = root root', (d, d).
            mean: (d,).
        """
        log_determinant = -2.0 * float(np.log(np.diagonal(root)).sum())
        return cls._made(precision.view(), mean.view(), np.zeros((len(root), 0)), log_determinant, root)

    @classmethod
    def diagonal(cls, variances: Floats) -> GaussianPrior:
        """N(0, diag(variances)), of variances > 0, (d,), which are not checked."""
        return cls.from_root(np.diag(1.0 / variances), np.diag(np.sqrt(variances)), np.zeros(len(variances)))

    @classmethod
    def from_embeddings(
        cls,
        features: ArrayLike,
        power: float = 0.5,
        scale: float = 1.0,
        *,
        floor: float = 1e-4,
        centred: bool = True,
        shrunk: bool | float = False,
        gram: Floats | None = None,
    ) -> GaussianPrior:
        """A prior under which tastes vary in the directions in which the vocabulary's embeddings vary.

        With the covariance C = U diag(w) U' of the features, the prior covariance is U diag(v) U', v proportional to
        w^power with sum(v) = scale * d: its trace is that of a ridge with lambda = 1 / scale, so the two are
        comparable. power = 0 is exactly that ridge. Above 2,048 dimensions only the 512 leading directions have their
        own eigenvalues, and all others the mean of the rest (`spectrum`).

        Args:
            features: Embeddings of the vocabulary, (N, d), N >= 2.
            power: Exponent of the eigenvalues, >= 0.
            scale: Mean prior variance of a coordinate, > 0 (1 / lambda).
            floor: Smallest prior variance relative to the largest, in (0, 1]: directions in which the vocabulary does
                not vary stay unlikely, not impossible.
            centred: Take the covariance about the embeddings' mean. False: about 0 (the second moment); the prior then
                also favours the direction that all embeddings have in common, as is right for a taste that is itself
                the embedding of a text.
            shrunk: Remove the spread of the eigenvalues that is due to the small number of embeddings: C becomes
                (1 - a) C + a tr(C) / d I with the intensity a of Ledoit & Wolf (2004), or with a = ``shrunk`` where it
                is a number. Otherwise a pool of a few hundred isotropic vectors seems to favour some directions.
            gram: X'X of the features X, (d, d), if they are not centred and it is known.

        Raises:
            ValueError: Fewer than 2 rows, NaN, rows that are all equal, or an argument out of its range.
        """
        rows = check_array(features, "features", shape=("N", "d"))
        power = check_number(power, "power", minimum=0.0)
        scale = check_number(scale, "scale", minimum=0.0, exclusive=True)
        floor = check_number(floor, "floor", minimum=0.0, exclusive=True)
        if floor > 1:
            raise ValueError(f"Expected floor in (0, 1], got {floor}")
        if len(rows) < 2:
            raise ValueError(f"Expected the embeddings of at least 2 tokens, got features of shape {rows.shape}")
        mean, size = rows.mean(axis=0), float(np.vdot(rows, rows)) / len(rows)
        if not _differ(rows, mean, size):
            raise ValueError("Expected embeddings that differ from each other, got features whose rows are all equal")
        deviations = rows - mean if centred else rows
        if centred or gram is None:
            gram = deviations.T @ deviations
        intensity = 0.0
        if shrunk is not False:
            intensity = ledoit_wolf_intensity(deviations, gram) if shrunk is True else check_number(shrunk, "shrunk")
        values, vectors, others = spectrum(gram / len(rows))
        spread = float(values.sum() + others * (rows.shape[1] - len(values))) / rows.shape[1]
        values, others = ((1.0 - intensity) * part + intensity * spread for part in (values, others))
        # a root would amplify the rounding of a zero eigenvalue (1e-16 to the power 0.25 is 1e-4)
        rounding = np.finfo(np.float64).eps * rows.shape[1] * size
        shares = np.where(values > rounding, values, 0.0) / values[-1]
        variances, other = np.maximum(shares**power, floor), max((others / values[-1]) ** power, floor)
        factor = scale * rows.shape[1] / (variances.sum() + other * (rows.shape[1] - len(variances)))
        variances, other = factor * variances, factor * other
        if len(variances) == rows.shape[1]:
            precision = (vectors / variances) @ vectors.T
        else:
            precision = (vectors * (1.0 / variances - 1.0 / other)) @ vectors.T
            precision[np.diag_indices(len(precision))] += 1.0 / other
        precision = (precision + precision.T) / 2
        if floor < _SAFE_FLOOR:
            return cls(precision)
        log_variance = np.log(variances).sum() + (len(precision) - len(variances)) * np.log(other)
        return cls._made(precision, np.zeros(len(precision)), np.zeros((len(precision), 0)), -float(log_variance))

    def scaled(self, factor: float) -> GaussianPrior:
        """The prior with the covariance times ``factor`` > 0, about the same mean.

        Raises:
            ValueError: Factor <= 0 or not finite.
        """
        factor = check_number(factor, "factor", minimum=0.0, exclusive=True)
        if factor == 1.0:
            return self
        rank = self.dimension - self.null_space.shape[1]
        return self._made(
            self.precision / factor,
            self.mean,
            self.null_space,
            self.log_determinant - rank * np.log(factor),
            None if self._root is None else np.sqrt(factor) * self._root,
            None if self._ridge is None else self._ridge / factor,
        )

    def times(self, vector: Floats) -> Floats:
        """The precision times a vector (d,)."""
        return np.asarray(self.precision @ vector if self._ridge is None else self._ridge * vector)

    def solver(self) -> Callable[[Floats], Floats] | None:
        """A function that multiplies a vector (d,) by the covariance; None if the precision has no Cholesky factor."""
        if self._ridge:
            return partial(np.multiply, 1.0 / self._ridge)
        factor, status = lapack.dpotrf(self.precision, lower=1)
        if status != 0:
            return None

        def solve(vector: Floats) -> Floats:
            half = dtrsv(factor, vector, lower=1)
            return np.asarray(dtrsv(factor, half, lower=1, trans=1, overwrite_x=1))

        return solve

    @property
    def covariance(self) -> Floats:
        """Inverse of the precision, (d, d).

        Raises:
            ValueError: An improper prior.
        """
        root = self.covariance_root()
        return np.asarray(root @ root.T)

    def covariance_root(self) -> Floats:
        """Upper triangular C^-1 with covariance = C^-1 C^-T and precision = C' C, (d, d), read-only.

        Raises:
            ValueError: An improper prior.
        """
        if not self.proper:
            raise ValueError(
                f"Expected a proper prior, got one that says nothing about {self.null_space.shape[1]} of "
                f"{self.dimension} directions; use regularization > 0"
            )
        if self._root is None:
            factor = np.linalg.cholesky(self.precision, upper=True)
            inverse, status = lapack.dtrtri(factor)
            if status != 0:
                raise ValueError("Expected a precision that can be inverted in floating point, got a singular one")
            object.__setattr__(self, "_root", np.asarray(inverse))
        return read_only(cast(Floats, self._root))

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return len(self.precision)

    @property
    def proper(self) -> bool:
        """Whether the precision is positive definite, so that the estimate exists for all data."""
        return self.null_space.shape[1] == 0

    @property
    def base(self) -> GaussianPrior:
        """Itself: the Gaussian of a fallback."""
        return self

    def start(self) -> Posterior:
        """The same Gaussian."""
        from edpbrl_gym.estimation.posterior import Posterior

        if not self.proper:
            raise ValueError("Expected a proper prior (a positive definite precision), got a singular one")
        return Posterior(self.mean, self.precision)

    def fit(self, data: Data, *, model: AnswerFormat | None = None) -> PriorFit:
        """The estimate under this prior, scale and all."""
        from edpbrl_gym.estimation.evidence import fit_given

        return fit_given(data, self, model=model)

    def described(self, fit: PriorFit) -> Described:
        """By lambda, if it is a ridge."""
        if self._ridge is None:
            return Described("a Gaussian prior", {"prior": "gaussian"})
        return Described(f"lambda = {self._ridge:g}", {"prior": "ridge", "regularization": self._ridge})

    def with_scale(self) -> TastePrior:
        """N(m, s C) with s from the answers."""
        from edpbrl_gym.estimation.scaled_prior import ScaledPrior

        return ScaledPrior(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz file, whole or not at all."""
        with replacing(Path(path)) as part, open(part, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, precision=self.precision, mean=self.mean)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GaussianPrior:
        """Read what ``save`` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls.from_precision(arrays["precision"], arrays["mean"])


def attribute_prior(people: Sequence[Comparisons]) -> GaussianPrior:
    """Theta ~ N(0, diag(1 / s_1^2, ..., 1 / s_d^2)), s_j the standard deviation of attribute j over all options.

    It is the ridge with lambda = 1 on attributes divided by s_j, so that nothing depends on their units; theta stays in
    the units given. An attribute that never varies has s_j = 1.

    Args:
        people: Answers about options with the same attributes.

    Raises:
        ValueError: There are no answers, or attributes of different number.
    """
    rows = np.concatenate([one.features[one.present] for one in people]).astype(np.float64)
    if not len(rows):
        raise ValueError("Expected at least one question to know how attributes vary, got none")
    deviation = rows.std(axis=0)
    deviation[deviation <= 1e-7 * np.abs(rows).max(axis=0)] = 1.0  # float32 features: rounding is no variation
    root = np.diag(1.0 / deviation)  # units may differ by more than the eigenvalues of a matrix tell apart
    return GaussianPrior.from_root(np.diag(deviation**2), root, np.zeros(len(root)))


def _differ(rows: Floats, mean: Floats, size: float) -> bool:
    """Whether the rows differ by more than rounding from their mean; ``size`` is their mean square length."""
    spread = 0.0
    for start in range(0, len(rows), _BLOCK):
        deviations = rows[start : start + _BLOCK] - mean
        spread += float(np.vdot(deviations, deviations))
    return bool(spread / len(rows) > np.finfo(np.float64).eps * size)


def _checked_mean(mean: Any, dimension: int) -> Floats:
    if mean is None:
        return np.zeros(dimension)
    hint = f"the precision has {dimension} rows"
    return np.array(check_array(mean, "mean", shape=(dimension,), hint=hint))


def _ridge_of(matrix: Floats) -> float | None:
    """Lambda >= 0 of a matrix lambda I, None for another."""
    ridge = float(matrix[0, 0])
    return ridge if ridge >= 0 and np.array_equal(matrix, ridge * np.eye(len(matrix))) else None


def _null_space_of_ridge(dimension: int, ridge: float) -> tuple[Floats, float]:
    """``_null_space`` of lambda I, which needs no decomposition."""
    if ridge > 0:
        return np.zeros((dimension, 0)), dimension * float(np.log(ridge))
    return np.eye(dimension), 0.0


def _null_space(matrix: Floats) -> tuple[Floats, float]:
    """Orthonormal basis (d, r) of the null space of a positive semidefinite matrix; log det on its complement."""
    dimension = len(matrix)
    factor, status = lapack.dpotrf(matrix, lower=1)
    relative = dimension * np.finfo(np.float64).eps
    if status == 0:  # if the estimated condition is good, eigenvalues (ten times as expensive) are not needed
        reciprocal, _ = lapack.dpocon(factor, float(np.abs(matrix).sum(axis=0).max()), uplo="L")
        if reciprocal > 1e3 * relative:
            return np.zeros((dimension, 0)), 2.0 * float(np.log(np.diagonal(factor)).sum())
    values, vectors = np.linalg.eigh(matrix)
    tolerance = relative * float(np.abs(values).max())
    if values[0] < -1e3 * tolerance:
        raise ValueError(f"Expected a positive semidefinite precision matrix, got the eigenvalue {values[0]:.3g}")
    zero = values <= tolerance
    return np.asarray(vectors[:, zero]), float(np.log(values[~zero]).sum())
