"""The design problem: which occupancies of K policies make T episodes of questions most informative?

    maximise over dbar in the occupancy polytope   s( T sum_h Phi' (diag(dbar_h) - dbar_h dbar_h') Phi + Lambda )

(paper, Eq. 6 with its scalarisation). The objective depends on the K policies only through their mean dbar.

Beside it what all its solvers need: how long one may take, what its callback sees, and what it says of a prior that
rounding loses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from time import perf_counter
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import AnyFloats, Floats, read_only, row_chunks
from edpbrl_gym._validation import check_array, check_count, check_integers, check_number
from edpbrl_gym.design import information
from edpbrl_gym.design.criteria import Criterion, CriterionAndPrior, SingularInformationError
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP

__all__ = ["NEVER", "Deadline", "DesignProblem", "IterationState", "check_time_limit", "naming_a_lost_prior"]

P = ParamSpec("P")
R = TypeVar("R")


_EFFICIENCY_LOSS = 0.01  # of a converged design at most
_LARGEST = 1e15  # of the features: their squares must leave room in float32


@dataclass(frozen=True, eq=False, kw_only=True)
class DesignProblem(CriterionAndPrior):
    """An MDP with features, a budget, a prior and a criterion.

    Attributes:
        mdp: The MDP; its `num_rows` is the number of feature rows.
        features: Phi, shape (N, d), finite, of at most 1e15 in size (scores are computed in float32 too). A float32
            array is kept as it is, as a read-only view without a copy; it may be a memory-mapped file larger than
            memory. Everything computed from it is float64 (its rows are converted a few thousand at a time). Any other
            type becomes a read-only float64 array.
        num_policies: K >= 2, options per question.
        episodes: T >= 1; each episode asks H questions.
        criterion: One by its name (`make_criterion`), or any `Criterion`.
        regularization: lambda >= 0, prior precision lambda I; give this or `prior_precision`. lambda = 0 is accepted
            only if the features reach every direction, so that the information of the uniform policy is regular.
        prior_precision: Lambda in place of lambda I, symmetric positive semidefinite, shape (d, d).

    Raises:
        ValueError: If a value or shape does not fit; the message says what was expected.
        TypeError: If the MDP or the criterion is of another type.
        SingularInformationError: If no design has a regular information matrix.
    """

    mdp: FiniteHorizonMDP
    features: AnyFloats
    num_policies: int
    episodes: int
    criterion: Criterion
    regularization: float | None = None
    prior_precision: Floats | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mdp, FiniteHorizonMDP):
            raise TypeError(f"Expected an mdp of type FiniteHorizonMDP, got {type(self.mdp).__name__}.")
        rows = check_array(self.features, "features", shape=("N", "d"), keep=(np.float32,))
        if rows.shape[0] != self.mdp.num_rows or rows.shape[1] < 1:
            raise ValueError(
                f"Expected features of shape (N, d) with one row for each of the MDP's {self.mdp.num_rows} feature "
                f"rows, got shape {rows.shape}."
            )
        _check_size(rows)
        self._set("features", read_only(np.ascontiguousarray(rows) if rows.dtype == np.float64 else rows))
        self._set("num_policies", check_count(self.num_policies, "num_policies (K)", minimum=2))
        self._set("episodes", check_count(self.episodes, "episodes (T)", minimum=1))
        self._check_criterion_and_prior()
        if not np.isfinite(self.baseline):
            self._check_regular()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_regular(self) -> None:
        """Without a proper prior: the uniform policy reaches every row, so if it is singular every design is."""
        uniform = self.mdp.row_occupancy(self.mdp.occupancy(self.mdp.uniform_policy()))
        try:
            self.objective(uniform)
        except SingularInformationError:
            rank = int(np.linalg.matrix_rank(self.information(uniform), hermitian=True))
            raise SingularInformationError(
                f"Without a proper prior no design has a regular information matrix: the rows that can be compared "
                f"within a step span {rank} of {self.dimension} dimensions; use a regularization > 0."
            ) from None

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return int(self.features.shape[1])

    @property
    def horizon(self) -> int:
        """Number of steps H."""
        return self.mdp.horizon

    @cached_property
    def uninformative(self) -> bool:
        """Whether at every step all rows that can be shown are equal.

        Then no answer says anything about theta, and every design has the value without data; what differs is rounding.
        """
        if isinstance(self.mdp, PromptMDP):
            rows_by_step = (
                np.arange(pairs.start, pairs.stop) for pairs in map(self.mdp.step_pairs, range(self.horizon))
            )
        else:
            reach = self.mdp.row_occupancy(self.mdp.occupancy(self.mdp.uniform_policy())) > 0
            rows_by_step = (np.flatnonzero(step) for step in reach)
        return all(
            (chunk == self.features[rows[0]]).all()
            for rows in rows_by_step
            for _, chunk in row_chunks(self.features, rows)
        )

    def rows(self, indices: ArrayLike | slice) -> Floats:
        """Some rows of the features in float64, a new array of shape (k, d).

        Args:
            indices: Row indices in 0..N-1, shape (k,), or a slice.

        Raises:
            TypeError: If the indices are no integers (a mask is none).
            ValueError: If an index is out of range.
        """
        if isinstance(indices, slice):
            return np.array(self.features[indices], dtype=np.float64)
        positions = check_integers(indices, "indices", shape=("k",), low=0, high=len(self.features) - 1)
        return np.asarray(self.features[positions], dtype=np.float64)

    def data_information(self, mean_rows: ArrayLike) -> Floats:
        """Surrogate information of the data alone (paper, Eq. 6), shape (d, d). Argument as in `information`."""
        return information.surrogate_information(self.features, self._checked(mean_rows), self.episodes)

    def information(self, mean_rows: ArrayLike) -> Floats:
        """Surrogate information plus prior precision, shape (d, d).

        Args:
            mean_rows: Mean occupancy of the feature rows over the policies, shape (H, N).
        """
        return self.data_information(mean_rows) + self.prior

    def objective(self, mean_rows: ArrayLike) -> float:
        """Value s(I(dbar)), to be maximised; raises SingularInformationError where I is singular."""
        return self.criterion.value(self.information(mean_rows))

    def gradient(self, mean_rows: ArrayLike) -> Floats:
        """Gradient of the objective with respect to each entry of `mean_rows`, shape (H, N)."""
        rows = self._checked(mean_rows)
        curvature = self.criterion.gradient(self.information(rows))
        return information.gradient(self.features, rows, curvature, self.episodes)

    def relative_gap(self, gap: float, value: float) -> float:
        """Gap relative to the gain over no data; 0 where float64 can't tell the best gain, gain + gap, from 0.

        When the prior is singular there is no finite value without data; then it is the certified loss of efficiency
        to first order, gap / d for a logarithmic criterion and gap / |value| for the others.

        Args:
            gap: Certified gap.
            value: Objective.
        """
        gain = value - self.baseline
        logarithmic = self.criterion.logarithmic  # its rounding is absolute
        if not np.isfinite(gain):
            return gap / (self.dimension if logarithmic else max(abs(value), np.finfo(float).tiny))
        rounding = float(np.finfo(np.float64).eps) * max(float(logarithmic), abs(self.baseline))
        if self.uninformative or gain + gap <= rounding:
            return 0.0
        return gap / gain if gain > 0 else np.inf

    def converged(self, gap: float, value: float, tolerance: float) -> bool:
        """Whether a solver may call a design converged.

        The gap must be at most `tolerance` of the gain, and the certified efficiency at least 0.99 (1 - tolerance for
        a tolerance above 0.01): with a weak prior the gain over no data is so large that a small share says little.
        Where no answer can say anything every design is optimal.
        """
        if self.uninformative:
            return True
        loss = 1.0 - self.criterion.efficiency(value, value + gap, self.dimension)
        return bool(self.relative_gap(gap, value) <= tolerance and loss <= max(tolerance, _EFFICIENCY_LOSS))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that defines the problem; a saved design loads only with the same problem.

        Float32 features count by their values: the same numbers in float64 give the same hash.
        """
        mdp = self.mdp
        digest = hashlib.sha256(b"edpbrl-gym design problem 1")
        digest.update(f"{self.criterion.fingerprint()} {self.num_policies} {self.episodes} {mdp.horizon}".encode())
        transitions = mdp.transitions.sorted_indices()
        integers = (mdp.pair_state, mdp.pair_action, mdp.pair_row, transitions.indices, transitions.indptr)
        for indices in integers:  # their width differs between platforms
            _update(digest, np.asarray(indices, dtype=np.int64))
        for table in (mdp.initial, mdp.admissible, transitions.data):
            _update(digest, np.asarray(table))
        digest.update(f"{np.dtype(np.float64).str}{self.features.shape}".encode())
        for _, rows in row_chunks(self.features):
            digest.update(np.ascontiguousarray(rows).data)
        _update(digest, self.prior)
        return digest.hexdigest()

    def _checked(self, mean_rows: ArrayLike) -> Floats:
        rows = np.asarray(mean_rows, dtype=np.float64)
        if rows.shape != (self.horizon, self.mdp.num_rows):
            raise ValueError(
                f"Expected mean_rows of shape (H, N) = {(self.horizon, self.mdp.num_rows)}, got {rows.shape}."
            )
        return rows


