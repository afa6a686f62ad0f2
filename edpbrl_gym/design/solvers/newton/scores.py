"""The scores of all tokens at a design, c ||x - m||^2 in a metric G: the linear oracle, and the gap that it certifies.

G = base Lambda^-1 + sum_j a_j p_j p_j'. With few questions against the prior, I^-1 differs from Lambda^-1 in as many
directions as the design has tokens, so a score costs 2 r d multiplications instead of d^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import blas, lapack, solve_triangular

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.certificate import Rounding, rounding_of
from edpbrl_gym.design.criteria import cholesky
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.solvers.newton.tokens import Chunk, Tokens

if TYPE_CHECKING:
    from edpbrl_gym.design.solvers.newton.objective import Objective

__all__ = [
    "RECHECK",
    "Oracle",
    "PriorMetric",
    "Prices",
    "ScoreForm",
    "Scorer",
    "Scores",
    "certified_gap",
    "factor_form",
    "factor_product",
    "levels_of",
    "price_all",
]


RECHECK = 5e-5  # of the largest score: float32 scores err by about 1e-6 of it, so those nearer are computed in float64
_COLUMNS = 64  # of a QR factor that LAPACK takes at a time
_CANCELLED = 1e-10  # of the largest scores: an allowance for rounding above it is worth another computation


class PriorMetric:
    """The inverse of a proper prior precision as an inner product x' Lambda^-1 y, a division where it is lambda I.

    Args:
        problem: A problem with a positive definite prior; SingularInformationError otherwise.

    Attributes:
        isotropic: lambda if the prior precision is lambda I, else None.
    """

    def __init__(self, problem: DesignProblem) -> None:
        self.isotropic: float | None = problem.regularization or None
        self._root = float(np.sqrt(self.isotropic or 1.0))
        self._factor = None if self.isotropic else cholesky(problem.prior)

    def half(self, rows: Floats) -> Floats:
        """Rows times L^-T, Lambda = L L': their inner products are those of the metric. Shape (k, d) as given."""
        if self._factor is None:
            return np.asarray(rows / self._root)
        return np.asarray(solve_triangular(self._factor, rows.T, lower=True, check_finite=False).T)

    def half_transposed(self, rows: Floats) -> Floats:
        """Rows times L^-1: `half_transposed(half(rows))` is rows times Lambda^-1."""
        if self._factor is None:
            return np.asarray(rows / self._root)
        return np.asarray(solve_triangular(self._factor, rows.T, lower=True, trans=1, check_finite=False).T)

    def whole(self, halves: Floats) -> Floats:
        """The rows that `half` was given: rows times L'."""
        if self._factor is None:
            return np.asarray(halves * self._root)
        return np.asarray(halves @ self._factor.T)

    def solve(self, rows: Floats) -> Floats:
        """Rows times Lambda^-1, shape as given."""
        if self.isotropic:
            return np.asarray(rows / self.isotropic)
        return self.half_transposed(self.half(rows))

    def factor_inverse(self, dimension: int) -> Floats:
        """L^-1, shape (d, d), lower triangular."""
        return self.half(np.eye(dimension)).T


@dataclass(frozen=True)
class ScoreForm:
    """A positive semidefinite metric G for the scores c (x - m)' G (x - m).

    Attributes:
        base: Coefficient of Lambda^-1; 0 if there is none.
        directions: p_j, shape (r, d).
        coefficients: a_j, shape (r,); None if all are 1.
        triangle: "lower" or "upper" if the directions form a triangular matrix, which halves the work.
    """

    base: float
    directions: Floats
    coefficients: Floats | None = None
    triangle: str | None = None

    @classmethod
    def of_factor(cls, factor: Floats) -> ScoreForm:
        """G = F' F for a factor F of shape (r, d)."""
        return cls(0.0, factor, None, _triangle(factor))


def _triangle(factor: Floats) -> str | None:
    """Which triangle a square factor fills; None if it is no triangle."""
    if factor.shape[0] != factor.shape[1]:
        return None
    if not np.triu(factor, 1).any():
        return "lower"
    return None if np.tril(factor, -1).any() else "upper"


def factor_form(inverse: Floats, half: Floats | None) -> ScoreForm:
    """L^-1 for D, B' I^-1 for A and V (its triangular factor if it has d rows or more), from L^-1 and L^-1 B."""
    if half is None:
        return ScoreForm.of_factor(inverse)
    product = np.asarray(half.T @ inverse)  # a symmetric product where half is the inverse itself (A)
    if product.shape[0] < product.shape[1]:
        return ScoreForm.of_factor(product)
    # R of F = Q R in the precision of F: numpy's own takes float64 for float32
    factorise = lapack.sgeqrf if product.dtype == np.float32 else lapack.dgeqrf
    packed, _, _, failed = factorise(np.asfortranarray(product), lwork=_COLUMNS * product.shape[1], overwrite_a=1)
    assert not failed
    return ScoreForm(0.0, np.ascontiguousarray(np.triu(packed[: product.shape[1]])), None, "upper")


