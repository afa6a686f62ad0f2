"""Acquisition values of questions under a Gaussian posterior, for all replacements of one option at once.

    X (K, d)          options x_k; a is the one that is replaced
    P (d, d)          posterior covariance, P = R' R
    theta_m (d,)      posterior draws, m = 1..M, or the mean
    p_m (K,)          softmax(X theta_m)
    W (K, K)          mean over m of diag(p_m) - p_m p_m'; X' W X is the expected Fisher information of the question

With s = p_m(a) for a candidate, the other options keep their relative shares q_m, p_m(j) = (1 - s) q_m(j), so that
every mean over m is a product of (M, n) arrays of s with arrays of q_m.

Everything below needs inner products of options only. The K - 1 other options are the same for all candidates. With the
first of them as the origin, and an orthonormal basis of the span of the others' R (x_j - x_0), they have coordinates
z_j (r,), r <= K - 2, and a candidate has (f, g), g the length of what is outside of this span. In these coordinates the
information of the question is the mean over m of the covariance of the options under p_m. With

    rho_m = sum_j q_m(j) z_j,    v = E[s (1 - s)],    rho = E[s (1 - s) rho_m] / sqrt(v),    h = sqrt(v) f - rho,
    A - I = E[(1 - s) sum_j q_m(j) z_j z_j' - (1 - s)^2 rho_m rho_m'] - rho rho'

it is H = (A - I, and 0 outside) + k k', k = (h, g sqrt(v)), so that the candidates differ in n matrices of size r and a
few vectors. The determinant of I + H is that of A times 1 + h' A^-1 h + g^2 v.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrmm, strmm
from scipy.linalg.lapack import dsyevd
from scipy.special import expit

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import Posterior

__all__ = ["ExpectedBest", "ExpectedInformation", "ExpectedVariance", "MutualInformation", "QuestionScore"]

_EQUAL = 1e-8  # smallest variance in the span of the others, relative to the largest
_TINY = np.finfo(np.float64).tiny

Table = NDArray[np.floating]


class QuestionScore(ABC):
    """Acquisition value of a question with options X; higher is better.

    Args:
        draws: theta_m, (M, d), M >= 1.
    """

    _tokens: Table | None = None  # of the last call of ``prepare``

    def __init__(self, draws: Floats) -> None:
        self.draws = draws

    def prepare(self, tokens: Table, offsets: Floats) -> None:
        """Set the candidates. Token v in lane k (a place in the question) is the option with features g_v + o_k.

        Args:
            tokens: g_v, (n, d); in float32 the products over all candidates are float32 too, twice as fast. While it is
                the same array as in the call before, only what the offsets change is computed.
            offsets: o_k, what the prefix of each lane adds, (K, d).
        """
        if tokens is not self._tokens:
            self._take_tokens(tokens)
            self._tokens = tokens
        self._take_offsets(offsets)

    def _take_tokens(self, tokens: Table) -> None:
        self._utilities = np.asarray(tokens @ self.draws.T.astype(tokens.dtype), dtype=np.float64)
        self._type = tokens.dtype
        self._inverse_odds: tuple[Floats, Table | None] | None = None

    def _take_offsets(self, offsets: Floats) -> None:
        self._offset_utilities = offsets @ self.draws.T

    @abstractmethod
    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        """Value of the question with each candidate in the place of one option, (n,).

        Args:
            question: Candidate of each lane, (K,); that of ``lane`` is ignored.
            lane: The lane whose option is replaced.
        """

    def _others(self, question: NDArray[np.int64], lane: int) -> Floats:
        """theta_m . x of the other options, (K - 1, M)."""
        others = _without(len(question), lane)
        return np.asarray(self._utilities[question[others]] + self._offset_utilities[others])

    def _shares(self, question: NDArray[np.int64], lane: int) -> tuple[Table, Floats]:
        """s, the probability of each candidate against the others (M, n), and q, the others' among themselves."""
        others = self._others(question, lane)
        top = others.max(axis=0)
        log_total = top + np.log(np.exp(others - top).sum(axis=0))
        shares = np.exp(others - log_total)
        top, inverse_odds = self._exponentials()
        if inverse_odds is None:
            return expit(self._utilities.T + (self._offset_utilities[lane] - log_total)[:, None]), shares
        with np.errstate(over="ignore"):  # then the probability is 0
            against = np.exp(log_total - top - self._offset_utilities[lane]).astype(inverse_odds.dtype)
            odds = inverse_odds * against[:, None]
        odds += 1.0
        return np.divide(1.0, odds, out=odds), shares

    def _exponentials(self) -> tuple[Floats, Table | None]:
        """The highest utilities (M,), and exp(highest - utility) of each candidate (M, n); None where they overflow.

        Every replacement needs these times a number of its draw, so that they are computed once.
        """
        if self._inverse_odds is None:
            top = self._utilities.max(axis=0)
            below = np.asarray((top - self._utilities).T, dtype=self._type, order="C")
            largest = np.log(np.finfo(below.dtype).max) - 5.0
            self._inverse_odds = top, np.exp(below) if below.max() < largest else None
        return self._inverse_odds


