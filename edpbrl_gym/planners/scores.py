"""Acquisition values of questions under a Gaussian posterior, for all replacements of one option at once.

    X (K, d)          options x_k; a is the one that is replaced
    P (d, d)          posterior covariance
    theta_m (d,)      posterior draws, m = 1..M, or the mean
    p_m (K,)          softmax(X theta_m)
    W (K, K)          mean over m of diag(p_m) - p_m p_m'; X' W X is the expected Fisher information of the question
    Y (K - 1, d)      differences x_j - x_a; W_a is W without the row and column of a, W_a = L L', X' W X = Y' W_a Y
    J (K - 1, K - 1)  I + L' Y P Y' L, I the identity; J = C C'

Everything below needs inner products of options only, so that trying every token of a vocabulary in the place of one
option costs a few products and n determinants of size K - 1.

With s = p_m(a) for a candidate, the other options keep their relative shares q_m, p_m(j) = (1 - s) q_m(j), so that
every mean over m is a product of (n, M) arrays of s with (M,) arrays of q_m.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrmm, strmm
from scipy.special import expit

from edpbrl_gym._arrays import Floats

__all__ = ["ExpectedBest", "ExpectedInformation", "ExpectedVariance", "MutualInformation", "QuestionScore"]

_MANY = 6  # options
_STEP = 1e-30
_LARGEST_EXPONENT = 700.0  # of a float64, and a little less

Table = NDArray[np.floating]


class QuestionScore(ABC):
    """Acquisition value of a question with options X; higher is better.

    Args:
        draws: theta_m, (M, d), M >= 1.
    """

    def __init__(self, draws: Floats) -> None:
        self.draws = draws

    def prepare(self, tokens: Table, offsets: Floats) -> None:
        """Set the candidates. Token v in lane k (a place in the question) is the option with features g_v + o_k.

        Args:
            tokens: g_v, (n, d); in float32 the products over all candidates are float32 too, twice as fast.
            offsets: o_k, what the prefix of each lane adds, (K, d).
        """
        self._tokens = tokens
        self._offsets = offsets
        self._utilities = np.asarray(tokens @ self.draws.T.astype(tokens.dtype), dtype=np.float64)
        self._offset_utilities = offsets @ self.draws.T
        self._inverse_odds: tuple[Floats, Floats | None] | None = None

    @abstractmethod
    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        """Value of the question with each candidate in the place of one option, (n,).

        Args:
            question: Candidate of each lane, (K,); that of ``lane`` is ignored.
            lane: The lane whose option is replaced.
        """

    def _others(self, question: NDArray[np.int64], lane: int) -> Floats:
        """theta_m . x of the other options, (K - 1, M)."""
        others = _without(question, lane)
        return np.asarray(self._utilities[question[others]] + self._offset_utilities[others])

    def _shares(self, question: NDArray[np.int64], lane: int) -> tuple[Floats, Floats]:
        """s, the probability of each candidate against the others (n, M), and q, the others' among themselves."""
        others = self._others(question, lane)
        top = others.max(axis=0)
        log_total = top + np.log(np.exp(others - top).sum(axis=0))
        shares = np.exp(others - log_total)
        top, inverse_odds = self._exponentials()
        if inverse_odds is None:
            return expit(self._utilities + (self._offset_utilities[lane] - log_total)), shares
        with np.errstate(over="ignore"):  # then the probability is 0
            odds = inverse_odds * np.exp(log_total - top - self._offset_utilities[lane])
        odds += 1.0
        return np.divide(1.0, odds, out=odds), shares

    def _exponentials(self) -> tuple[Floats, Floats | None]:
        """The highest utilities (M,), and exp(highest - utility) of each candidate (n, M); None where they overflow.

        Every replacement needs these times a number of its draw, so that they are computed once.
        """
        if self._inverse_odds is None:
            top = self._utilities.max(axis=0)
            below = top - self._utilities
            self._inverse_odds = top, np.exp(below) if below.max() < _LARGEST_EXPONENT else None
        return self._inverse_odds