def factor_product(rows: NDArray, factor: NDArray, triangle: str | None) -> NDArray:
    """F x for rows x, shape (m, r); a triangular F takes half the work, and overwrites the rows.

    Args:
        rows: X, shape (m, d).
        factor: F, shape (r, d).
        triangle: "lower" or "upper" if F is triangular, else None.
    """
    if triangle is None:
        return np.asarray(rows @ factor.T)
    multiply = blas.strmm if rows.dtype == np.float32 else blas.dtrmm
    # BLAS takes the transposes of C-ordered arrays as they are
    product = multiply(1.0, factor.T, rows.T, lower=triangle != "lower", trans_a=1, overwrite_b=True)
    return np.asarray(product.T)


class Scorer:
    """A form at one mean, in the precision of the rows that it scores.

    Args:
        form: The metric.
        mean: m, shape (d,).
        metric: That of the prior, for a form with a base.
        kind: Precision.
    """

    def __init__(self, form: ScoreForm, mean: Floats, metric: PriorMetric | None, kind: np.dtype) -> None:
        self._form = form
        directions = form.directions
        self._constant = 0.0  # squared norm of the mean in the metric of the prior
        self._mean, self._shift = mean.astype(kind), (directions @ mean).astype(kind)
        if form.base != 0:
            assert metric is not None
            solution = metric.solve(mean[None])[0]
            self._constant = float(solution @ mean)
            directions = np.concatenate([directions, solution[None]])
        self._directions = np.ascontiguousarray(directions, dtype=kind)
        self._coefficients = None if form.coefficients is None else form.coefficients.astype(kind)

    def __call__(self, rows: NDArray, norms: NDArray | None) -> NDArray:
        """Squared norms of rows less the mean, shape (m,); `norms` are theirs in the metric of the prior."""
        if self._form.triangle is not None:
            product = factor_product(rows - self._mean, self._directions, self._form.triangle)
            return np.asarray(np.einsum("nr,nr->n", product, product))
        projected = rows @ self._directions.T
        terms = projected[:, : len(self._shift)] - self._shift
        terms *= terms
        total = terms.sum(1) if self._coefficients is None else terms @ self._coefficients
        if norms is None:
            return np.asarray(total)
        return np.asarray(total + self._form.base * (norms - 2.0 * projected[:, -1] + self._constant))


class Scores:
    """Computes the scores of tokens.

    Args:
        tokens: All tokens.
        metric: Inverse of the prior precision; None if that is singular (then forms need base = 0).
    """

    def __init__(self, tokens: Tokens, metric: PriorMetric | None) -> None:
        self.tokens = tokens
        self.metric = metric
        self._inverse: Floats | None = None  # L^-1 of a prior precision L L' that is not lambda I
        self._norms: NDArray | None = None  # of all tokens in the metric of the prior, float32; nan where not known

    def __call__(self, form: ScoreForm, means: Floats, dtype: DTypeLike, tokens: Positions | None = None) -> Floats:
        """Scores c_b ||x - m_b||^2 in the metric of a form, float64, of all tokens or of some sorted ones.

        The means are those of the centred features in each block under the current weights, shape (B, d); ``dtype`` is
        the precision of the products.
        """
        kind = np.dtype(dtype)
        result = np.empty(len(self.tokens) if tokens is None else len(tokens))
        scorers = [Scorer(form, mean, self.metric, kind) for mean in means]
        self.prepare(form)

        def score(chunk: Chunk) -> None:
            scores = scorers[chunk.block](chunk.rows, self.norms(form, chunk))
            result[chunk.positions] = scores
            result[chunk.positions] *= self.tokens.scale[chunk.block]

        self.tokens.for_each_chunk(score, kind, tokens)
        return result

    def prepare(self, form: ScoreForm) -> None:
        """Make ready what the chunks share, before several are worked on at the same time."""
        if form.base == 0:
            return
        assert self.metric is not None
        if self._norms is None:
            self._norms = np.full(len(self.tokens), np.nan, dtype=np.float32)
        if self._inverse is None and not self.metric.isotropic:
            self._inverse = self.metric.factor_inverse(self.tokens.dimension)

    def norms(self, form: ScoreForm, chunk: Chunk) -> NDArray | None:
        """Squared norms of rows in the metric of the prior, for a form that needs them; those of float32 are kept."""
        if form.base == 0:
            return None
        if chunk.rows.dtype != np.float32:
            return self._computed_norms(chunk.rows)
        assert self._norms is not None
        if np.isnan(self._norms[chunk.tokens]).any():
            self._norms[chunk.tokens] = self._computed_norms(chunk.rows)
        return self._norms[chunk.tokens]

    def _computed_norms(self, rows: NDArray) -> NDArray:
        assert self.metric is not None
        if self.metric.isotropic:
            return np.asarray((rows * rows).sum(1) / self.metric.isotropic)
        assert self._inverse is not None
        product = factor_product(rows.copy(), self._inverse.astype(rows.dtype), "lower")
        return np.asarray(np.einsum("nr,nr->n", product, product))