def _check_size(features: AnyFloats) -> None:
    largest = max(float(features.max(initial=0.0)), -float(features.min(initial=0.0)))
    if largest > _LARGEST:
        row, column = np.argwhere(np.abs(features) == largest)[0]
        raise ValueError(
            f"Expected features of at most {_LARGEST:g} in size, got {features[row, column]:.3g} in row {row}, column "
            f"{column}: their squares, of which the information is made, overflow. Divide the features by a constant c "
            f"and the regularization by c^2: the best design stays the same."
        )


def _update(digest: hashlib._Hash, array: NDArray) -> None:
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())


class Deadline:
    """How long a solver may take: asked inside the longest loops too, each of which then ends with what it has.

    Args:
        seconds: From now on; None is never.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else perf_counter() + seconds

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return self._end is not None and perf_counter() >= self._end

    @property
    def left(self) -> float | None:
        """Seconds that are left, at least 0; None without a limit."""
        return None if self._end is None else max(0.0, self._end - perf_counter())


NEVER = Deadline(None)


def check_time_limit(seconds: float | None) -> Deadline:
    """The deadline of a solver that begins now; ValueError if the limit is negative or no number."""
    return Deadline(None if seconds is None else check_number(seconds, "time_limit (seconds)", minimum=0.0))


@dataclass(frozen=True)
class IterationState:
    """State that a callback receives at the start of an iteration, of `newton` also after each step inside.

    Attributes:
        iteration: Number of the iteration, from 0.
        value: Objective of the current mean occupancy.
        gap: Its certified gap; inside an iteration of `newton` what the objective is below the upper bound.
        relative_gap: The gap relative to the gain.
        seconds: Time since the start.
        occupancy: The current mean occupancy, shape (H, M), read-only.
        step: Newton steps taken in this iteration; at its start, and of other solvers, 0.
    """

    iteration: int
    value: float
    gap: float
    relative_gap: float
    seconds: float
    occupancy: Floats
    step: int = 0


def naming_a_lost_prior(solve: Callable[P, R]) -> Callable[P, R]:
    """Make a solver report, for a problem with a proper prior, what rounding loses instead of asking for a prior.

    Args:
        solve: Its first argument is the problem.
    """

    @wraps(solve)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return solve(*args, **kwargs)
        except SingularInformationError as error:
            problem = args[0] if args else kwargs["problem"]
            assert isinstance(problem, DesignProblem)
            if error.lost is None or not np.isfinite(problem.baseline):
                raise
            raise SingularInformationError(
                f"Expected an information matrix that float64 can invert, got one of dimension {problem.dimension} in "
                f"which rounding loses a prior precision below {error.lost:.2g}, and without the prior it is singular; "
                "raise the regularization (or the smallest eigenvalue of prior_precision) above that, or divide the "
                "features by a constant and keep the prior."
            ) from None

    return wrapper
