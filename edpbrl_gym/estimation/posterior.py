"""The Gaussian posterior of a taste: draws, credible intervals, and the expected accuracy of its choices.

Laplace's approximation of the posterior is N(theta_hat, H^-1), with H the Fisher information at theta_hat plus the
prior's precision (MacKay, 1992): see ``Posterior.from_estimate``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack, solve_triangular
from scipy.linalg.blas import dtrmm, dtrsm
from scipy.special import ndtr, ndtri

from edpbrl_gym._arrays import AnyFloats, Booleans, Floats, MadeWhenRead
from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.comparisons.queries import QuestionShape, padded_options, present_options, rank_of
from edpbrl_gym.estimation.map_estimate import Estimate
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.variational import normal_points, symmetric_roots
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.likelihood.choice import log_softmax

__all__ = ["Apart", "Posterior"]


_NEGLIGIBLE = 1e-6  # weight of a part of a mixture
# rows of a block; measured at k = 7, blocks of 64 take as long at d = 384 and 768 and 10% longer at 4,096, of 128 half
# as long again
_ROOT_BLOCK = 32
_BLOCK_NUMBERS = 1 << 22  # numbers in a block of draws: bounds the memory


class Apart(NamedTuple):
    """A posterior without the coordinates that say something about one row each (`Posterior.apart`).

    Attributes:
        part: Of the other coordinates, (u,).
        used: Which these are.
        variances: Of the coordinates without, which are independent of all others, (d,); 0 for ``used``.
    """

    part: Posterior
    used: slice | NDArray[np.intp]
    variances: Floats


@dataclass(frozen=True, eq=False)
class Posterior:
    """A Gaussian over theta with the given mean and precision.

    Attributes:
        mean: Mean, (d,).
        precision: Symmetric positive definite precision, (d, d).

    Raises:
        ValueError: Shapes that do not match, NaN, or a precision that is not positive definite.
    """

    mean: Floats
    precision: MadeWhenRead[Floats] = MadeWhenRead()
    # lower triangular L with precision = L L'; None where only its inverse is known
    _factor: Floats | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        mean = check_array(self.mean, "mean", shape=("d",))
        precision = check_array(self.precision, "precision", shape=(len(mean), len(mean)))
        try:
            factor = np.linalg.cholesky(precision)
        except LinAlgError:
            raise ValueError(
                "Expected a positive definite precision, got a singular or indefinite one; use regularization > 0"
            ) from None
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "precision", precision)
        object.__setattr__(self, "_factor", factor)

    def __getstate__(self) -> dict[str, Any]:
        """All fields, the precision made."""
        _ = self.precision
        return self.__dict__

    @classmethod
    def from_estimate(cls, estimate: Estimate) -> Posterior:
        """The Laplace approximation of the posterior about an estimate.

        Raises:
            ValueError: An estimate without a positive definite precision.
        """
        return cls(estimate.theta, estimate.precision)

    @classmethod
    def of_mixture(cls, posteriors: Sequence[Posterior], weights: ArrayLike) -> Posterior:
        """The Gaussian with the mean and the covariance of a mixture of Gaussians.

        The mean is sum_m w_m mu_m, the covariance sum_m w_m (P_m + (mu_m - mean) (mu_m - mean)').

        Args:
            posteriors: The parts, at least one, of one dimension.
            weights: w_m >= 0, one for each part, sum 1.

        Raises:
            ValueError: Weights of another number, negative, or with another sum.
        """
        shares = check_array(weights, "weights", shape=(len(posteriors),))
        if not len(shares) or shares.min() < 0 or abs(float(shares.sum()) - 1.0) > 1e-9:
            raise ValueError(f"Expected weights >= 0 with the sum 1, one for each part, got {shares.tolist()}")
        kept = [(weight, part) for weight, part in zip(shares, posteriors, strict=True) if weight > _NEGLIGIBLE]
        if len(kept) == 1:
            return kept[0][1]
        mean = np.asarray(sum(weight * part.mean for weight, part in kept))
        covariance = np.zeros((len(mean), len(mean)))
        for weight, part in kept:
            shift = part.mean - mean
            covariance += weight * (part.covariance() + np.outer(shift, shift))
        precision = cho_solve(cho_factor(covariance), np.eye(len(mean)))
        return cls(mean, (precision + precision.T) / 2)

    def think(self) -> None:
        """Make what ``after`` begins with."""
        _ = self.inverse_factor

    def after(self, differences: Floats, offsets: Floats | None) -> Posterior:
        """The posterior after a few more answers, by Laplace's approximation with what was known as the prior.

        Args:
            differences: As of `answer_differences`, (n, K - 1, d).
            offsets: Likewise.
        """
        # few answers: the estimate is one of as many numbers as they have differences, not of d
        mean, rows, _ = WhitenedAnswers(differences, offsets, self.as_prior()).laplace(1.0)
        return self.with_rows(mean, rows)

    def apart(self, rows: AnyFloats, others: Floats) -> Apart:
        """What makes the covariances of theta . x among different rows x, (n, d), and all others, (k, d)."""
        return Apart(self, slice(None), np.zeros(self.dimension))

    def with_rows(self, mean: Floats, rows: Floats) -> Posterior:
        """The Gaussian with another mean, and with the precision plus ``rows' rows``, as after a few more answers.

        Args:
            mean: (d,).
            rows: (k, d).
        """
        precision = partial(_with_squares, self.precision, rows)
        if not _is_cheaper(self.dimension, len(rows)):
            return Posterior(mean, precision())
        return Posterior.from_root(mean, _updated_root(self.inverse_factor, rows), precision)

    @classmethod
    def from_root(cls, mean: Floats, root: Floats, precision: Floats | Callable[[], Floats]) -> Posterior:
        """The Gaussian of which ``inverse_factor`` is known; nothing is checked.

        Args:
            mean: (d,).
            root: Lower triangular R with covariance R' R, (d, d).
            precision: (d, d), or a function that makes it.
        """
        made = object.__new__(cls)
        for name, value in (("mean", mean), ("precision", precision), ("_factor", None)):
            object.__setattr__(made, name, value)
        root.flags.writeable = False
        made.__dict__["inverse_factor"] = root
        return made

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return len(self.mean)

    @functools.cached_property
    def inverse_factor(self) -> Floats:
        """L^-1 of the lower triangular L with precision = L L': |L^-1 x| is the deviation of theta . x, (d, d)."""
        assert self._factor is not None  # else the inverse was set with the mean
        root = np.asarray(lapack.dtrtri(self._factor.T)[0].T)  # the factor has no zeros on its diagonal
        root.flags.writeable = False
        return root

    def covariance(self) -> Floats:
        """Inverse of the precision, (d, d)."""
        return np.asarray(self.inverse_factor.T @ self.inverse_factor)

    def as_prior(self) -> GaussianPrior:
        """The same Gaussian as a prior of further answers, without a new decomposition."""
        return GaussianPrior.from_root(self.precision, self.inverse_factor.T, self.mean)

    def scaled(self, factor: float) -> Posterior:
        """The posterior of ``factor`` * theta, factor > 0.

        Raises:
            ValueError: Factor <= 0 or not finite.
        """
        factor = check_number(factor, "factor", minimum=0.0, exclusive=True)
        return Posterior(factor * self.mean, self.precision / factor**2)

    def draws(self, size: int, rng: np.random.Generator) -> Floats:
        """``size`` >= 0 independent draws of theta, (size, d): mean + L^-T z with z standard normal.

        Raises:
            ValueError: Size < 0.
        """
        return self.of_normals(rng.standard_normal((check_count(size, "size", minimum=0), self.dimension)))

    def of_normals(self, normal: Floats) -> Floats:
        """The draws that standard normal ones become, (size, d)."""
        if self._factor is None:
            return self.mean + dtrmm(1.0, self.inverse_factor.T, normal.T, lower=0).T
        return self.mean + solve_triangular(self._factor, normal.T, lower=True, trans="T", check_finite=False).T

    def standard_deviation(self, rows: ArrayLike) -> Floats:
        """Standard deviation of theta . x for each row x of (n, d), (n,)."""
        return np.linalg.norm(self._whiten(self._rows(rows, "rows")), axis=1)

    def interval(self, rows: ArrayLike, level: float = 0.9) -> tuple[Floats, Floats]:
        """Central credible intervals of theta . x for each row x.

        With ``np.eye(d)`` these are the intervals of theta's coordinates, with the features of a prompt that of its
        utility, with the difference of two prompts that of the difference of their utilities.

        Args:
            rows: Rows x, (n, d).
            level: Probability of the interval, in (0, 1).

        Returns:
            Lower and upper ends, (n,) each.

        Raises:
            ValueError: NaN, another dimension, or a level outside (0, 1).
        """
        level = check_number(level, "level", minimum=0.0, exclusive=True)
        if level >= 1:
            raise ValueError(f"Expected level in (0, 1), got {level}")
        checked = self._rows(rows, "rows")
        middle = checked @ self.mean
        half = float(ndtri(0.5 + level / 2)) * np.linalg.norm(self._whiten(checked), axis=1)
        return middle - half, middle + half

    def expected_accuracy(
        self,
        options: ArrayLike | Sequence[ArrayLike] | QuestionShape,
        *,
        draws: int = 512,
    ) -> float:
        """Expected share of the questions in which the option that the mean prefers is truly the best.

        For two options the probability is Phi(|mean . y| / sd(y)), y their difference; for more it is an orthant
        probability in K - 1 dimensions, computed by Monte Carlo, with the same draws for equal posteriors.

        Args:
            options: Questions (n, K, d), or n arrays (K_i, d), or Comparisons or Queries; or differences of pairs
                (n, d); n >= 1.
            draws: Number of Monte Carlo draws, >= 1.

        Raises:
            ValueError: There is no question, NaN, or another dimension.
        """
        num_draws = check_count(draws, "draws")
        given: Any = options
        if rank_of(options) == 2:
            rows = self._rows(given, "differences")
            given = np.stack([rows, np.zeros_like(rows)], axis=1)
        questions, sizes = padded_options(given, name="options", dtype=np.float64)
        check_array(questions, "options", shape=("n", "K", self.dimension), hint=f"theta has {self.dimension} features")
        if not len(questions):
            raise ValueError(f"Expected at least 1 question with 2 options, got options of shape {questions.shape}")
        leads, there = self._leads(questions, present_options(sizes, questions.shape[1]))
        middle = np.where(there, leads @ self.mean, np.inf)
        white = self._whiten(leads.reshape(-1, self.dimension)).reshape(leads.shape)
        if middle.shape[1] == 1:
            deviation = np.linalg.norm(white[:, 0], axis=1)
            standardised_leads = np.divide(middle[:, 0], deviation, out=np.zeros(len(middle)), where=deviation > 0)
            return float(ndtr(standardised_leads).mean())
        normal = np.random.default_rng(0).standard_normal((num_draws, middle.shape[1]))
        total = 0.0
        step = max(1, _BLOCK_NUMBERS // (num_draws * middle.shape[1]))
        for start in range(0, len(middle), step):
            block = white[start : start + step]
            root = symmetric_roots(block @ block.transpose(0, 2, 1))
            values = middle[start : start + step, None, :] + normal @ root.transpose(0, 2, 1)
            total += float((values > 0).all(axis=2).mean(axis=1).sum())
        return total / len(middle)

    def choice_probabilities(self, options: ArrayLike | Sequence[ArrayLike] | QuestionShape) -> Floats:
        """E[softmax(X theta)], the probabilities of the person's choices averaged over the posterior.

        Only a question's K - 1 utility differences matter; they are Gaussian, and the mean is over 128 quasi-random
        points.

        Args:
            options: Features of n questions, (n, K, d), or n arrays (K_i, d); or Comparisons or Queries.

        Returns:
            (n, K), rows sum to 1; 0 where an option is not there.

        Raises:
            ValueError: K < 2, NaN, or another dimension.
        """
        features, sizes = padded_options(options, name="options", dtype=np.float64)
        check_array(features, "options", shape=("n", "K", self.dimension), hint=f"theta has {self.dimension} features")
        leads = features[:, 1:] - features[:, :1]
        middle = leads @ self.mean
        values = middle[:, None, :] + normal_points(middle.shape[1]) @ self.roots(leads).transpose(0, 2, 1)
        values = np.where(present_options(sizes, features.shape[1])[:, None, 1:], values, -np.inf)
        logs = log_softmax(np.concatenate([np.zeros((*values.shape[:2], 1)), values], axis=2))
        return np.asarray(np.exp(logs).mean(axis=1))

    def roots(self, rows: Floats) -> Floats:
        """Roots of the covariances of theta . x for the k rows x of each of n groups: (n, k, d) gives (n, k, k)."""
        white = self._whiten(rows.reshape(-1, self.dimension)).reshape(rows.shape)
        return symmetric_roots(white @ white.transpose(0, 2, 1))

    def _rows(self, rows: ArrayLike, name: str) -> Floats:
        hint = f"theta has {self.dimension} features"
        return np.asarray(check_array(rows, name, shape=("n", self.dimension), hint=hint))

    def _whiten(self, rows: Floats) -> Floats:
        """L^-1 x for each row, (n, d): its length is the standard deviation of theta . x."""
        if self._factor is None:
            return np.asarray(dtrmm(1.0, self.inverse_factor.T, rows.T, trans_a=1).T)
        return np.asarray(solve_triangular(self._factor, rows.T, lower=True, check_finite=False).T)

    def _leads(self, questions: Floats, present: Booleans) -> tuple[Floats, Booleans]:
        """The option that the mean prefers minus each other, (n, K - 1, d), 0 and False where there is none."""
        best = np.where(present, questions @ self.mean, -np.inf).argmax(axis=1)
        others = np.arange(questions.shape[1] - 1)[None, :]
        others = others + (others >= best[:, None])
        places = np.arange(len(questions))
        there = present[places[:, None], others]
        leads = questions[places, best][:, None, :] - questions[places[:, None], others]
        return np.where(there[:, :, None], leads, 0.0), there


def _is_cheaper(dimension: int, count: int) -> bool:
    """Whether an update by so many rows takes fewer operations than a factor and its inverse."""
    return 2 * count + _ROOT_BLOCK / 2 < 2 * dimension / 3


def _updated_root(root: Floats, rows: Floats) -> Floats:
    """The lower triangular R with R' R = (P^-1 + Y' Y)^-1, without a new decomposition.

    With P = R' R and R lower triangular, k rows Y of information make the precision P^-1 + Y' Y = R^-1 (I + V V') R^-T,
    V = R Y'. With the Cholesky factor M M' = I + V V' the new root is M^-1 R: the very one that a new decomposition of
    the precision gives, to rounding, as triangular factors with a positive diagonal are unique.

    M is known by its blocks of rows b. With Q_b = I + (sum of V_c' V_c over the blocks c before b), (k, k),

        M_bb M_bb' = I + V_b Q_b^-1 V_b',    M_jb = V_j W_b below it, W_b = Q_b^-1 V_b' M_bb^-T,

    so that M^-1 R costs d^2 (2 k + block / 2) operations in the place of the 2/3 d^3 of a factor and its inverse. Q_b
    is a sum of squares: nothing cancels, however much the rows say.

    Args:
        root: Lower triangular R with P = R' R and a positive diagonal, (d, d).
        rows: Y, (k, d).

    Returns:
        A new array in C order, (d, d).
    """
    dimension, count = len(root), len(rows)
    images = np.ascontiguousarray(dtrmm(1.0, root.T, rows.T, trans_a=1))  # V = R Y'
    result = np.zeros((dimension, dimension))
    squares = np.eye(count)  # Q_b
    below = np.zeros((count, dimension))  # the sum of W_c times the new rows of block c
    for start in range(0, dimension, _ROOT_BLOCK):
        end = min(start + _ROOT_BLOCK, dimension)
        image = images[start:end]
        outer = np.linalg.cholesky(squares)
        half = dtrsm(1.0, outer, image.T, lower=1)
        factor = np.linalg.cholesky(np.eye(end - start) + half.T @ half)
        known = root[start:end, :end] - image @ below[:, :end]
        new = dtrsm(1.0, factor, known.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
        result[start:end, :end] = new
        weights = dtrsm(1.0, factor, dtrsm(1.0, outer, half, lower=1, trans_a=1), side=1, lower=1, trans_a=1)
        below[:, :end] += weights @ new
        squares += image.T @ image
    return result


def _with_squares(precision: Floats, rows: Floats) -> Floats:
    return np.asarray(precision + rows.T @ rows)
