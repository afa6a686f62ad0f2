"""The likelihood of answers as a sum of multinomial logits, whatever the format of the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats, read_only
from edpbrl_gym._validation import check_array, check_integers, check_selection
from edpbrl_gym.likelihood.choice import information_from_differences, log_softmax

if TYPE_CHECKING:
    from edpbrl_gym.likelihood.formats import AnswerFormat
    from edpbrl_gym.likelihood.response import Response

__all__ = ["Terms", "runs_of_equal", "uneven_terms"]


@dataclass(frozen=True, eq=False)
class Terms:
    """m multinomial logits; term i has the likelihood softmax_j(theta . rows[i, j] + offsets[i, j])[chosen[i]].

    A format derives the rows from the options: the options themselves (best-of), the remaining ones (a
    ranking), their negatives (the worst), their mean (a tie). An offset of -inf marks an absent alternative: terms
    with fewer than J alternatives are padded with absent ones, whose rows do not matter.

    Formats may have parameters of their own (the thresholds of ratings): the last columns of the rows, to be estimated
    beside theta under independent Gaussian priors, or put in by ``at``.

    Attributes:
        rows: Features of the alternatives, (m, J, d); J >= 1; m = 0 is allowed.
        offsets: Offsets of their utilities, (m, J), finite or -inf.
        chosen: Index of the chosen alternative, (m,), in 0..J-1, with an offset that is not -inf.
        own: Mean and standard deviation of the prior of each of the format's own parameters, (e, 2): of the last e
            columns; None: there are none.
        known: Their values, where they were put in.

    Raises:
        TypeError: An array is not of real numbers, or ``chosen`` not of integers.
        ValueError: Shapes that do not match, NaN, an offset of +inf, or a chosen alternative that is absent.
    """

    rows: Floats
    offsets: Floats
    chosen: NDArray[np.int64]
    own: Floats = None  # type: ignore[assignment]  # never None after __post_init__
    known: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        rows = check_array(self.rows, "rows", shape=("m", "J", "d"))
        if rows.shape[1] < 1 or rows.shape[2] < 1:
            raise ValueError(f"Expected at least 1 alternative and 1 feature per term, got rows of shape {rows.shape}")
        offsets = check_array(self.offsets, "offsets", shape=rows.shape[:2], finite=False)
        if np.isnan(offsets).any() or (offsets == np.inf).any():
            raise ValueError("Expected offsets that are finite or -inf (an absent alternative), got NaN or +inf")
        hint = f"one for each of the {len(rows)} terms"
        chosen = check_integers(self.chosen, "chosen", shape=(len(rows),), low=0, high=rows.shape[1] - 1, hint=hint)
        absent = np.flatnonzero(np.isneginf(offsets[np.arange(len(rows)), chosen]))
        if len(absent):
            raise ValueError(f"Expected chosen alternatives that are present, got an absent one in term {absent[0]}")
        own = np.zeros((0, 2)) if self.own is None else check_array(self.own, "own", shape=("e", 2))
        if len(own) >= rows.shape[2] or not (own[:, 1] > 0).all():
            raise ValueError(f"Expected fewer own parameters than columns, each with a deviation > 0, got {own}")
        for name, array in (("rows", rows), ("offsets", offsets), ("chosen", chosen), ("own", own)):
            object.__setattr__(self, name, read_only(array))

    def __len__(self) -> int:
        """Number of terms m."""
        return len(self.rows)

    @property
    def dimension(self) -> int:
        """Number of columns: features d, and own parameters of the format."""
        return int(self.rows.shape[2])

    @classmethod
    def concatenate(cls, parts: Sequence[Terms]) -> Terms:
        """The terms of all parts, in order, padded to the largest J.

        Raises:
            ValueError: There are no parts, or they differ in d.
        """
        if not parts:
            raise ValueError("Expected at least one Terms to concatenate, got none")
        dimensions = {part.dimension for part in parts}
        if len(dimensions) > 1:
            raise ValueError(f"Expected the same number of features in all parts, got {sorted(dimensions)}")
        total, width = sum(map(len, parts)), max(part.rows.shape[1] for part in parts)
        rows = np.zeros((total, width, parts[0].dimension))
        offsets = np.full((total, width), -np.inf)
        start = 0
        for part in parts:
            block = slice(start, start + len(part)), slice(0, part.rows.shape[1])
            rows[block], offsets[block] = part.rows, part.offsets
            start += len(part)
        return cls(rows, offsets, np.concatenate([part.chosen for part in parts]), parts[0].own, parts[0].known)

    def select(self, selection: Any) -> Terms:
        """The terms at a slice, a mask (m,) or indices; ``terms[selection]`` is the same."""
        selected = check_selection(selection, len(self))
        return Terms(self.rows[selected], self.offsets[selected], self.chosen[selected], self.own, self.known)

    __getitem__ = select

    def at(self, values: ArrayLike) -> Terms:
        """The terms about theta alone, with the format's own parameters (e,) as given."""
        known = check_array(values, "values", shape=(len(self.own),))
        features = self.dimension - len(known)
        offsets = self.offsets + self.rows[:, :, features:] @ known
        return Terms(self.rows[:, :, :features], offsets, self.chosen, known=tuple(known.tolist()))

    def differences(self) -> tuple[Floats, Floats]:
        """Rows and offsets relative to the chosen alternative: (m, J - 1, d) and (m, J - 1).

        Absent alternatives have the difference 0 and the offset -inf, so that they contribute nothing.
        """
        index = np.arange(len(self))
        others = np.arange(self.rows.shape[1] - 1)[None, :]
        others = others + (others >= self.chosen[:, None])
        offsets = self.offsets[index[:, None], others] - self.offsets[index, self.chosen][:, None]
        differences = self.rows[index[:, None], others]
        differences -= self.rows[index, self.chosen][:, None, :]
        differences[np.isneginf(offsets)] = 0.0
        return differences, offsets

    def _log_probabilities(self, theta: ArrayLike) -> tuple[Floats, Floats, Floats]:
        """Differences to the chosen alternative (m, J - 1, d), log probabilities (m, J) with it first, and theta."""
        taste = check_array(theta, "theta", shape=(self.dimension,), hint=f"the rows have {self.dimension} features")
        differences, offsets = self.differences()
        values = np.vecdot(differences, taste) + offsets
        return differences, log_softmax(np.concatenate([np.zeros((len(self), 1)), values], axis=1)), taste

    def log_likelihood(self, theta: ArrayLike) -> float:
        """Sum over the terms of the log probability of the chosen alternative at theta, (d,)."""
        return float(self._log_probabilities(theta)[1][:, 0].sum())

    def score(self, theta: ArrayLike) -> Floats:
        """Gradient of :meth:`log_likelihood`, (d,)."""
        differences, logs, _ = self._log_probabilities(theta)
        return np.asarray(-(np.exp(logs[:, 1:]).ravel() @ differences.reshape(-1, self.dimension)))

    def information(self, theta: ArrayLike) -> Floats:
        """Observed information: minus the Hessian of :meth:`log_likelihood`, (d, d), positive semidefinite.

        For best-of-K and ties it equals the expected information; for rankings and best-worst the later terms depend on
        the earlier choices, and the expectation is ``AnswerFormat.information``.
        """
        differences, logs, _ = self._log_probabilities(theta)
        if not differences.shape[1]:
            return np.zeros((self.dimension, self.dimension))
        return information_from_differences(differences, np.exp(logs))


def runs_of_equal(sizes: NDArray[np.int64]) -> list[slice]:
    """Slices of consecutive questions with the same number of options, ``sizes`` (n,)."""
    runs, start = [], 0
    for _, run in groupby(sizes.tolist()):
        stop = start + len(list(run))
        runs.append(slice(start, stop))
        start = stop
    return runs


def uneven_terms(
    model: AnswerFormat, options: NDArray[Any], sizes: NDArray[np.int64], responses: Sequence[Response]
) -> Terms:
    """The likelihood of answers to questions that may differ in their number of options, in the order of the questions.

    Args:
        model: The format of the answers.
        options: Features, (n, K, d), of whose options the first ``sizes`` are real.
        sizes: Number of options of each question, (n,).
        responses: The n answers.
    """
    if (sizes == options.shape[1]).all() or len(responses) != len(sizes):  # which the model refuses
        return model.terms(options, responses)
    runs = runs_of_equal(sizes)
    return Terms.concatenate([model.terms(options[run, : sizes[run.start]], responses[run]) for run in runs])
