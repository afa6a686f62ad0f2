"""The state from which a rule chooses the next question of a pool: items, posterior, questions asked, and lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_array, check_count, check_integers
from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate
from edpbrl_gym.likelihood.choice import fisher_information

__all__ = ["ItemProducts", "LaneGroup", "Lanes", "PoolState", "draw_questions", "positive_definite_factor", "softmax"]

_LINES = 1024  # items whose products with all others are kept: bounds the memory
_BLOCK_NUMBERS = 1 << 20  # elements of the rows gathered at once


class LaneGroup(NamedTuple):
    """Positions of options (g,) that are chosen from the same items, ascending indices (m,), and must differ."""

    items: Indices
    options: Indices


class Lanes(NamedTuple):
    """Which items each option may be: the lane of each item (n,), -1 for none, and of each option (K,)."""

    of_items: Indices
    of_options: Indices

    def groups(self) -> list[LaneGroup]:
        """Options of the same lane, in the order of their first ones."""
        return [
            LaneGroup(np.flatnonzero(self.of_items == lane), np.flatnonzero(self.of_options == lane))
            for lane in dict.fromkeys(self.of_options.tolist())
        ]

    def checked(self, num_items: int, num_options: int) -> Lanes:
        """The same lanes; ValueError for other numbers, and for fewer items in a lane than options that share it."""
        hint = "the lane of each item and of each option"
        check_integers(self.of_items, "lanes.of_items", shape=(num_items,), low=-1, hint=hint)
        check_integers(self.of_options, "lanes.of_options", shape=(num_options,), low=0, hint=hint)
        for items, options in self.groups():
            if len(items) < len(options):
                raise ValueError(
                    f"Expected at least {len(options)} items in the lane of option {options[0]}, which as many options "
                    f"share, got {len(items)}"
                )
        return self


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
        lanes: Which items each option may be; None: all items. All rules respect it.
        past: Features of the options of all questions asked, (t, K, d), if they are not items of this pool; None:
            those of ``asked``.
        memory: What rules keep from one question to the next about the same pool, see ``kept``.

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
    lanes: Lanes | None = None
    past: Floats | None = None
    memory: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        items = check_array(self.items, "items", shape=("n", "d"))
        count, dimension = items.shape
        num_options = check_count(self.num_options, "num_options (K)", minimum=2)
        if num_options > count:
            raise ValueError(f"Expected at least K = {num_options} items, got {count}; a question shows K different")
        square = (dimension, dimension)
        shapes = {"mean": (dimension,), "precision": square, "draws": ("M", dimension), "agnostic": square}
        for name, shape in shapes.items():
            hint = f"the items have {dimension} features"
            object.__setattr__(self, name, check_array(getattr(self, name), name, shape=shape, hint=hint))
        object.__setattr__(self, "items", items)
        if not len(self.draws):
            raise ValueError("Expected at least one draw of theta (M), got draws of shape (0, d)")
        if self.lanes is not None:
            self.lanes.checked(count, num_options)
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
            seed: Seed of the draws, and then of the rule's randomness.
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
        drawn = Posterior.from_estimate(fit).draws(check_count(draws, "draws (M)"), rng)
        agnostic = prior.precision + fisher_information(options)
        asked = tuple(tuple(int(i) for i in row) for row in table)
        return cls(pool, fit.theta, fit.precision, drawn, agnostic, size, rng=rng, asked=asked)

    @property
    def num_items(self) -> int:
        """Number of items n."""
        return len(self.items)

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.items.shape[1]

    @property
    def asked_items(self) -> Indices:
        """The questions asked, (t, K)."""
        return np.array(self.asked, dtype=np.int64).reshape(-1, self.num_options)

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` returns, made once for all states with this ``memory``, the same items and equal lanes."""
        known = self.memory.get(key)
        if known is None or known[0] is not self.items or not _same_lanes(known[1], self.lanes):
            known = self.memory[key] = (self.items, self.lanes, make())
        return known[2]

    @cached_property
    def groups(self) -> list[LaneGroup]:
        """Options that are chosen from the same items."""
        if self.lanes is None:
            return [LaneGroup(np.arange(self.num_items), np.arange(self.num_options))]
        return self.lanes.groups()

    @cached_property
    def _factor(self) -> Floats:
        """Lower triangular L with H = L L', (d, d)."""
        return positive_definite_factor(self.precision, "precision")

    @cached_property
    def _whitened(self) -> Floats:
        """L^-1 x_i with H = L L', (n, d): inner products of these rows are x_i' H^-1 x_j."""
        return _solved(self._factor, self.items)

    @cached_property
    def solved(self) -> Floats:
        """H^-1 x_i, (n, d)."""
        return _solved(self._factor, self._whitened, transposed=True)

    @cached_property
    def products(self) -> ItemProducts:
        """x_i' H^-1 x_j for the items of many questions."""
        return ItemProducts(self._whitened)

    @cached_property
    def agnostic_products(self) -> ItemProducts:
        """x_i' V^-1 x_j for the items of many questions."""
        return ItemProducts(_solved(positive_definite_factor(self.agnostic, "agnostic"), self.items))

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
        return softmax(self.utilities[questions.T])

    def solve(self, vector: ArrayLike) -> Floats:
        """H^-1 v, (d,)."""
        row = np.atleast_2d(np.asarray(vector, dtype=np.float64))
        return np.asarray(_solved(self._factor, _solved(self._factor, row), transposed=True)[0])


