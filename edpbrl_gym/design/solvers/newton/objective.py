"""The objective on a working set of tokens: value, gradient and Hessian in their weights, from the d x d information.

With I = Lambda + sum_i c w_i z_i z_i', z_i = x_i - m_b (m_b the mean of its block b), and V = B B',

    K_ij = z_i' I^-1 z_j,   A_ij = z_i' I^-1 V I^-1 z_j,   S_ij = [same block] / c,
    D:     gradient c K_ii,  Hessian of -s  c c' K o (K + 2 S)
    A, V:  gradient c A_ii,  Hessian of -s  2 c c' (K + S) o A

(o elementwise). These are the derivatives of the lifted problem, in which s is concave in the weights and the mean
does not appear: phi~ = (phi; e_b) with M~ = sum_i c w_i phi~_i phi~_i' + diag(Lambda, 0) has (M~^-1)_11 = I^-1. The
square of S is left out of D's Hessian: it vanishes on changes that sum to 0 in every block, and where answers say
little, nothing but rounding would be left of the rest.

`InformationObjective` works with d x d matrices, `woodbury.WoodburyObjective` with k x k ones;
`gradients.GradientObjective` is that of any other criterion, by its value and gradient alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import blas, lapack

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.certificate import factor_condition
from edpbrl_gym.design.criteria import SingularInformationError, cholesky
from edpbrl_gym.design.solvers.newton.scores import ScoreForm, factor_form, factor_product
from edpbrl_gym.design.solvers.newton.tokens import Tokens

if TYPE_CHECKING:
    from edpbrl_gym.design.solvers.newton.curvature import CurvatureModel

__all__ = ["InformationObjective", "Objective", "uniform_weights"]


_CHUNK = 512  # rows that are copied and multiplied while they are in the cache


def uniform_weights(parts: list[slice]) -> Floats:
    """The same weight for everything in a block, 1 in all."""
    sizes = [part.stop - part.start for part in parts]
    return np.repeat(1.0 / np.array(sizes), sizes)


class Objective(ABC):
    """The objective s(I) - offset on a sorted working set, as a function of weights on a product of simplices.

    Args:
        tokens: All tokens.
        chosen: The working set, shape (k,).
        dtype: Precision of its features.

    Attributes:
        tokens: The working set.
        parts: Where its blocks lie in it.
        scale: c of each token, shape (k,).
        offset: s(I) less what `value` returns.
        curvature: How Newton steps on many tokens know the Hessian; None: by factors of it.
        exact_hessian: Whether the Hessian is that of s, not a model that secants correct.
    """

    offset = 0.0
    curvature: CurvatureModel | None = None
    exact_hessian = True

    def __init__(self, tokens: Tokens, chosen: Positions, dtype: DTypeLike = np.float64) -> None:
        self.tokens = chosen
        self.parts = tokens.parts(chosen)
        self.dtype = np.dtype(dtype)
        self._all = tokens
        self.scale: Floats = np.repeat(tokens.scale, [part.stop - part.start for part in self.parts])

    @cached_property
    def rows(self) -> NDArray:
        """Centred features, shape (k, d): read-only, made when they are needed."""
        return self._all.centred(self.tokens, self.dtype)

    def means(self, weights: Floats) -> Floats:
        """Mean of the centred features in each block, shape (B, d)."""
        used = weights.astype(self.dtype, copy=False)
        return np.stack([used[part] @ self.rows[part] for part in self.parts]).astype(np.float64)

    def roots(self, weights: Floats) -> Floats:
        """sqrt(c w) (x - m) for the tokens with mass: R with R' R the information of the data, shape (k', d)."""
        used = weights > 0
        means = np.repeat(self.means(weights), [int(used[part].sum()) for part in self.parts], axis=0)
        return np.asarray((self.rows[used] - means) * np.sqrt(self.scale[used] * weights[used])[:, None])

    @abstractmethod
    def value(self, weights: Floats) -> float:
        """s(I) - offset; SingularInformationError where it is infinite."""

    @abstractmethod
    def gradient(self, weights: Floats) -> Floats:
        """Scores of the working set, shape (k,)."""

    @abstractmethod
    def derivatives(self, weights: Floats) -> tuple[Floats, Floats]:
        """Gradient (k,) and Hessian of -s (k, k), which may be overwritten."""

    @abstractmethod
    def learned(self, weights: Floats) -> float:
        """tr(I^-1 I_data): the effective number of parameters that the data determine."""

    @abstractmethod
    def trace(self, weights: Floats) -> float:
        """tr(I_data)."""

    @abstractmethod
    def condition(self, weights: Floats) -> float:
        """Condition number of what value and scores are computed from; eps times that is a relative error of both."""

    @property
    def magnitude(self) -> float:
        """Largest numbers of which scores are differences, summed over the blocks; 0 where they are none."""
        return 0.0

    @abstractmethod
    def form(self, weights: Floats) -> ScoreForm:
        """The scores of all tokens at these weights, as a quadratic form of their features less the block's mean."""

    def _hessian(self, inner: Floats, score_gram: Floats | None) -> Floats:
        """Hessian of -s from K and A (None for D), without S o S: it vanishes on feasible changes; overwrites K."""
        factor = inner.copy() if score_gram is None else 2.0 * score_gram
        for part, scale in zip(self.parts, self._all.scale, strict=True):
            inner[part, part] += (2.0 if score_gram is None else 1.0) / scale
        inner *= factor
        inner *= self.scale[:, None]
        inner *= self.scale
        return inner