class _InformationScore(QuestionScore):
    """Base of the scores that are functions of X' W X.

    Args:
        draws: theta_m, (M, d).
        posterior: Of theta, with the covariance P.
    """

    def __init__(self, draws: Floats, posterior: Posterior) -> None:
        super().__init__(draws)
        self._posterior, self._root = posterior, np.empty((0, 0))
        self._cast: Table = self._root

    def prepare(self, tokens: Table, offsets: Floats) -> None:
        part, self._used, self._own = self._posterior.apart(tokens, offsets)
        if part.inverse_factor is not self._root or tokens.dtype != self._cast.dtype:  # once in a search
            self._root, self._tokens = part.inverse_factor, None
            self._cast = self._root.astype(tokens.dtype)
        super().prepare(tokens, offsets)

    def _take_tokens(self, tokens: Table) -> None:
        super()._take_tokens(tokens)
        # the rows R x: tokens @ root.T
        white = _triangular(self._cast, tokens[:, self._used].T).T
        self._white = _Rows(white, _alone(tokens, self._own))

    def _take_offsets(self, offsets: Floats) -> None:
        super()._take_offsets(offsets)
        self._white.move(_times(self._cast, offsets[:, self._used]))

    def _after(self, question: NDArray[np.int64], lane: int, basis: _Basis, *, inverse: bool = False) -> _After:
        """The information of the question with each replacement, with ``inverse`` where that is needed."""
        share, q = self._shares(question, lane)
        complement = 1.0 - share
        share *= complement
        points, draws = basis.root.T, len(self.draws)
        one, other = _lower(len(points))
        means = points @ q[1:]
        squares = means[one] * means[other]
        spread = (points[one] * points[other]) @ q[1:] - squares
        each = np.concatenate([squares, means, np.ones((1, draws))]) / draws
        found = np.asarray(each.astype(share.dtype) @ share, dtype=np.float64)
        inner, rho, v = found[: len(one)], found[len(one) : -1], found[-1]
        inner += (spread / draws).astype(share.dtype) @ complement
        root = np.sqrt(v)
        rho /= root + _TINY
        inner -= rho[one] * rho[other]
        return _After.of(inner, root * basis.coordinates - rho, v, basis.outside, inverse=inverse)


class ExpectedInformation(_InformationScore):
    """D-criterion: log det(P^-1 + X' W X) - log det P^-1 = log det(I + H).

    Args:
        draws: theta_m, (M, d).
        posterior: Of theta, with the covariance P.
    """

    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        found = self._after(question, lane, _Basis(*self._white.products(question, lane)))
        return np.asarray(np.log(found.pivots).sum(axis=0) + np.log(found.growth))


class ExpectedVariance(_InformationScore):
    """A- and V-criterion: reduction of the posterior variance by an answer, tr(S P) - tr(S (P^-1 + X' W X)^-1).

    S = I (A) weights all coordinates of theta equally; S = B B' (V) is a variance of contrasts: with the second moment
    of differences of items it is the mean variance of these differences. With N = Q' R S R' Q, Q the basis in which H
    is written, it is tr(N) - tr((I + H)^-1 N). The basis of the others is the one in which their part of N is diagonal.

    Source: classical optimal design (Chaloner & Verdinelli, 1995), with the Fisher information of a choice averaged
    over posterior draws.

    Args:
        draws: theta_m, (M, d).
        posterior: Of theta, with the covariance P.
        contrasts: B, (d, r), 0 for coordinates that are about one token each; None: I.
    """

    def __init__(self, draws: Floats, posterior: Posterior, *, contrasts: Floats | None = None) -> None:
        super().__init__(draws, posterior)
        self._contrasts = contrasts

    def _take_tokens(self, tokens: Table) -> None:
        super()._take_tokens(tokens)
        # the rows B' P x, with P x = R' (R x)
        rows = _triangular(self._cast, self._white.tokens.T, transposed=True).T
        own = self._own if self._contrasts is None else np.zeros(1)
        self._targets = _Rows(self._contrasted(rows), _alone(tokens, np.square(own)))

    def _take_offsets(self, offsets: Floats) -> None:
        super()._take_offsets(offsets)
        self._targets.move(self._contrasted(_times(self._cast, self._white.offsets, transposed=True)))

    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        among, cross, norms = self._targets.products(question, lane)
        basis = _Basis(*self._white.products(question, lane), among)
        found = self._after(question, lane, basis, inverse=True)
        f, known = basis.coordinates, basis.known[:, None]
        images = basis.inverse.T @ cross
        outside = images - known * f  # g times the last column of N; g^2 times its last entry is
        last = norms - (f * (images + outside)).sum(axis=0)
        x = np.einsum("jin,jn->in", found.inverse, found.half)
        told = (x * (known * x + 2.0 * np.sqrt(found.weight) * outside)).sum(axis=0) + found.weight * last
        left = np.einsum("i,jin,jin->n", basis.known, found.inverse, found.inverse)
        return np.asarray(basis.known.sum() - left + told / found.growth)

    def _contrasted(self, rows: Table) -> Table:
        return rows if self._contrasts is None else rows @ self._contrasts[self._used].astype(rows.dtype)


