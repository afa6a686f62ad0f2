"""The answers of many people, in the coordinates in which the base prior is the standard normal distribution.

With the base prior N(m, C), C = R R', and theta = m + R u, the utility differences of a person are D theta =
D R u + D m. All models of a population are fitted in u and mapped back at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count
from edpbrl_gym.comparisons.queries import is_frame
from edpbrl_gym.estimation.map_estimate import Data, answer_differences
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.likelihood import AnswerFormat, Terms

__all__ = ["Answered", "Frame", "answered_people", "check_group"]


@dataclass(frozen=True, eq=False)
class Answered:
    """One person's answers: differences to the chosen alternatives, (n, k, d), and their offsets, (n, k), or None."""

    rows: Floats
    offsets: Floats | None

    @property
    def empty(self) -> bool:
        """Whether the answers say nothing: there are none, or each had one alternative."""
        return self.rows.shape[0] * self.rows.shape[1] == 0

    def terms(self) -> Terms:
        """The same answers with the chosen alternative first, its features 0."""
        count, others, dimension = self.rows.shape
        rows = np.concatenate([np.zeros((count, 1, dimension)), self.rows], axis=1)
        offsets = np.zeros((count, 1 + others))
        if self.offsets is not None:
            offsets[:, 1:] = self.offsets
        return Terms(rows, offsets, np.zeros(count, dtype=np.int64))

    def log_likelihood(self, points: Floats) -> Floats:
        """Log-likelihood at each of the points (S, d), (S,)."""
        count, others, dimension = self.rows.shape
        if self.empty:
            return np.zeros(len(points))
        values = (self.rows.reshape(-1, dimension) @ points.T).reshape(count, others, len(points))
        if self.offsets is not None:
            values += self.offsets[:, :, None]
        largest = np.maximum(values.max(axis=1), 0.0)
        total = np.exp(values - largest[:, None]).sum(axis=1) + np.exp(-largest)
        return np.asarray(-(np.log(total) + largest).sum(axis=0))


@dataclass(frozen=True, eq=False)
class Frame:
    """The base prior's coordinates: theta = mean + root u.

    Attributes:
        mean: m, (d,).
        root: R, (d, d), invertible.
    """

    mean: Floats
    root: Floats

    @classmethod
    def of(cls, base: GaussianPrior) -> Frame:
        """The frame of a proper prior.

        Raises:
            ValueError: An improper prior.
        """
        return cls(base.mean, base.covariance_root())

    def inside(self, answered: Answered) -> Answered:
        """The answers as a function of u."""
        rows, offsets = answered.rows, answered.offsets
        if self.mean.any():
            shift = rows @ self.mean
            offsets = shift if offsets is None else offsets + shift
        return Answered(rows @ self.root, offsets)

    def prior(self, mean: Floats, covariance: Floats) -> GaussianPrior:
        """The distribution of theta where u has the given mean (d,) and covariance (d, d)."""
        outside = self.root @ covariance @ self.root.T
        return GaussianPrior.from_covariance((outside + outside.T) / 2, self.mean + self.root @ mean)


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
        answered = Answered(rows, offsets)
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