class InformationObjective(Objective):
    """The d x d matrix I, for any prior.

    Triangular systems are solved by multiplying with the inverse of the factor, which takes a third of the time for
    as many right sides as there are tokens, and errs no more (Higham, 2002, section 14.2).

    Args:
        tokens: All tokens.
        chosen: The working set.
        prior: Lambda, shape (d, d).
        target: B with V = B B' for A and V, shape (d, r); None for D.
        dtype: Of the sums over tokens; float32 takes half the time and is enough far from the optimum.
    """

    def __init__(
        self,
        tokens: Tokens,
        chosen: Positions,
        prior: Floats,
        target: Floats | None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(tokens, chosen, dtype)
        self._prior = prior
        self._target = target
        self._identity = target is not None and np.array_equal(target, np.eye(len(target)))
        self._cache: tuple[Floats, Factored] | None = None
        self._leverages: Floats | None = None  # c K_ii at the first weights that the curvature was needed at

    def value(self, weights: Floats) -> float:
        """Log det I, or minus the squared norm of L^-1 B."""
        at = self.at(weights)
        if at.half is None:
            return 2.0 * float(np.log(np.diag(at.factor)).sum())
        return -float(np.vdot(at.half, at.half))

    def gradient(self, weights: Floats) -> Floats:
        """Squared norms in the metric of `form`."""
        at = self.at(weights)
        if at.gradient is None:
            at.gradient = self._squares(at, self.form_at(at))
        return at.gradient.copy()

    def derivatives(self, weights: Floats) -> tuple[Floats, Floats]:
        """K and A are Gram matrices of `solved`."""
        solved, scored = self.solved(weights)
        gradient = self.scale * np.einsum("kr,kr->k", scored, scored)
        return gradient, self._hessian(solved @ solved.T, None if self._target is None else scored @ scored.T)

    def learned(self, weights: Floats) -> float:
        """For D the mean of the scores."""
        if self._target is None:
            return float(weights @ self.gradient(weights))
        at = self.at(weights)
        return float(np.vdot(at.inverse @ at.data, at.inverse))

    def trace(self, weights: Floats) -> float:
        """Trace of the data's part of I."""
        return float(np.trace(self.at(weights).data))

    def condition(self, weights: Floats) -> float:
        """That of I after scaling."""
        at = self.at(weights)
        return factor_condition(at.factor, at.means, self._all.scale, at.inverse)

    def form(self, weights: Floats) -> ScoreForm:
        """L^-1 for D, B' I^-1 for A and V (its triangular factor if it has d rows or more)."""
        return self.form_at(self.at(weights))

    def hessian_diagonal(self, weights: Floats) -> Floats:
        """Diagonal of the Hessian of -s, less the part that vanishes on changes that sum to 0 in every block."""
        gradient = self.gradient(weights)
        if self._target is None:
            return np.asarray(gradient * (gradient + 2.0))
        at = self.at(weights)
        if self._leverages is None:
            self._leverages = self._squares(at, ScoreForm.of_factor(at.inverse))
        return np.asarray(2.0 * gradient * (self._leverages + 1.0))

    def solved(self, weights: Floats) -> tuple[NDArray, NDArray]:
        """L^-1 z, and what the scores are squared norms of, a row for each token; the same array for D."""
        at = self.at(weights)
        form = self.form_at(at)
        directions, inverse = (factor.astype(self.dtype, copy=False) for factor in (form.directions, at.inverse))
        solved = np.empty_like(self.rows)
        scored = solved
        if self._target is not None:
            scored = np.empty((len(self.tokens), len(directions)), dtype=self.dtype)
        for chunk, rows in self._centred(at):
            if self._target is not None:
                scored[chunk] = factor_product(rows.copy(), directions, form.triangle)
            solved[chunk] = factor_product(rows, inverse, "lower")
        return solved, scored

    def _squares(self, at: Factored, form: ScoreForm) -> Floats:
        """Scores of the working set in a metric, shape (k,)."""
        result = np.empty(len(self.tokens))
        directions = form.directions.astype(self.dtype, copy=False)
        for chunk, rows in self._centred(at):
            product = factor_product(rows, directions, form.triangle)
            result[chunk] = np.einsum("kr,kr->k", product, product)
        return np.asarray(self.scale * result)

    def form_at(self, at: Factored) -> ScoreForm:
        if at.form is None:
            inverse = at.inverse.astype(self.dtype, copy=False)
            half = at.half
            if half is not None:
                half = inverse if self._identity else half.astype(self.dtype, copy=False)
            at.form = factor_form(inverse, half)
        return at.form

    def _centred(self, at: Factored) -> Iterator[tuple[slice, NDArray]]:
        """Features less the mean of their block, a chunk at a time, in an array that the next one overwrites."""
        for part, mean in zip(self.parts, at.means.astype(self.dtype), strict=True):
            for begin in range(part.start, part.stop, _CHUNK):
                chunk = slice(begin, min(begin + _CHUNK, part.stop))
                yield chunk, np.subtract(self.rows[chunk], mean, out=self._scratch[: chunk.stop - begin])

    @cached_property
    def _scratch(self) -> NDArray:
        """A chunk of rows."""
        return np.empty((min(_CHUNK, len(self.tokens)), self._all.dimension), dtype=self.dtype)

    def at(self, weights: Floats) -> Factored:
        """The information at some weights; what was computed last is kept."""
        if self._cache is None or not np.array_equal(self._cache[0], weights):
            means, data = self._moments(weights)
            factor, inverse = _factored(data + self._prior, self.dtype)
            half = None
            if self._target is not None:
                half = inverse if self._identity else inverse @ self._target
            self._cache = weights.copy(), Factored(means, data, factor, inverse, half)
        return self._cache[1]

    def _moments(self, weights: Floats) -> tuple[Floats, Floats]:
        """Mean of each block, shape (B, d), and information of the data about the means, shape (d, d)."""
        add = blas.ssyrk if self.dtype == np.float32 else blas.dsyrk
        means = np.zeros((len(self.parts), self._all.dimension))
        total = np.zeros(self._prior.shape, dtype=self.dtype, order="F")  # its upper triangle
        for part, mean, scale in zip(self.parts, means, self._all.scale, strict=True):
            used = part.start + np.flatnonzero(weights[part])
            for begin in range(0, len(used), _CHUNK):
                chunk = used[begin : begin + _CHUNK]
                roots = np.sqrt(weights[chunk]).astype(self.dtype)
                rows = self._scratch[: len(chunk)]
                if len(chunk) == chunk[-1] + 1 - chunk[0]:
                    np.multiply(self.rows[chunk[0] : chunk[-1] + 1], roots[:, None], out=rows)
                else:
                    np.take(self.rows, chunk, axis=0, out=rows, mode="clip")
                    rows *= roots[:, None]
                mean += roots @ rows
                total = add(scale, rows.T, beta=1.0, c=total, overwrite_c=1)
        data = total.T.astype(np.float64)  # its lower triangle
        data += np.tril(data, -1).T
        weighted = means * np.sqrt(self._all.scale)[:, None]
        data -= weighted.T @ weighted
        return means, data


@dataclass
class Factored:
    """What an `InformationObjective` knows at some weights.

    Attributes:
        means: Of the centred features in each block, shape (B, d).
        data: Information of the data, I - Lambda, shape (d, d).
        factor: L with I = L L', shape (d, d).
        inverse: L^-1.
        half: L^-1 B for A and V, shape (d, r).
        form: The scores as a quadratic form, once it is needed.
        gradient: Scores of the working set, once they are needed.
    """

    means: Floats
    data: Floats
    factor: Floats
    inverse: Floats
    half: Floats | None
    form: ScoreForm | None = None
    gradient: Floats | None = None


def _factored(information: Floats, dtype: np.dtype) -> tuple[Floats, Floats]:
    """Cholesky factor L of I and its inverse, computed in a precision, both float64."""
    factorise = lapack.spotrf if dtype == np.float32 else lapack.dpotrf
    upper, failed = factorise(information.astype(dtype).T, lower=0, clean=1, overwrite_a=1)  # L', in columns
    pivots = np.diag(upper)
    if failed or pivots.min() ** 2 <= len(pivots) * np.finfo(dtype).eps * pivots.max() ** 2:
        if dtype == np.float32:
            raise SingularInformationError(
                "Expected an information matrix that float32 can invert, got a singular one; use float64."
            )
        upper = np.asarray(cholesky(information)).T  # which says what is wrong
    invert = lapack.strtri if dtype == np.float32 else lapack.dtrtri
    inverse = invert(upper, lower=0)[0]
    return np.asarray(upper.T, dtype=np.float64), np.asarray(inverse.T, dtype=np.float64)