class _InformationScore(QuestionScore):
    """Base of the scores that are functions of X' W X; its determinant and trace need J only, of size K - 1.

    Args:
        draws: theta_m, (M, d).
        root: Lower triangular R with P = R' R, (d, d), ``Posterior.inverse_factor``.
    """

    def __init__(self, draws: Floats, root: Floats) -> None:
        super().__init__(draws)
        self._root = self._cast = root  # the cast has the type of the tokens

    def prepare(self, tokens: Table, offsets: Floats) -> None:
        super().prepare(tokens, offsets)
        if self._cast.dtype != tokens.dtype:
            self._cast = self._root.astype(tokens.dtype)
        # the rows R x: tokens @ root.T
        self._white = _Rows(_triangular(self._cast, tokens.T).T, _times(offsets, self._root.T))

    def _information(self, question: NDArray[np.int64], lane: int) -> tuple[Floats, Floats]:
        """L and C with each replacement, (K - 1, K - 1, n) each."""
        root = _cholesky(self._weights(question, lane))
        inner = _congruent(root, self._white.gram(question, lane))
        diagonal = np.arange(len(root))
        inner[diagonal, diagonal] += 1.0
        return root, _cholesky(inner)

    def _squares(self, question: NDArray[np.int64], lane: int) -> tuple[Floats, Floats]:
        """W_a, and I + W_a Y P Y' (with the determinant of J), with each replacement, (n, K - 1, K - 1) each.

        LAPACK takes one matrix after the other, which beats loops over their entries from about K = 6.
        """
        weights = np.ascontiguousarray(self._weights(question, lane).transpose(2, 0, 1))
        product = weights @ self._white.gram(question, lane).transpose(2, 0, 1)
        diagonal = np.arange(weights.shape[1])
        product[:, diagonal, diagonal] += 1.0
        return weights, product

    def _weights(self, question: NDArray[np.int64], lane: int) -> Floats:
        """W_a with each replacement, (K - 1, K - 1, n)."""
        share, q = self._shares(question, lane)
        complement = 1.0 - share
        mean = q / len(self.draws)
        pairs = (-mean[:, None] * q[None]).reshape(-1, len(self.draws))
        weights = (pairs @ (complement * complement).T).reshape(len(q), len(q), -1)
        diagonal = np.arange(len(q))
        weights[diagonal, diagonal] += mean @ complement.T
        return np.asarray(weights)


class ExpectedInformation(_InformationScore):
    """D-criterion: log det(P^-1 + X' W X) - log det P^-1 = log det J.

    Args:
        draws: theta_m, (M, d).
        root: Lower triangular R with P = R' R, (d, d), ``Posterior.inverse_factor``.
    """

    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        if len(question) >= _MANY:
            return np.asarray(np.linalg.slogdet(self._squares(question, lane)[1])[1])
        _, factor = self._information(question, lane)
        diagonal = np.arange(len(factor))
        return np.asarray(2.0 * np.log(factor[diagonal, diagonal]).sum(axis=0))


class ExpectedVariance(_InformationScore):
    """A- and V-criterion: reduction of the posterior variance by an answer, tr(S P) - tr(S (P^-1 + X' W X)^-1).

    It is tr(J^-1 T), T = L' Y P S P Y' L. S = I (A) weights all coordinates of theta equally; S = B B' (V) is a
    variance of contrasts: with the second moment of differences of items it is the mean variance of these differences.

    Source: classical optimal design (Chaloner & Verdinelli, 1995), with the Fisher information of a choice averaged
    over posterior draws.

    Args:
        draws: theta_m, (M, d).
        root: Lower triangular R with P = R' R, (d, d), ``Posterior.inverse_factor``.
        contrasts: B, (d, r); None: I.
    """

    def __init__(self, draws: Floats, root: Floats, *, contrasts: Floats | None = None) -> None:
        super().__init__(draws, root)
        self._contrasts = contrasts

    def prepare(self, tokens: Table, offsets: Floats) -> None:
        super().prepare(tokens, offsets)
        # the rows B' P x, with P x = R' (R x)
        rows = _triangular(self._cast, self._white.tokens.T, transposed=True).T
        others = _times(self._white.offsets, self._root)
        self._targets = _Rows(self._contrasted(rows), self._contrasted(others))

    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        if len(question) >= _MANY:  # tr(J^-1 T) = tr((I + W G)^-1 W T) with G and T the Gram matrices
            weights, product = self._squares(question, lane)
            return _trace_of_solution(product, weights @ self._targets.gram(question, lane).transpose(2, 0, 1))
        root, factor = self._information(question, lane)
        inner = _congruent(root, self._targets.gram(question, lane))
        # tr(J^-1 T) = tr(C^-1 T C'^-1): only its diagonal is needed, but every row solved depends on those before it
        inverse = _inverse(factor)
        value = np.zeros(inner.shape[-1])
        for i in range(len(inner)):
            for j in range(i + 1):
                for k in range(j + 1):
                    value += (1.0 if j == k else 2.0) * inverse[i, j] * inverse[i, k] * inner[j, k]
        return value

    def _contrasted(self, rows: Table) -> Table:
        return rows if self._contrasts is None else rows @ self._contrasts.astype(rows.dtype)


class MutualInformation(QuestionScore):
    """BALD (Houlsby et al., 2011) for K options: entropy of the mean of p_m less the mean of their entropies."""

    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        share, q = self._shares(question, lane)
        complement = 1.0 - share
        mean = np.concatenate([share.mean(axis=1)[None], q @ complement.T / len(self.draws)])
        # chain rule: the entropy of p_m is that of "a or not" plus, if not, that of q_m
        entropy = _plogp(share) + _plogp(complement) + complement * _plogp(q).sum(axis=0)
        return np.asarray(entropy.mean(axis=1) - _plogp(mean).sum(axis=0))


class ExpectedBest(QuestionScore):
    """Expected utility of the best option, mean over m of max_k theta_m . x_k (Astudillo et al., 2023)."""

    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        utilities = self._utilities + self._offset_utilities[lane]
        others = self._others(question, lane)
        if not len(others):  # one option: by how much it may exceed the one that seems best (expected improvement)
            others = utilities[utilities.mean(axis=1).argmax()][None]
        others = others.max(axis=0)
        return np.asarray(np.maximum(utilities, others).mean(axis=1))