class MutualInformation(QuestionScore):
    """BALD (Houlsby et al., 2011) for K options: entropy of the mean of p_m less the mean of their entropies."""

    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        share, q = self._shares(question, lane)
        complement = 1.0 - share
        mean = np.concatenate([share.mean(axis=0)[None], q @ complement / len(self.draws)])
        # chain rule: the entropy of p_m is that of "a or not" plus, if not, that of q_m
        entropy = _plogp(share) + _plogp(complement) + complement * _plogp(q).sum(axis=0)[:, None]
        return np.asarray(entropy.mean(axis=0) - _plogp(mean).sum(axis=0))


class ExpectedBest(QuestionScore):
    """Expected utility of the best option, mean over m of max_k theta_m . x_k (Astudillo et al., 2023)."""

    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        utilities = self._utilities + self._offset_utilities[lane]
        others = self._others(question, lane)
        if not len(others):  # one option: by how much it may exceed the one that seems best (expected improvement)
            others = utilities[utilities.mean(axis=1).argmax()][None]
        others = others.max(axis=0)
        return np.asarray(np.maximum(utilities, others).mean(axis=1))


class _After(NamedTuple):
    """The information of a question with each replacement.

    Attributes:
        pivots: Squares of the diagonals of the Cholesky factors L of A, (r, n).
        inverse: L^-1, lower triangular, (r, r, n); (r, 0, n) where nobody asked for it.
        half: L^-1 h, (r, n).
        weight: v, (n,).
        growth: 1 + h' A^-1 h + g^2 v, (n,).
    """

    pivots: Floats
    inverse: Floats
    half: Floats
    weight: Floats
    growth: Floats

    @classmethod
    def of(cls, inner: Floats, along: Floats, weight: Floats, outside: Floats, *, inverse: bool) -> _After:
        """By elimination, each step for all replacements at once.

        Args:
            inner: A - I, its lower half row by row, (r (r + 1) / 2, n).
            along: h, (r, n).
            weight: v, (n,).
            outside: g^2, (n,).
            inverse: Whether L^-1 is needed.
        """
        size, count = along.shape
        columns = size + 1 + size * inverse  # A, h and I side by side
        pivots, system = np.empty((size, count)), np.zeros((size, columns, count))
        one, other = _lower(size)
        system[other, one], system[:, size] = inner, along
        for row in range(size):
            pivots[row] = 1.0 + np.maximum(system[row, row], 0.0)  # below 0 by rounding only
            if inverse:
                system[row, size + 1 + row] = 1.0
            end = min(size + 2 + row, columns)
            system[row, row + 1 : end] /= np.sqrt(pivots[row])
            for later in range(row + 1, size):
                system[later, later:end] -= system[row, later] * system[row, later:end]
        half = system[:, size]
        return cls(pivots, system[:, size + 1 :], half, weight, 1.0 + np.square(half).sum(axis=0) + outside * weight)


class _Basis:
    """The orthonormal basis of the span of the other options, by inner products as `_Rows.products` gives them.

    Args:
        among: Of the others, (K - 2, K - 2).
        cross: With the replacements, (K - 2, n).
        norms: Of the replacements, (n,).
        targets: (K - 2, K - 2) of the others, which are to be diagonal in this basis; None: of nothing.

    Attributes:
        root: z_j of the others after the first, (K - 2, r).
        inverse: Its pseudoinverse, transposed, (K - 2, r).
        coordinates: f of the replacements, (r, n).
        outside: g^2, (n,).
        known: The diagonal of the targets, (r,).
    """

    def __init__(self, among: Floats, cross: Floats, norms: Floats, targets: Floats | None = None) -> None:
        values, vectors = _eigh(among)
        kept = values > _EQUAL * values.max(initial=0.0)
        scales, vectors = np.sqrt(values[kept]), vectors[:, kept]
        self.root, self.inverse = vectors * scales, vectors / scales
        if targets is not None:
            self.known, turn = _eigh(self.inverse.T @ targets @ self.inverse)
            self.root, self.inverse = self.root @ turn, self.inverse @ turn
        self.coordinates = self.inverse.T @ cross
        self.outside = np.maximum(norms - np.square(self.coordinates).sum(axis=0), 0.0)