@dataclass(frozen=True)
class Prices:
    """Tokens that improve a design, and by how much.

    Attributes:
        gap: Sum over the blocks of the largest score less the mean score of the weights, over all tokens.
        tokens: Tokens with a score above the mean of their block, sorted, shape (m,).
        excess: Their scores less that mean, shape (m,).
        scored: Tokens whose score was computed.
    """

    gap: float
    tokens: Positions
    excess: Floats
    scored: int


class Oracle(Protocol):
    """Prices all tokens at weights on a working set: `price_all`, or by bounds first (`screening`)."""

    def __call__(self, objective: Objective, weights: Floats, *, exact: bool) -> Prices:
        """Scores that decide the gap are float64; with `exact` all are."""
        ...


def levels_of(objective: Objective, weights: Floats, gradient: Floats) -> Floats:
    """Mean score of each block under the weights, shape (B,)."""
    return np.array([weights[part] @ gradient[part] for part in objective.parts])


def price_all(scores: Scores, objective: Objective, weights: Floats, *, exact: bool) -> Prices:
    """Score every token in float32, and in float64 where the score decides the gap, or with ``exact`` everywhere."""
    tokens = scores.tokens
    gradient = objective.gradient(weights)
    levels = levels_of(objective, weights, gradient)
    everything = len(objective.tokens) == len(tokens)
    if everything:
        values = gradient
    else:
        form, means = objective.form(weights), objective.means(weights)
        values = _outside(scores, objective, form, means, np.float64 if exact else np.float32)
        values[objective.tokens] = gradient
    excess, gap = np.empty_like(values), 0.0
    for number, block in enumerate(tokens.slices):
        if not exact and not everything:
            decisive = values[block] >= (1.0 - RECHECK) * values[block].max()
            decisive[objective.tokens[objective.parts[number]] - block.start] = False
            chosen = block.start + np.flatnonzero(decisive)
            values[chosen] = scores(form, means, np.float64, chosen)
        excess[block] = values[block] - levels[number]
        gap += max(0.0, float(excess[block].max()))
    positive = np.flatnonzero(excess > 0)
    return Prices(gap, positive, excess[positive], len(tokens))


def _outside(scores: Scores, objective: Objective, form: ScoreForm, means: Floats, dtype: DTypeLike) -> Floats:
    """Scores of all tokens, or of those outside the working set where it has most of them."""
    count = len(scores.tokens)
    if 2 * len(objective.tokens) <= count:
        return scores(form, means, dtype)
    values = np.empty(count)
    outside = np.setdiff1d(np.arange(count), objective.tokens, assume_unique=True)
    values[outside] = scores(form, means, dtype, outside)
    return values


def certified_gap(
    problem: DesignProblem,
    oracle: Oracle,
    objective: Objective,
    weights: Floats,
    value: float,
    *,
    alternative: Callable[[Positions], Objective],
) -> tuple[float, Rounding]:
    """The gap from scores in float64, without its allowance for rounding, and the allowances.

    In the metric of the prior the products with V may be thousands of times what is left of them. Where that costs too
    many digits the gap comes from the d x d information, from which ``alternative`` makes the objective of some tokens.
    """
    gap, rounding, reward = _priced(problem, oracle, objective, weights, value)
    if rounding.gap > _CANCELLED * reward and objective.magnitude > 0.0:
        other_gap, other, _ = _priced(problem, oracle, alternative(objective.tokens), weights, value)
        if other.gap < rounding.gap:
            return other_gap, Rounding(other.gap, rounding.value)
    return gap, rounding


def _priced(
    problem: DesignProblem, oracle: Oracle, objective: Objective, weights: Floats, value: float
) -> tuple[float, Rounding, float]:
    """Gap, allowances, and the largest score of each block, summed."""
    gap = oracle(objective, weights, exact=True).gap
    reward = float(levels_of(objective, weights, objective.gradient(weights)).sum()) + gap
    rounding = rounding_of(
        problem,
        condition=objective.condition(weights),
        value=value,
        learned=objective.learned(weights),
        reward=reward,
        magnitude=objective.magnitude,
        offset=objective.offset,
    )
    return gap, rounding, reward