class _Rows:
    """Inner products of differences of options, for options that are sums of a token's row and an offset's.

    Args:
        tokens: (n, r).
        offsets: (K, r).
    """

    def __init__(self, tokens: Table, offsets: Table) -> None:
        self.tokens = tokens
        self.offsets = offsets
        self._norms = np.einsum("nd,nd->n", tokens, tokens, dtype=np.float64)
        products = tokens @ offsets.T.astype(tokens.dtype)
        self._offset_token = np.ascontiguousarray(products.T, dtype=np.float64)
        self._between: dict[int, Floats] = {}  # products of tokens with one
        self._cross: dict[tuple[int, int], Floats] = {}  # and with the option that it is in a lane

    def gram(self, question: NDArray[np.int64], lane: int) -> Floats:
        """(x_j - x_a) . (x_k - x_a) with each replacement a of option ``lane``, (K - 1, K - 1, n)."""
        others = _without(question, lane)
        rows = self.tokens[question[others]] + self.offsets[others]
        offset = self.offsets[lane]
        norms = self._norms + 2.0 * self._offset_token[lane] + offset @ offset
        cross = np.stack([self._products(int(question[other]), int(other)) for other in others])
        shift = rows @ offset
        between = rows @ rows.T - shift[:, None] - shift
        return np.asarray(between[:, :, None] - cross[:, None] - cross[None] + norms)

    def _products(self, token: int, lane: int) -> Floats:
        """Inner products of all tokens with the option that one is in a lane, (n,)."""
        if (token, lane) not in self._cross:
            if token not in self._between:
                self._between[token] = np.asarray(self.tokens @ self.tokens[token], dtype=np.float64)
            self._cross[token, lane] = self._between[token] + self._offset_token[lane]
        return self._cross[token, lane]


def _triangular(root: Floats, columns: Table, *, transposed: bool = False) -> Table:
    """R c, or R' c, of a lower triangular R in C order for each column c, both of one precision."""
    product = strmm if columns.dtype == np.float32 else dtrmm
    return np.asarray(product(1.0, root.T, columns, trans_a=int(not transposed)))  # BLAS would copy R to Fortran order


def _times(rows: Table, matrix: Floats) -> Table:
    """The product, which the zero offsets of options without a prefix need not be multiplied for."""
    return rows @ matrix if rows.any() else np.zeros((len(rows), matrix.shape[1]))


def _trace_of_solution(matrices: Floats, right: Floats) -> Floats:
    """tr(A^-1 B) for n matrices of a positive determinant, (n, k, k) each, in half the time of solving.

    It is the derivative of log det(A + h B) at h = 0, and so the phase of the determinant at an imaginary step: nothing
    cancels, and the step is too small for any other term (Squire & Trapp, 1998).
    """
    phase = np.linalg.slogdet(matrices + (1j * _STEP) * right)[0]
    return np.asarray(phase.imag / (_STEP * phase.real))


def _congruent(root: Floats, matrices: Floats) -> Floats:
    """The lower half of L' A L for n matrices A and n lower triangular L, all (size, size, n)."""
    size = len(root)
    result = np.zeros_like(matrices)
    for j in range(size):
        product = np.einsum("ikn,kn->in", matrices[:, j:], root[j:, j])
        for i in range(j, size):
            result[i, j] = np.einsum("kn,kn->n", root[i:, i], product[i:])
    return result


def _inverse(factor: Floats) -> Floats:
    """L^-1 for n lower triangular L without zeros on the diagonal, all (size, size, n)."""
    result = np.zeros_like(factor)
    for i in range(len(factor)):
        result[i, i] = 1.0 / factor[i, i]
        for j in range(i):
            result[i, j] = -(factor[i, j:i] * result[j:i, j]).sum(axis=0) * result[i, i]
    return result


def _without(question: NDArray[np.int64], lane: int) -> NDArray[np.intp]:
    places = np.arange(len(question) - 1)
    places[lane:] += 1
    return places


def _plogp(probabilities: Floats) -> Floats:
    return np.asarray(probabilities * np.log(probabilities + np.finfo(np.float64).tiny))


def _cholesky(matrices: Floats) -> Floats:
    """Lower triangular L with L L' = A for n positive semidefinite matrices of a small size, all (size, size, n).

    Loops over the entries, each step for all n at once. A pivot that is zero to rounding makes a column of zeros.
    """
    root = np.zeros_like(matrices)
    size = len(matrices)
    for j in range(size):
        pivot = matrices[j, j] - np.square(root[j, :j]).sum(axis=0)
        positive = pivot > 1e-15 * matrices[j, j]
        root[j, j] = np.sqrt(np.where(positive, pivot, 0.0))
        inverse = np.divide(1.0, root[j, j], out=np.zeros_like(pivot), where=positive)
        for i in range(j + 1, size):
            root[i, j] = (matrices[i, j] - (root[i, :j] * root[j, :j]).sum(axis=0)) * inverse
    return root
