"""How much a question is worth under a Gaussian posterior, for all replacements of one of its options at once.

Write X (K, d) for the options, P for the posterior covariance, theta_m (m = 1..M) for posterior draws or the mean,
p_m = softmax(X theta_m), and W = mean over m of diag(p_m) - p_m p_m'. The expected Fisher information of the question
is X' W X, and everything below needs inner products of options only, so that trying every token of a vocabulary in the
place of one option costs a few products and n determinants of size K.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

__all__ = ["ExpectedBest", "ExpectedInformation", "MutualInformation", "QuestionScore"]

Floats = NDArray[np.float64]


class QuestionScore(ABC):
    """The value of a question with options X, higher is better.

    Args:
        draws: theta_m, (M, d), M >= 1.
    """

    def __init__(self, draws: Floats) -> None:
        self.draws = draws

    def prepare(self, tokens: Floats) -> None:
        """Set the candidates g_v, (n, d); an option of lane q is g_v + offset_q."""
        self._tokens = tokens
        self._utilities = tokens @ self.draws.T

    @abstractmethod
    def replacements(self, offsets: Floats, chosen: NDArray[np.int64], lane: int) -> Floats:
        """Value of the question with each candidate in the place of one option, (n,).

        Args:
            offsets: What the prefix of each lane adds, (K, d).
            chosen: Candidate of each lane, (K,); that of ``lane`` is ignored.
            lane: Whose option is replaced.
        """

    def _utilities_with(self, offsets: Floats, chosen: NDArray[np.int64], lane: int) -> Floats:
        """theta_m . x of every option with each replacement, (n, K, M)."""
        shared = self._utilities[chosen] + offsets @ self.draws.T
        values = np.repeat(shared[None], len(self._tokens), axis=0)
        values[:, lane] = self._utilities + offsets[lane] @ self.draws.T
        return values

    def _probabilities(self, offsets: Floats, chosen: NDArray[np.int64], lane: int) -> Floats:
        """Softmax over the options, (n, K, M)."""
        values = self._utilities_with(offsets, chosen, lane)
        values -= values.max(axis=1, keepdims=True)
        np.exp(values, out=values)
        values /= values.sum(axis=1, keepdims=True)
        return values


class ExpectedInformation(QuestionScore):
    """D-criterion: log det(P^-1 + X' W X) - log det P^-1 = log det(E + W X P X').

    Args:
        draws: theta_m, (M, d).
        covariance: P, (d, d).
    """

    def __init__(self, draws: Floats, covariance: Floats) -> None:
        super().__init__(draws)
        self._covariance = covariance

    def prepare(self, tokens: Floats) -> None:
        """See the base class."""
        super().prepare(tokens)
        self._moved = tokens @ self._covariance
        self._norms = np.einsum("nd,nd->n", self._moved, tokens)

    def replacements(self, offsets: Floats, chosen: NDArray[np.int64], lane: int) -> Floats:
        """See the base class."""
        product = self._information(offsets, chosen, lane) @ self._gram(offsets, chosen, lane)
        diagonal = np.arange(len(chosen))
        product[:, diagonal, diagonal] += 1.0
        return np.asarray(np.linalg.slogdet(product)[1])

    def _gram(self, offsets: Floats, chosen: NDArray[np.int64], lane: int) -> Floats:
        """X P X' with each replacement, (n, K, K)."""
        options = self._tokens[chosen] + offsets
        moved = options @ self._covariance
        gram = np.repeat((moved @ options.T)[None], len(self._tokens), axis=0)
        cross = self._tokens @ moved.T + moved @ offsets[lane]
        gram[:, lane, :] = cross
        gram[:, :, lane] = cross
        own = offsets[lane] @ self._covariance
        gram[:, lane, lane] = self._norms + 2.0 * (self._tokens @ own) + own @ offsets[lane]
        return gram

    def _information(self, offsets: Floats, chosen: NDArray[np.int64], lane: int) -> Floats:
        """W with each replacement, (n, K, K)."""
        probabilities = self._probabilities(offsets, chosen, lane)
        weights = -np.matmul(probabilities, probabilities.transpose(0, 2, 1)) / probabilities.shape[2]
        diagonal = np.arange(len(chosen))
        weights[:, diagonal, diagonal] += probabilities.mean(axis=2)
        return weights


class MutualInformation(QuestionScore):
    """BALD (Houlsby et al., 2011) for K options: entropy of the mean of p_m less the mean of their entropies."""

    def replacements(self, offsets: Floats, chosen: NDArray[np.int64], lane: int) -> Floats:
        """See the base class."""
        probabilities = self._probabilities(offsets, chosen, lane)
        return _entropy(probabilities.mean(axis=2)) - _entropy(probabilities).mean(axis=1)


class ExpectedBest(QuestionScore):
    """Expected utility of the best option, mean over m of max_k theta_m . x_k (Astudillo et al., 2023)."""

    def replacements(self, offsets: Floats, chosen: NDArray[np.int64], lane: int) -> Floats:
        """See the base class."""
        others = np.delete(np.arange(len(chosen)), lane)
        fixed = (self._utilities[chosen[others]] + offsets[others] @ self.draws.T).max(axis=0)
        own = self._utilities + offsets[lane] @ self.draws.T
        return np.asarray(np.maximum(own, fixed).mean(axis=1))


def _entropy(probabilities: Floats) -> Floats:
    """Over axis 1."""
    tiny = np.finfo(np.float64).tiny
    return np.asarray(-(probabilities * np.log(probabilities + tiny)).sum(axis=1))
