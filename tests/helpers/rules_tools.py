"""Small pools of items and searches written out, for the tests of the rules of the literature."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.planners.rules import PoolState


class Pool:
    """A tiny pool, a prior that is no ridge, a few answered questions, and the state after them."""

    def __init__(
        self, seed: int = 1000, *, n: int = 9, d: int = 4, K: int = 3, asked: int = 4, scale: float = 2.0
    ) -> None:
        rng = np.random.default_rng(seed)
        self.K = K
        self.items = rng.normal(size=(n, d))
        root = rng.normal(size=(d, d))
        self.prior = GaussianPrior.from_precision(root @ root.T / d + 0.4 * np.eye(d))
        self.theta = scale * rng.normal(size=d)
        drawn = [rng.choice(n, K, replace=False) for _ in range(asked)]
        self.questions = np.array(drawn, dtype=np.int64).reshape(asked, K)
        self.choices = (self.items[self.questions] @ self.theta + rng.gumbel(size=(asked, K))).argmax(axis=1)

    def state(self, *, draws: int = 8, seed: int | Sequence[int] = 0, choices: np.ndarray | None = None) -> PoolState:
        """The state after the answers, or after others."""
        answers = self.choices if choices is None else choices
        return PoolState.of(self.items, self.prior, self.questions, answers, num_options=self.K, draws=draws, seed=seed)

    def all_questions(self) -> np.ndarray:
        """Every set of K items, (m, K)."""
        return np.array(list(itertools.combinations(range(len(self.items)), self.K)))


def information(options: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Fisher information of one question (K, d) at theta, sum over the pairs of p_i p_j (x_i - x_j)(x_i - x_j)'."""
    powers = np.exp(options @ theta)
    p = powers / powers.sum()
    total = np.zeros((options.shape[1], options.shape[1]))
    for i, j in itertools.combinations(range(len(options)), 2):
        difference = options[i] - options[j]
        total += p[i] * p[j] * np.outer(difference, difference)
    return total


def log_det(matrix: np.ndarray) -> float:
    """log det of a positive definite matrix, from its eigenvalues."""
    return float(np.log(np.linalg.eigvalsh(matrix)).sum())