class ItemProducts:
    """r_i . r_j of rows r, (n, r), without an n by n table: with r_i = R x_i these are x_i' (R' R) x_j.

    A search that replaces one option of a question by every item needs, for each of the other options, its inner
    products with all items: one product of a matrix with a vector, which is kept.

    Args:
        rows: (n, r).
    """

    def __init__(self, rows: Floats) -> None:
        self._rows = rows
        self._norms = np.asarray(np.vecdot(rows, rows))
        self._lines: dict[int, Floats] = {}

    def gram(self, questions: Indices) -> Floats:
        """r_i . r_j of the items of each question, (K, K, m), of questions (m, K)."""
        count, size = questions.shape
        table = np.empty((size, size, count))
        # which options are the same item in all questions, where there are enough for a product with all items
        many = 8 * count >= len(self._rows)
        fixed = (questions == questions[0]).all(axis=0) if many else np.zeros(size, dtype=np.bool_)
        for a in range(size):
            table[a, a] = self._norms[questions[:, a]]
            for b in range(a):
                if fixed[a]:
                    table[a, b] = self._line(int(questions[0, a]))[questions[:, b]]
                elif fixed[b]:
                    table[a, b] = self._line(int(questions[0, b]))[questions[:, a]]
                else:
                    table[a, b] = self._between(questions[:, a], questions[:, b])
                table[b, a] = table[a, b]
        return table

    def differences(self, questions: Indices) -> Floats:
        """The same of the differences to the first option, y_k = r_k - r_0, (K - 1, K - 1, m)."""
        gram = self.gram(questions)
        return np.asarray(gram[1:, 1:] - gram[1:, :1] - gram[:1, 1:] + gram[0, 0])

    def squared_distances(self, questions: Indices) -> Floats:
        """|r_i - r_j|^2 of the items of each question, (K, K, m)."""
        gram = self.gram(questions)
        norms = gram[np.arange(len(gram)), np.arange(len(gram))]
        return np.maximum(norms[:, None] + norms[None] - 2.0 * gram, 0.0)

    def _line(self, item: int) -> Floats:
        if item not in self._lines:
            if len(self._lines) >= _LINES:
                self._lines.pop(next(iter(self._lines)))
            self._lines[item] = np.asarray(self._rows @ self._rows[item])
        return self._lines[item]

    def _between(self, first: Indices, second: Indices) -> Floats:
        values = np.empty(len(first))
        step = max(1, _BLOCK_NUMBERS // max(1, self._rows.shape[1]))
        for begin in range(0, len(first), step):
            block = slice(begin, begin + step)
            values[block] = np.vecdot(self._rows[first[block]], self._rows[second[block]])
        return values


def draw_questions(
    count: int,
    num_items: int,
    num_options: int,
    rng: np.random.Generator,
    *,
    lanes: Lanes | None = None,
) -> Indices:
    """Independent questions of K different items, uniform over those that the lanes allow, (count, K).

    Option k of a group is drawn from its n - k remaining items, by its rank among them.
    """
    if lanes is None:
        return _draw_sets(count, num_items, num_options, rng)
    table = np.empty((count, num_options), dtype=np.int64)
    for items, options in lanes.groups():
        table[:, options] = items[_draw_sets(count, len(items), len(options), rng)]
    return table


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


def softmax(values: Floats) -> Floats:
    """Over the first axis."""
    powers = np.exp(values - values.max(axis=0))
    return np.asarray(powers / powers.sum(axis=0))


def _draw_sets(count: int, num_items: int, size: int, rng: np.random.Generator) -> Indices:
    table = np.empty((count, size), dtype=np.int64)
    for k in range(size):
        rank = rng.integers(num_items - k, size=count)
        earlier = np.sort(table[:, :k], axis=1)
        for j in range(k):
            rank += rank >= earlier[:, j]
        table[:, k] = rank
    return table


def _same_lanes(one: Lanes | None, other: Lanes | None) -> bool:
    if one is None or other is None:
        return one is other
    return all(map(np.array_equal, one, other))


def _solved(factor: Floats, rows: Floats, *, transposed: bool = False) -> Floats:
    """L^-1 r, or L'^-1 r, for each row r of (n, d)."""
    solution = solve_triangular(factor, rows.T, lower=True, trans="T" if transposed else "N", check_finite=False)
    return np.ascontiguousarray(solution.T)
