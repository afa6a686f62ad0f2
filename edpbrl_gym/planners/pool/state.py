"""The state from which a rule chooses the next question of a finite pool of items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_array, check_count, check_integers
from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.planners.pool.lanes import LaneGroup, check_lanes, lane_groups
from edpbrl_gym.planners.pool.products import ItemProducts

__all__ = ["PoolState", "positive_definite_factor"]


@dataclass(frozen=True, eq=False)
class PoolState:
    """A pool of n items, the posterior of the taste, and the questions asked.

    ``PoolState.of`` computes it from questions and answers.

    Attributes:
        items: Features of the items x_i, (n, d).
        mean: theta_hat, the estimate of the taste, (d,).
        precision: H, the prior precision plus the sum of F(S_t; theta_hat) over the answered questions, (d, d).
        draws: theta_m, m = 1..M, from N(theta_hat, H^-1), (M, d), M >= 1.
        agnostic: V, the prior precision plus the sum of F(S_t; 0) over all questions asked, (d, d): it needs no
            answers.
        num_options: K, at least 2 and at most n.
        rng: Generator of the searches and of rules that draw; seed 0 by default.
        asked: The questions asked, each K indices.
        lanes: Items that option q of the question may be, K arrays of indices; None: all items. Two lanes have the same
            items or none in common. All rules respect it: item q of their question is one of lane q.
        past: Features of the options of all questions asked, (t, K, d), if they are not items of this pool; None:
            those of ``asked``.

    Raises:
        ValueError: Shapes that don't fit, NaN, K out of range, no draws, lanes that don't fit, or a precision that is
            not positive definite (when it is first used).
    """

    items: Floats
    mean: Floats
    precision: Floats
    draws: Floats
    agnostic: Floats
    num_options: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    asked: tuple[tuple[int, ...], ...] = ()
    lanes: tuple[Indices, ...] | None = None
    past: Floats | None = None

    def __post_init__(self) -> None:
        items = check_array(self.items, "items", shape=("n", "d"))
        count, dimension = items.shape
        num_options = check_count(self.num_options, "num_options (K)", minimum=2)
        if num_options > count:
            raise ValueError(f"Expected at least K = {num_options} items, got {count}; a question shows K different")
        for name, shape in (
            ("mean", (dimension,)),
            ("precision", (dimension, dimension)),
            ("draws", ("M", dimension)),
            ("agnostic", (dimension, dimension)),
        ):
            hint = f"the items have {dimension} features"
            object.__setattr__(self, name, check_array(getattr(self, name), name, shape=shape, hint=hint))
        object.__setattr__(self, "items", items)
        if not len(self.draws):
            raise ValueError("Expected at least one draw of theta (M), got draws of shape (0, d)")
        if self.lanes is not None:
            object.__setattr__(self, "lanes", check_lanes(self.lanes, count, num_options))
        if self.past is not None:
            past = check_array(self.past, "past", shape=("t", num_options, dimension))
            object.__setattr__(self, "past", past)

    @classmethod
    def of(
        cls,
        items: ArrayLike,
        prior: GaussianPrior,
        questions: ArrayLike,
        choices: ArrayLike,
        *,
        num_options: int,
        draws: int = 32,
        seed: int | Sequence[int] = 0,
    ) -> PoolState:
        """The state after n questions: the estimate under the prior, and M draws of its Laplace posterior.

        Args:
            items: (n, d).
            prior: A proper prior of the taste.
            questions: Indices of items, (t, K); t = 0 before the first question.
            choices: Index of the chosen option of each question, (t,); -1 for a question without an answer, which
                counts for ``agnostic`` only.
            num_options: K.
            draws: M >= 1.
            seed: Seed of the draws, and then of the rule's randomness. The same arguments give the same state.

        Raises:
            ValueError: An improper prior, indices or choices out of range, lengths that don't fit, or an estimate that
                does not converge.
        """
        pool = check_array(items, "items", shape=("n", "d"))
        size = check_count(num_options, "num_options (K)", minimum=2)
        indices = np.asarray(questions)
        indices = indices.reshape(0, size) if indices.size == 0 else indices
        table = check_integers(indices, "questions", shape=("t", size), low=0, high=len(pool) - 1)
        answers = check_integers(choices, "choices", shape=(len(table),), low=-1, high=size - 1)
        if not prior.proper:
            raise ValueError("Expected a proper prior (a positive definite precision), got a singular one")
        answered = answers >= 0
        options = pool[table]
        fit = estimate((options[answered], answers[answered]), prior=prior)
        if not fit.converged:
            raise ValueError(f"Expected an estimate that converges, got {fit.reason}")
        rng = np.random.default_rng(seed)
        return cls(
            items=pool,
            mean=fit.theta,
            precision=fit.precision,
            draws=Posterior.from_estimate(fit).draws(check_count(draws, "draws (M)"), rng),
            agnostic=prior.precision + fisher_information(options),
            num_options=size,
            rng=rng,
            asked=tuple(tuple(int(i) for i in row) for row in table),
        )

    @property
    def num_items(self) -> int:
        """Number of items n."""
        return len(self.items)

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.items.shape[1]

    @property
    def asked_options(self) -> Floats:
        """Features of the options of all questions asked, (t, K, d)."""
        if self.past is not None:
            return self.past
        return self.items[np.array(self.asked, dtype=np.int64).reshape(-1, self.num_options)]

    @cached_property
    def groups(self) -> list[LaneGroup]:
        """Options that are chosen from the same items."""
        return lane_groups(self.num_items, self.num_options, self.lanes)

    @cached_property
    def factor(self) -> Floats:
        """Lower triangular L with H = L L', (d, d)."""
        return positive_definite_factor(self.precision, "precision")

    @cached_property
    def agnostic_factor(self) -> Floats:
        """Lower triangular L with V = L L', (d, d)."""
        return positive_definite_factor(self.agnostic, "agnostic")

    @cached_property
    def whitened(self) -> Floats:
        """L^-1 x_i with H = L L', (n, d): inner products of these rows are x_i' H^-1 x_j."""
        return _solved(self.factor, self.items)

    @cached_property
    def solved(self) -> Floats:
        """H^-1 x_i, (n, d)."""
        return _solved(self.factor, self.whitened, transposed=True)

    @cached_property
    def agnostic_whitened(self) -> Floats:
        """L^-1 x_i with V = L L', (n, d)."""
        return _solved(self.agnostic_factor, self.items)

    @cached_property
    def products(self) -> ItemProducts:
        """x_i' H^-1 x_j for the items of many questions."""
        return ItemProducts(self.whitened)

    @cached_property
    def agnostic_products(self) -> ItemProducts:
        """x_i' V^-1 x_j for the items of many questions."""
        return ItemProducts(self.agnostic_whitened)

    @cached_property
    def utilities(self) -> Floats:
        """theta_hat . x_i, (n,)."""
        return np.asarray(self.items @ self.mean)

    @cached_property
    def draw_utilities(self) -> Floats:
        """theta_m . x_i, (n, M)."""
        return np.asarray(self.items @ self.draws.T)

    def probabilities(self, questions: Indices) -> Floats:
        """p_k at theta_hat of the options of each question, (K, m), of questions (m, K)."""
        return _softmax(self.utilities[questions.T])

    def draw_probabilities(self, questions: Indices) -> Floats:
        """p_k at every draw, (K, m, M), of questions (m, K)."""
        return _softmax(self.draw_utilities[questions.T])

    def solve(self, rows: ArrayLike) -> Floats:
        """H^-1 r for each row r of (n, d), or for one vector (d,)."""
        table = np.asarray(rows, dtype=np.float64)
        solution = _solved(self.factor, _solved(self.factor, np.atleast_2d(table)), transposed=True)
        return np.asarray(solution.reshape(table.shape))


def _softmax(values: Floats) -> Floats:
    """Over the first axis."""
    powers = np.exp(values - values.max(axis=0))
    return np.asarray(powers / powers.sum(axis=0))


def positive_definite_factor(matrix: Floats, name: str) -> Floats:
    """Lower triangular L with L L' = matrix, (d, d).

    Raises:
        ValueError: A matrix that is not positive definite.
    """
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise ValueError(
            f"Expected {name} as a positive definite matrix, got a singular or indefinite one; use a proper prior"
        ) from None


def _solved(factor: Floats, rows: Floats, *, transposed: bool = False) -> Floats:
    """L^-1 r, or L'^-1 r, for each row r of (n, d)."""
    solution = solve_triangular(factor, rows.T, lower=True, trans="T" if transposed else "N", check_finite=False)
    return np.ascontiguousarray(solution.T)
