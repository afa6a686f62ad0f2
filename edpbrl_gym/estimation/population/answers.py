"""The answers of many people, in the coordinates in which the base prior is the standard normal distribution.

With the base prior N(m, C), C = R R', and theta = m + R u, the utility differences of a person are D theta =
D R u + D m. All models of a population are fitted in u and mapped back at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.comparisons.queries import is_frame
from edpbrl_gym.estimation.map_estimate import Data, answer_differences
from edpbrl_gym.estimation.population.sites import Sites, fit_sites
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.likelihood import AnswerFormat, Terms

__all__ = ["Answered", "Block", "People", "answered_people", "check_forgetting", "check_group", "inside", "outside"]

_BLOCK_NUMBERS = 1 << 19  # of a block of people: stays in the cache
_POINTS = 1 << 7  # of the variational integrals
_TOLERANCE, _MORE_STEPS = 1e-4, 20  # nats a person; steps from the last sites


@dataclass(frozen=True, eq=False)
class Answered:
    """One person's answers: differences to the chosen alternatives, (n, k, d), and their offsets, (n, k).

    Answers that say nothing are one absent alternative.
    """

    rows: Floats
    offsets: Floats
    empty: bool = False

    @classmethod
    def of(cls, rows: Floats, offsets: Floats | None) -> Answered:
        """Those of `answer_differences`."""
        if rows.shape[0] * rows.shape[1] == 0:
            return cls(np.zeros((1, 1, rows.shape[2])), np.full((1, 1), -np.inf), empty=True)
        return cls(rows, np.zeros(rows.shape[:2]) if offsets is None else offsets)

    def terms(self) -> Terms:
        """The same answers with the chosen alternative first, its features 0."""
        rows = np.concatenate([np.zeros_like(self.rows[:, :1]), self.rows], axis=1)
        offsets = np.concatenate([np.zeros_like(self.offsets[:, :1]), self.offsets], axis=1)
        return Terms(rows, offsets, np.zeros(len(rows), dtype=np.int64))


def inside(base: GaussianPrior, answered: Answered) -> Answered:
    """Answers as a function of u, for a proper base prior."""
    return Answered(answered.rows @ base.covariance_root(), answered.offsets + answered.rows @ base.mean)


def outside(base: GaussianPrior, mean: Floats, covariance: Floats) -> GaussianPrior:
    """The distribution of theta where u has the given mean (d,) and covariance (d, d)."""
    root = base.covariance_root()
    spread = root @ covariance @ root.T
    return GaussianPrior.from_covariance((spread + spread.T) / 2, base.mean + root @ mean)


@dataclass(frozen=True, eq=False)
class Block:
    """Answers of B people; questions and alternatives that a person does not have are absent.

    Attributes:
        people: Their places among all people, (B,).
        rows: Differences to the chosen alternatives, (B, n, k, d); 0 for absent ones.
        offsets: (B, n, k); -inf for absent alternatives.
    """

    people: NDArray[np.intp]
    rows: Floats
    offsets: Floats

    @classmethod
    def of(cls, answered: Sequence[Answered], people: NDArray[np.intp]) -> Block:
        """Those of the people at the given places."""
        some = [answered[person] for person in people]
        shape = len(some), max(len(one.rows) for one in some), max(one.rows.shape[1] for one in some)
        rows, offsets = np.zeros((*shape, some[0].rows.shape[2])), np.full(shape, -np.inf)
        for place, one in enumerate(some):
            questions, others = one.offsets.shape
            rows[place, :questions, :others], offsets[place, :questions, :others] = one.rows, one.offsets
        return cls(people, rows, offsets)

    @property
    def flat(self) -> Floats:
        """The rows of all questions, D, (B, n k, d)."""
        return self.rows.reshape(len(self.rows), -1, self.rows.shape[3])

    @functools.cached_property
    def grams(self) -> Floats:
        """D D', (B, n k, n k)."""
        return np.matmul(self.flat, self.flat.transpose(0, 2, 1))


class People:
    """People's answers in blocks, those with similarly many together, and their last variational Gaussians."""

    def __init__(self, answered: Sequence[Answered]) -> None:
        sizes = np.array([person.offsets.size for person in answered])
        order = np.argsort(-sizes, kind="stable")
        self.blocks: list[Block] = []
        self.dimension = answered[0].rows.shape[2]
        start = 0
        while start < len(order):
            size = int(sizes[order[start]])
            number = max(1, _BLOCK_NUMBERS // (size * max(_POINTS, size, self.dimension)))
            self.blocks.append(Block.of(answered, order[start : start + number]))
            start += number
        self._last: list[Sites | None] = [None] * len(self.blocks)
        self._count = len(answered)

    def __len__(self) -> int:
        return self._count

    def fit(self, number: int, rows: Floats, offsets: Floats) -> Sites:
        """The variational Gaussians of a block's people, from the last ones; arguments as for ``fit_sites``."""
        start = self._last[number]
        limit = 200 if start is None else _MORE_STEPS
        found = fit_sites(rows, offsets, start=start, tolerance=_TOLERANCE, max_iterations=limit)
        self._last[number] = found
        return found


def answered_people(people: Sequence[Data], model: AnswerFormat | None, dimension: int | None = None) -> list[Answered]:
    """The checked answers of those people who gave any.

    Args:
        people: One item per person.
        model: Response model, as for :func:`~edpbrl_gym.estimation.estimate`.
        dimension: Number of features; None: that of the first person.

    Raises:
        TypeError: Not a sequence, or data as for :func:`~edpbrl_gym.estimation.estimate`.
        ValueError: People with different numbers of features, or data as for ``estimate``; the error names one.
    """
    if isinstance(people, str) or not isinstance(people, Sequence):
        advice = "; give load_people(table)" if is_frame(people) else ""
        raise TypeError(f"Expected people as a sequence with one item per person, got {type(people).__name__}{advice}")
    found = []
    for number, data in enumerate(people):
        try:
            rows, offsets = answer_differences(data, model)
        except (TypeError, ValueError) as error:
            raise type(error)(f"Person {number}: {error}") from error
        dimension = rows.shape[2] if dimension is None else dimension
        if rows.shape[2] != dimension:
            raise ValueError(
                f"Expected people with the same features, got {rows.shape[2]} features for person {number} instead of "
                f"{dimension}; use the same encoder for all"
            )
        answered = Answered.of(rows, offsets)
        if not answered.empty:
            found.append(answered)
    return found


def check_group(people: Sequence[Answered], minimum: int, action: str) -> None:
    """Refuse a group so small that the result would say much about each member.

    Raises:
        ValueError: Fewer people with answers than ``minimum``.
    """
    least = check_count(minimum, "minimum_people")
    if len(people) < least:
        raise ValueError(
            f"Expected answers of at least {least} people to {action}, got {len(people)} with answers; statistics of "
            f"fewer people could give away the answers of one. Wait for more people, or lower minimum_people if all "
            f"agreed to that"
        )


def check_forgetting(value: float) -> float:
    """The share of their weight that earlier people lose; ValueError outside of [0, 1)."""
    share = check_number(value, "forgetting", minimum=0.0)
    if share >= 1.0:
        raise ValueError(f"Expected forgetting in [0, 1), got {value}; fit a new population to forget everyone")
    return share
