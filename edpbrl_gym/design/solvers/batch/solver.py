"""Designs of many users who choose from the same tokens, each with a prior of its own, at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, Positions, read_only
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.design.chunks import Features
from edpbrl_gym.design.criteria import ACriterion, Criterion, DCriterion, SingularInformationError, VCriterion
from edpbrl_gym.design.deadline import Deadline, check_time_limit
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.solvers.batch.arrays import arrays_of
from edpbrl_gym.design.solvers.batch.loop import Chunk, Settings, Stop, extra_tokens
from edpbrl_gym.design.solvers.batch.result import BatchDesigns, occupancy_of, problem_of
from edpbrl_gym.design.solvers.batch.tokens import SharedTokens
from edpbrl_gym.design.solvers.newton.solver import newton
from edpbrl_gym.design.solvers.newton.tokens.backend import ArrayBackend, make_backend
from edpbrl_gym.design.solvers.newton.tokens.layout import PromptLayout
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP

__all__ = ["BatchState", "batch_designs"]


_START_TOLERANCE = 1e-3  # of the design that all begin with
_SINGLE = 1e-7  # below this tolerance steps in float32 are too coarse
_SYMMETRY_TOLERANCE = 1e-8  # relative, as of a single prior
_SMALLEST_CHUNK, _LARGEST_CHUNK = 8, 1024  # users


@dataclass(frozen=True)
class BatchState:
    """What the callback of `batch_designs` receives.

    Attributes:
        finished: Users who have left their chunk.
        users: Users in all.
        seconds: Time since the start.
    """

    finished: int
    users: int
    seconds: float


def batch_designs(
    mdp: FiniteHorizonMDP,
    features: Features,
    *,
    num_policies: int,
    episodes: int,
    criterion: Criterion,
    prior_precisions: ArrayLike,
    tolerance: float = 1e-3,
    max_iterations: int = 50,
    backend: str | ArrayBackend = "numpy",
    users_at_once: int | None = None,
    callback: Callable[[BatchState], object] | None = None,
    time_limit: float | None = None,
) -> BatchDesigns:
    """Solve one design problem for each of many users, who differ in what is known about their tastes.

    The problems are those of `DesignProblem` with the same arguments and one `prior_precision` each. All users begin
    with the design for their mean prior. Newton's method then takes a step for a chunk of users at once, each on a
    working set of tokens; the quadratic programs are solved by projected gradients in float32 (float64 for a tolerance
    below 1e-7). All tokens are scored in float64 before every step, which certifies the weights; users who are done
    leave. The few for whom a chunk makes no progress are given to `newton` one by one.

    Args:
        mdp: A `PromptMDP`; steps with the same vocabulary share their weights.
        features: Phi, shape (N, d), the same for all users.
        num_policies: K >= 2, options per question.
        episodes: T >= 1.
        criterion: A, V or D (`make_criterion`).
        prior_precisions: Lambda of each user, symmetric positive definite, shape (U, d, d).
        tolerance: As of `newton`.
        max_iterations: Steps at most.
        backend: "numpy", "torch" (on the CPU), "torch:cuda", or one of `make_backend`. numpy solves as many chunks at
            a time as BLAS had threads.
        users_at_once: Users of a chunk, which bounds the memory: about 3 k^2 float32 numbers each for working sets of k
            tokens. None fits them into the caches of a processor, or a few GB of a CUDA device.
        callback: Called with a `BatchState` before every step of a chunk and every user of `newton`, from one thread at
            a time; a true return value stops ("interrupted").
        time_limit: Seconds; then every user has the best design so far with its certificate ("time_limit").

    Returns:
        The designs. The status of a user is one of those of `newton`.

    Raises:
        TypeError: If an argument is of another type.
        ImportError: If the backend needs torch, which is not installed.
        ValueError: If an argument does not fit or is out of range, or the MDP is no `PromptMDP`.
        SingularInformationError: If the prior of a user is singular.
    """
    begin = time.perf_counter()
    deadline = check_time_limit(time_limit)
    check_number(tolerance, "tolerance", minimum=0.0)
    check_count(max_iterations, "max_iterations", minimum=0)
    if users_at_once is not None:
        check_count(users_at_once, "users_at_once")
    if not isinstance(mdp, PromptMDP):
        raise ValueError(f"Expected a PromptMDP, got {type(mdp).__name__}; solve for its users one by one with newton.")
    if not isinstance(criterion, (ACriterion, VCriterion, DCriterion)):
        raise ValueError(f"Expected a criterion A, V or D of make_criterion, got {criterion!r}.")
    native = make_backend(backend)
    arrays = arrays_of(native)
    priors = _checked_priors(prior_precisions)
    baselines = _baselines(criterion, priors)
    problem = DesignProblem(
        mdp=mdp,
        features=features,
        num_policies=num_policies,
        episodes=episodes,
        criterion=criterion,
        prior_precision=priors.mean(axis=0),
    )
    layout = PromptLayout(problem)
    run = _Run(problem, layout, priors, baselines, tolerance, callback, begin)
    with one_blas_thread():
        start = newton(problem, tolerance=max(_START_TOLERANCE, tolerance), time_limit=deadline.left)
        weights = layout.weights(start.mean_occupancy)
        settings = Settings(
            problem=problem,
            tokens=SharedTokens(problem, layout, arrays),
            tolerance=tolerance,
            max_iterations=max_iterations,
            single=tolerance >= _SINGLE,
            deadline=deadline,
            observe=run.observe,
        )
        if users_at_once is None:
            users_at_once = _chunk_size(settings, weights)

        def solve(users: Positions) -> None:
            starts = np.tile(weights, (len(users), 1))
            Chunk(settings, users, starts, priors[users], baselines[users]).solve(run.leave)

        everybody = np.arange(len(priors))
        native.for_each(solve, [everybody[at : at + users_at_once] for at in range(0, len(priors), users_at_once)])
        run.finish_alone(deadline)
    return run.result()


class _Run:
    """The results of a batch while it runs; chunks may report from several threads."""

    def __init__(
        self,
        problem: DesignProblem,
        layout: PromptLayout,
        priors: Floats,
        baselines: Floats,
        tolerance: float,
        callback: Callable[[BatchState], object] | None,
        begin: float,
    ) -> None:
        users = len(priors)
        self._problem, self._layout, self._priors, self._baselines = problem, layout, priors, baselines
        self._tolerance, self._callback, self._begin = tolerance, callback, begin
        self._tokens = np.concatenate([np.arange(rows.start, rows.stop) for rows in layout.rows])
        self._weights = np.zeros((users, len(self._tokens)))
        self._value, self._gap, self._upper_bound = np.zeros(users), np.zeros(users), np.zeros(users)
        self._words = [""] * users
        self._iterations = np.zeros(users, dtype=np.int64)
        self._alone = np.zeros(users, dtype=bool)
        self._finished = 0
        self._stopped = False
        self._lock = threading.Lock()

    def observe(self, finished: int) -> bool:
        """Count finished users, and ask the callback whether to stop."""
        with self._lock:
            self._finished += finished
            if self._callback is not None and not self._stopped:
                seconds = time.perf_counter() - self._begin
                self._stopped = bool(self._callback(BatchState(self._finished, len(self._words), seconds)))
            return self._stopped

    def leave(self, stop: Stop) -> None:
        """Keep what users leave with; those whom rounding keeps from converging are left to `finish_alone`."""
        value, computed, of_gap, of_value = stop.certificates
        if self._problem.uninformative:
            value, computed, of_gap, of_value = self._baselines[stop.users], *np.zeros((3, len(stop.users)))
        gap = np.where(np.isfinite(computed + of_gap), computed + of_gap, np.inf)
        self._weights[stop.users] = stop.weights
        self._value[stop.users], self._gap[stop.users] = value, gap
        self._upper_bound[stop.users] = value + gap + of_value
        self._iterations[stop.users] = stop.iterations
        for user in stop.users:
            enough = np.isfinite(self._gap[user]) and self._problem.converged(
                self._gap[user], self._value[user], self._tolerance, baseline=self._baselines[user]
            )
            self._words[user] = "converged" if enough else "stalled" if stop.word == "converged" else stop.word

    def finish_alone(self, deadline: Deadline) -> None:
        """Solve by `newton` for users who made no progress together with others."""
        for user in [number for number, word in enumerate(self._words) if word == "stalled"]:
            if deadline.passed or self.observe(0):
                self._words[user] = "time_limit" if deadline.passed else "interrupted"
                continue
            try:
                design = newton(
                    problem_of(self._problem, self._priors[user]),
                    tolerance=self._tolerance,
                    start=occupancy_of(self._layout, self._weights[user]),
                    time_limit=deadline.left,
                )
            except SingularInformationError as error:
                raise SingularInformationError(f"user {user}: {error}", lost=error.lost) from None
            self._alone[user] = True
            self._weights[user] = self._layout.weights(design.mean_occupancy)
            self._value[user], self._gap[user] = design.value, design.gap
            self._upper_bound[user], self._words[user] = design.upper_bound, design.status

    def result(self) -> BatchDesigns:
        """The designs."""
        problem, dimension = self._problem, self._problem.dimension
        certificates = list(zip(self._value, self._gap, self._upper_bound, self._baselines, strict=True))
        relative = [problem.relative_gap(gap, value, baseline=base) for value, gap, _, base in certificates]
        efficiency = [problem.criterion.efficiency(value, upper, dimension) for value, _, upper, _ in certificates]
        return BatchDesigns(
            problem=problem,
            prior_precisions=read_only(self._priors),
            tokens=self._tokens,
            weights=read_only(self._weights),
            value=self._value,
            upper_bound=self._upper_bound,
            gap=self._gap,
            gain=self._value - self._baselines,
            relative_gap=np.array(relative),
            efficiency=np.array(efficiency),
            status=tuple(self._words),
            iterations=self._iterations,
            alone=self._alone,
            tolerance=self._tolerance,
            seconds=time.perf_counter() - self._begin,
        )


def _checked_priors(prior_precisions: ArrayLike) -> Floats:
    """Prior precisions (U, d, d), exactly symmetric."""
    priors = np.asarray(check_array(prior_precisions, "prior_precisions", shape=("U", "d", "d")), dtype=np.float64)
    if len(priors) == 0 or priors.shape[1] != priors.shape[2]:
        raise ValueError(f"Expected prior_precisions of shape (U, d, d) with U >= 1, got shape {priors.shape}.")
    off = np.abs(priors - priors.swapaxes(1, 2)).max(axis=(1, 2))
    wrong = off > _SYMMETRY_TOLERANCE * np.abs(priors).max(axis=(1, 2))
    if wrong.any():
        user = int(np.argmax(wrong))
        raise ValueError(
            f"Expected symmetric prior_precisions, got one that differs from its transpose by {off[user]:.3g} for user "
            f"{user}."
        )
    return (priors + priors.swapaxes(1, 2)) / 2


def _baselines(criterion: Criterion, priors: Floats) -> Floats:
    """Values without data, shape (U,)."""
    values = np.empty(len(priors))
    for user, prior in enumerate(priors):
        try:
            values[user] = criterion.value(prior)
        except SingularInformationError:
            raise SingularInformationError(
                f"Expected positive definite prior_precisions, got a singular or indefinite one for user {user}; add a "
                "multiple of the identity, or solve for users without a proper prior one by one with newton."
            ) from None
    return values


def _chunk_size(settings: Settings, weights: Floats) -> int:
    """Users whose Hessians fit into `Arrays.chunk_bytes`."""
    tokens = settings.tokens
    size = sum(
        min(block.stop - block.start, int(np.count_nonzero(weights[block])) + extra_tokens(tokens.dimension))
        for block in tokens.blocks
    )
    number = tokens.arrays.chunk_bytes // ((4 if settings.single else 8) * size**2)
    return int(np.clip(number, _SMALLEST_CHUNK, _LARGEST_CHUNK))
