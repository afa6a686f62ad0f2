"""A level of each option by itself: ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.likelihood.choice import check_options, log_softmax
from edpbrl_gym.likelihood.formats import AnswerFormat, Input, Keys, Texts, Words
from edpbrl_gym.likelihood.logits import (
    checked_responses,
    checked_uniforms,
    checked_utilities,
    checked_values,
    pick,
)
from edpbrl_gym.likelihood.response import Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["Like", "Rating"]

_MOST_LEVELS = 7
_MAX_OUTCOMES = 40_320  # answers that are listed
_BLOCK_ROWS = 4096  # rows of one BLAS product


@dataclass(frozen=True)
class Rating(AnswerFormat):
    """A level in 0..L-1 of each of the K options, K >= 1: the rating scale model (Andrich, 1978).

    The adjacent-category logit: of an option with utility v = theta . x the level l has the probability

        P(l) = exp(l v - sum_{m <= l} tau_m) / sum_k exp(k v - sum_{m <= k} tau_m),   l = 0..L-1,

    so that log P(m) / P(m - 1) = v - tau_m. It is a multinomial logit with the rows [l x, -1(m <= l)], linear in theta
    and the thresholds tau_1..tau_{L-1}, which belong to the person and are learnt with theta: the log-likelihood is
    concave. For L = 2 it is a logistic regression, P(1) = 1 / (1 + exp(tau - v)). The options of a question are rated
    independently. Other than in choices a common shift of the utilities is no matter of indifference: it is what the
    thresholds are about.

    Attributes:
        levels: L, 2 to 7.
        thresholds: tau, (L - 1,), where they are known; None: learnt, and zeros for draws and information.
        spread: Prior standard deviation of each threshold, around 0, > 0.

    Raises:
        ValueError: Another number of levels or thresholds, or a spread <= 0.
    """

    levels: int = 5
    thresholds: tuple[float, ...] | None = None
    spread: float = 5.0

    name: ClassVar[str] = "rating"
    kinds: ClassVar[tuple[Kind, ...]] = ("rating",)
    least: ClassVar[int] = 1
    asked: ClassVar[int] = 1
    relative: ClassVar[bool] = False
    texts: ClassVar[Texts] = Texts(
        "question_levels", "question_attention_levels", "choose_levels", "keys_levels", "a level of each"
    )
    columns: ClassVar[tuple[str, ...]] = ("rating",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", check_count(self.levels, "levels (L)", minimum=2, maximum=_MOST_LEVELS))
        object.__setattr__(self, "spread", check_number(self.spread, "spread", minimum=0.0, exclusive=True))
        if self.thresholds is not None:
            hint = f"one below each of the levels but the lowest of {self.levels}"
            tau = check_array(self.thresholds, "thresholds", shape=(self.levels - 1,), hint=hint)
            object.__setattr__(self, "thresholds", tuple(tau.tolist()))

    @classmethod
    def of(cls, responses: Sequence[Response]) -> AnswerFormat:
        """With as many levels as were given; a file doesn't tell how many there were."""
        highest = max((level for response in responses for level in response.levels), default=1)
        return Rating(max(2, highest + 1))

    def _logs(self, values: Floats) -> Floats:
        """Log probability of each level, (..., L), from utilities (...)."""
        tau = np.zeros(self.levels - 1) if self.thresholds is None else np.array(self.thresholds)
        totals = np.concatenate([[0.0], tau.cumsum()])
        return log_softmax(values[..., None] * np.arange(self.levels) - totals)

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """The L^K ratings in lexicographic order, at most 40,320."""
        if self.levels**num_options > _MAX_OUTCOMES:
            raise ValueError(
                f"Expected at most {_MAX_OUTCOMES:,} answers to list, got {self.levels}^{num_options}; take fewer "
                "options"
            )
        return tuple(Response.rating(levels) for levels in product(range(self.levels), repeat=num_options))

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probability of each outcome, (n, L^K)."""
        logs = self._logs(checked_values(options, theta, least=1)[1])
        chosen = np.array([outcome.levels for outcome in self.outcomes(logs.shape[1])])
        return np.exp(logs[:, np.arange(logs.shape[1]), chosen].sum(axis=-1))

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """One term of L rows for each rated option; thresholds that are learnt are their last L - 1 columns."""
        features = check_options(options, least=1)
        indices, levels = checked_responses(responses, features, ("rating",), self.name)["rating"]
        if len(indices) and levels.max() >= self.levels:
            raise ValueError(f"Expected levels in 0..{self.levels - 1}, got {levels.max()}; a rating of more levels?")
        rated = features[indices].reshape(-1, features.shape[2])
        steps = np.arange(self.levels)
        rows = np.zeros((len(rated), self.levels, features.shape[2] + self.levels - 1))
        rows[:, :, : features.shape[2]] = steps[:, None] * rated[:, None, :]
        rows[:, :, features.shape[2] :] = -(steps[:, None] > steps[:-1]).astype(np.float64)
        own = np.tile([0.0, self.spread], (self.levels - 1, 1))
        terms = Terms(rows, np.zeros(rows.shape[:2]), levels.ravel() if len(indices) else np.zeros(0, int), own)
        return terms if self.thresholds is None else terms.at(self.thresholds)

    def at(self, known: Sequence[float] | None) -> AnswerFormat:
        """With these thresholds."""
        return self if known is None else replace(self, thresholds=tuple(known))

    def weights(self, values: ArrayLike) -> Floats:
        """The variances of the levels on the diagonal, (n, K, K), from the utilities (n, K)."""
        p = np.exp(self._logs(checked_utilities(values, least=1)))
        steps = np.arange(self.levels)
        variances = p @ steps**2.0 - (p @ steps) ** 2
        return np.asarray(np.maximum(variances, 0.0)[:, :, None] * np.eye(p.shape[1]))

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Expected Fisher information about theta with the thresholds known, sum of Var(l) x x', (d, d)."""
        features, values = checked_values(options, theta, least=1)
        deviations = np.sqrt(np.diagonal(self.weights(values), axis1=1, axis2=2))
        rows = (deviations[:, :, None] * features).reshape(-1, features.shape[2])
        return np.asarray(rows.T @ rows)

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer per question. With ``uniforms=None``: the most probable levels, the lower one of equals."""
        _, values = checked_values(options, theta, least=1)
        draws, logs = checked_uniforms(uniforms, len(values)), self._logs(values)
        levels = np.empty(values.shape, dtype=np.int64)
        for option in range(values.shape[1]):
            levels[:, option], draws = pick(logs[:, option], draws)
        return [Response.rating(tuple(map(int, row))) for row in levels]

    def mistaken(self, answer: Response, num_options: int, draw: float) -> Response:
        """Other levels, by their number in the L^K; they are not listed."""
        number = 1 + int(draw * (self.levels**num_options - 1))
        moves = [number // self.levels**place % self.levels for place in range(num_options)]
        return Response.rating([(level + move) % self.levels for level, move in zip(answer.levels, moves, strict=True)])

    def followed(self, response: Response, expected: int) -> bool:
        """Whether the option has the highest level, and no other has."""
        others = [level for option, level in enumerate(response.levels) if option != expected]
        top = self.levels - 1
        return bool(response.levels) and response.levels[expected] == top and top not in others

    @property
    def inputs(self) -> tuple[Input, ...]:
        """A level of each option."""
        return (Input("levels", "level", levels=self.levels),)

    def words(self, num_options: int) -> Words:
        """Levels from 1 to L."""
        each = "" if num_options == 1 else " each"
        number = (
            f"a number from 1 to {self.levels}"
            if num_options == 1
            else f"{num_options} numbers from 1 to {self.levels}"
        )
        return Words(
            task=f"say how much you would like the picture of{each or ' it'}, from 1 (least) to {self.levels} (most)",
            question=f"how much do you like{each or ' it'}, from 1 to {self.levels}?",
            expected=f"{number}, {self.levels} where you like it most"
            + (", in the order of the options" if each else ""),
            keys=f"1-{self.levels}" + (" for each in turn" if each else ""),
            example=f"1-{self.levels}" if num_options == 1 else "a number for each",
        )

    def seconds(self, num_options: int) -> float:
        """Two for each option."""
        return 2.0 * num_options

    def highest(self, num_options: int) -> int:
        """Of any number of levels, which a file doesn't tell."""
        return _MOST_LEVELS

    def from_cells(self, given: Sequence[int], num_options: int) -> Response:
        """Levels of any number."""
        return Response.rating(given).checked(num_options)

    def response(self, given: Sequence[int], num_options: int) -> Response:
        """The level of each option."""
        response = Response.rating(given).checked(num_options)
        if max(response.levels) >= self.levels:
            raise ValueError(f"Expected levels in 0..{self.levels - 1}, got {max(response.levels)}")
        return response

    def keys(self, num_options: int) -> Keys:
        """A level of each option in turn."""
        return Keys(self.levels, num_options, again=True)


@dataclass(frozen=True)
class Like(Rating):
    """Like or dislike each option: a rating of two levels."""

    levels: int = 2

    name: ClassVar[str] = "like"
    texts: ClassVar[Texts] = Texts(
        "question_like", "question_attention_levels", "choose_levels", "keys_levels", "which they like"
    )
    columns: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.levels, "levels (L) of likes", minimum=2, maximum=2)

    def words(self, num_options: int) -> Words:
        """1 for no, 2 for yes."""
        more = super().words(num_options)
        each = "" if num_options == 1 else " each"
        return replace(
            more,
            task=f"say whether you would like the picture of{each or ' it'}: 1 no, 2 yes",
            question=f"do you like{each or ' it'}? 1 no, 2 yes",
            example="1 (no) or 2 (yes)" if num_options == 1 else more.example,
        )