class _Rows:
    """Inner products of differences of options, for options that are sums of a token's row and an offset's.

    Args:
        tokens: (n, r).
        alone: What each token adds to its squared norm, and to nothing else, (n,).
    """

    def __init__(self, tokens: Table, alone: Floats) -> None:
        self.tokens = tokens
        self._alone, self._are_alone = alone, alone.any()
        self._norms = np.einsum("nd,nd->n", tokens, tokens, dtype=np.float64) + alone
        self._between: dict[int, Floats] = {}  # products of tokens with one

    def move(self, offsets: Table) -> None:
        """Set the offsets, (K, r)."""
        self.offsets = offsets
        products = self.tokens @ offsets.T.astype(self.tokens.dtype)
        self._offset_token = np.ascontiguousarray(products.T, dtype=np.float64)
        self._cross: dict[tuple[int, int], Floats] = {}  # products of tokens with the option that one is in a lane

    def products(self, question: NDArray[np.int64], lane: int) -> tuple[Floats, Floats, Floats]:
        """Inner products of the differences to the first of the other options.

        Those among the others after it, (K - 2, K - 2); those of each replacement of option ``lane`` with them,
        (K - 2, n), and with itself, (n,).
        """
        others = _without(len(question), lane)
        rows = np.asarray(self.tokens[question[others]] + self.offsets[others], dtype=np.float64)
        offset = self.offsets[lane]
        first, differences = rows[0], rows[1:] - rows[0]
        with_first = self._products(int(question[others[0]]), int(others[0]))
        cross = np.empty((len(differences), len(with_first)))
        for row, other in zip(cross, others[1:].tolist(), strict=True):
            np.subtract(self._products(int(question[other]), other), with_first, out=row)
        cross += (differences @ (offset - first))[:, None]
        norms = self._norms + 2.0 * (self._offset_token[lane] - with_first) + np.square(offset - first).sum()
        among = differences @ differences.T
        if self._are_alone:
            alone = self._alone[question[others]]
            return among + np.diag(alone[1:]) + alone[0], cross + alone[0], norms + alone[0]
        return among, cross, norms

    def _products(self, token: int, lane: int) -> Floats:
        """Inner products of all tokens with the option that one is in a lane, (n,)."""
        if (token, lane) not in self._cross:
            if token not in self._between:
                self._between[token] = np.asarray(self.tokens @ self.tokens[token], dtype=np.float64)
            self._cross[token, lane] = self._between[token] + self._offset_token[lane]
        return self._cross[token, lane]


def _eigh(matrix: Floats) -> tuple[Floats, Floats]:
    """As ``np.linalg.eigh``, which takes twice as long for matrices as small as these."""
    if not len(matrix):
        return np.empty(0), np.empty((0, 0))
    values, vectors, failed = dsyevd(matrix, lower=1)
    if failed:
        raise np.linalg.LinAlgError("Expected a symmetric matrix of finite numbers, got one without eigenvalues")
    return values, vectors


def _triangular(root: Table, columns: Table, *, transposed: bool = False) -> Table:
    """R c, or R' c, of a lower triangular R in C order for each column c, both of one precision."""
    product = strmm if columns.dtype == np.float32 else dtrmm
    return np.asarray(product(1.0, root.T, columns, trans_a=int(not transposed)))  # BLAS would copy R to Fortran order


def _times(root: Table, offsets: Table, *, transposed: bool = False) -> Table:
    """The rows R o, or R' o, in the precision of R; the zero offsets of options without a prefix take no time."""
    rows = offsets.astype(root.dtype)
    return _triangular(root, rows.T, transposed=transposed).T if rows.any() else rows


def _alone(tokens: Table, variances: Floats) -> Floats:
    """What coordinates that are about one token each, with these variances (d,), add to the squared norms, (n,)."""
    if not variances.any():
        return np.zeros(len(tokens))
    return np.asarray(np.square(tokens) @ variances.astype(tokens.dtype), dtype=np.float64)


@functools.cache
def _lower(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the lower half of a matrix."""
    return np.tril_indices(size)


@functools.cache
def _without(count: int, lane: int) -> NDArray[np.intp]:
    """All places but one."""
    places = np.delete(np.arange(count), lane)
    places.flags.writeable = False
    return places


def _plogp(probabilities: Table) -> Floats:
    return np.asarray(probabilities * np.log(probabilities + _TINY))
