"""Damped Newton for the penalised multinomial likelihood, by factors of the Hessian or by conjugate gradients.

With the differences y_k = x_k - x_choice to the chosen option the log-likelihood of a question is
-log(1 + sum_k exp(theta . y_k)) over the K - 1 options that were not chosen. This takes one row less per question than
the features do, and the chosen option is the numerically stable reference (its probability is the largest where the fit
is good). Offsets of the utilities (ties), -inf for absent options (rankings), enter the same sum:
-log(1 + sum_k exp(theta . y_k + b_k)).

Under a proper prior (``conjugate_newton``) the Hessian is not formed: that of N rows of differences costs N d^2
operations and its factor d^3 / 3, a product with a vector 2 N d. The Newton equations are solved by conjugate
gradients, no more exactly than a step is worth (Dembo, Eisenstat & Steihaug, 1982). Products are in float32: they
decide how good a step is, while gradients, in float64, decide where the steps end. Conjugate gradients run in the
metric of the prior; once their products have cost twice as much as a Hessian in float32, one is factored at the point
reached and is the metric from then on, so that the number of products does not grow with the condition of the problem.
As minus the Hessian is H = P + (positive semidefinite), the Newton decrement sqrt(g' H^-1 g) is at most
sqrt(g' P^-1 g), which proves convergence without H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack
from scipy.linalg.blas import strsv

from edpbrl_gym._arrays import Floats, Floats32, MadeWhenRead
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.likelihood.choice import information_from_differences, log_softmax

__all__ = ["Maximum", "Objective", "conjugate_newton", "log_posterior", "maximise", "posterior_precision"]

Solver = Callable[[Floats], Floats]


_EPSILON = float(np.finfo(np.float64).eps)
_SUFFICIENT = 1e-4  # Armijo: share of the predicted gain that a step must reach
_SMALLEST_STEP = 1e-16
_GOOD_RATE = 0.1  # a factor is reused while each step multiplies the decrement by at most this
# if no utility changes by more than this, the Hessian is constant to 0.1% and Newton must converge:
_SMALL_CHANGE = 1e-3
# then so many factors, or steps in float32, in a row that do not halve the decrement mean that only rounding remains
_PATIENCE = 3
# share of the residual that the first step by products may leave; later ones leave less, as the gradient falls
_FORCING = 0.1


@dataclass(frozen=True, eq=False)
class Maximum:
    """The last point of the iteration: the fields of ``Estimate``, and those that the check for separability needs.

    ``score`` is the gradient of the log-likelihood alone, (d,); ``probabilities`` has the chosen option first, (n, K).
    """

    theta: Floats
    reason: str
    iterations: int
    score: Floats
    gradient_norm: float
    log_likelihood: float
    log_posterior: float
    probabilities: Floats
    precision: MadeWhenRead[Floats] = MadeWhenRead()

    @classmethod
    def at(cls, point: Point, precision: Floats | Callable[[], Floats], *, reason: str, iterations: int) -> Maximum:
        """The fields of a point, with minus its Hessian (d, d), or a function that returns it."""
        return cls(
            theta=point.theta,
            reason=reason,
            iterations=iterations,
            score=point.score,
            gradient_norm=float(np.linalg.norm(point.gradient)),
            log_likelihood=point.log_likelihood,
            log_posterior=point.log_posterior,
            probabilities=point.probabilities,
            precision=precision,
        )


def posterior_precision(differences: NDArray[np.floating], probabilities: Floats, prior_precision: Floats) -> Floats:
    """Minus the Hessian of the objective, (d, d), from the probabilities with the chosen option first, (n, K)."""
    return information_from_differences(differences, probabilities) + prior_precision


def _log_probabilities(values: Floats) -> Floats:
    """Log probabilities (n, K), the chosen option (utility 0) first, from the others' utilities (n, K - 1)."""
    return log_softmax(np.concatenate([np.zeros((len(values), 1)), values], axis=1))


def maximise(
    differences: Floats,
    prior_precision: Floats,
    start: Floats,
    *,
    tolerance: float,
    max_iterations: int,
    offsets: Floats | None = None,
    prior_mean: Floats | None = None,
    factor: tuple[Floats, bool] | None = None,
    taken: int = 0,
) -> Maximum:
    """Maximise log-likelihood - 1/2 (theta - m)' P (theta - m).

    The Hessian and its Cholesky factor cost ten times as much as the rest of a step, so a factor is reused as long as
    the decrement falls fast. The last point always gets its own: convergence is never judged by an old factor.

    Args:
        differences: x_k - x_choice, (n, K - 1, d).
        prior_precision: P, positive semidefinite, (d, d).
        start: Initial theta, (d,).
        tolerance: Bound on the Newton decrement.
        max_iterations: Maximum number of Newton steps.
        offsets: Offsets of the other options' utilities relative to the chosen option, (n, K - 1); -inf removes an
            option (its difference must be finite). None: no offsets.
        prior_mean: m, (d,); None: 0.
        factor: Cholesky factor of the Hessian near the start, from ``cho_factor``, tried first; None: computed there.
        taken: Steps that led to the start, counted among the iterations.

    Returns:
        The last point; ``reason`` is empty if it converged.
    """
    objective = Objective(differences, prior_precision.dot, offsets, prior_mean)
    point = objective.at(start)
    reason: str | None = None
    iteration, previous, best, stalled = taken, np.inf, np.inf, 0
    while True:
        fresh = factor is None or iteration == max_iterations
        if factor is not None and not fresh:
            step, decrement = _newton_step(factor, point.gradient)
            fresh = not tolerance < decrement <= _GOOD_RATE * previous
        if fresh:
            precision = posterior_precision(differences, point.probabilities, prior_precision)
            try:
                factor = cho_factor(precision, lower=True, check_finite=False)
            except LinAlgError:
                reason = "the posterior precision is singular in floating point"
                break
            step, decrement = _newton_step(factor, point.gradient)
            stalled += decrement > best / 2
            best = min(best, decrement)
            reason = _reason_to_stop(decrement, tolerance, stalled, iteration, max_iterations)
            if reason is not None:
                break
        changes = (objective.rows @ step).reshape(point.values.shape)
        length = _step_length(point, changes, step, prior_precision @ step, decrement)
        if length == 0.0:
            if fresh:
                reason = f"no step raises the log posterior (Newton decrement {decrement:.2e})"
                break
            factor = None
            continue
        if length * float(np.abs(changes).max(initial=0.0)) > _SMALL_CHANGE:
            # the Hessian still changes, so that a decrement that does not fall is no sign of rounding
            best, stalled = np.inf, 0
        point = objective.at(point.theta + length * step)
        iteration, previous = iteration + 1, decrement
    return Maximum.at(point, precision, reason=reason or "", iterations=iteration)


class Point(NamedTuple):
    """The objective at a theta: utilities of the others (n, K - 1), probabilities, derivatives without the Hessian."""

    theta: Floats
    values: Floats
    probabilities: Floats
    log_likelihood: float
    log_posterior: float
    score: Floats
    slope: Floats
    gradient: Floats


class Objective:
    """The objective as a function of theta, for fixed data and prior, which is given as its products with vectors."""

    def __init__(
        self,
        differences: Floats,
        times_prior: Callable[[Floats], Floats],
        offsets: Floats | None,
        prior_mean: Floats | None,
    ) -> None:
        self.rows = differences.reshape(-1, differences.shape[2])
        self._shape = differences.shape[:2]
        self._offsets = offsets
        self._times_prior = times_prior
        self._mean = prior_mean

    def at(self, theta: Floats) -> Point:
        """The objective at theta, (d,)."""
        values = (self.rows @ theta).reshape(self._shape)
        if self._offsets is not None:
            values += self._offsets
        logs = _log_probabilities(values)
        probabilities = np.exp(logs)
        score = -(probabilities[:, 1:].ravel() @ self.rows)
        deviation = theta if self._mean is None else theta - self._mean
        slope = self._times_prior(deviation)
        log_likelihood = float(logs[:, 0].sum())
        log_posterior = log_likelihood - 0.5 * float(deviation @ slope)
        return Point(theta, values, probabilities, log_likelihood, log_posterior, score, slope, score - slope)


def log_posterior(
    differences: Floats,
    prior_precision: Floats,
    theta: Floats,
    *,
    offsets: Floats | None = None,
    prior_mean: Floats | None = None,
) -> float:
    """The objective of :func:`maximise` at theta, (d,)."""
    return Objective(differences, prior_precision.dot, offsets, prior_mean).at(theta).log_posterior


def _reason_to_stop(
    decrement: float, tolerance: float, stalled: int, iteration: int, max_iterations: int
) -> str | None:
    """Empty if converged, a sentence if the iteration must stop without, None to continue."""
    if decrement <= tolerance:
        return ""
    if stalled >= _PATIENCE:
        return f"rounding stops progress at a Newton decrement of {decrement:.2e}; use a larger tolerance"
    if iteration == max_iterations:
        return f"the Newton decrement is {decrement:.2e} after {iteration} iterations; raise max_iterations"
    return None


def _newton_step(factor: tuple[Floats, bool], gradient: Floats) -> tuple[Floats, float]:
    """The step H^-1 g and its decrement sqrt(g' H^-1 g), from a Cholesky factor of H."""
    step = cho_solve(factor, gradient, check_finite=False)
    return step, float(np.sqrt(max(0.0, float(gradient @ step))))


def _step_length(point: Point, changes: Floats, step: Floats, prior_step: Floats, decrement: float) -> float:
    """Backtrack from 1 to a step length with a sufficient gain; 0 if there is none.

    ``changes`` (n, K - 1) are the changes of the utilities by the full step, ``prior_step`` is P step: the cost is that
    of (n, K) numbers, without features. Losses below the rounding of the sum are tolerated, so that the last full
    steps are taken.
    """
    linear, quadratic = float(step @ point.slope), 0.5 * float(step @ prior_step)
    slack = 16 * _EPSILON * (1.0 + abs(point.log_likelihood))
    length = 1.0
    while length >= _SMALLEST_STEP:
        log_likelihood = float(_log_probabilities(point.values + length * changes)[:, 0].sum())
        gain = log_likelihood - point.log_likelihood - length * linear - length**2 * quadratic
        if gain >= _SUFFICIENT * length * decrement**2 - slack:
            return length
        length /= 2
    return 0.0


def conjugate_newton(
    differences: Floats,
    prior: GaussianPrior,
    start: Floats,
    *,
    tolerance: float,
    max_iterations: int,
    offsets: Floats | None = None,
) -> Maximum:
    """``maximise`` for a proper prior, by conjugate gradients in float32; the other arguments are the same.

    Returns:
        The last point; ``reason`` is empty if it converged. Otherwise another method should continue there.
    """
    mean = prior.mean if prior.mean.any() else None
    objective = Objective(differences, prior.times, offsets, mean)
    by_prior = prior.solver()
    if by_prior is None:
        reason = "the prior's precision is singular in floating point"
        return Maximum.at(objective.at(start), prior.precision, reason=reason, iterations=0)
    with np.errstate(over="ignore", invalid="ignore"):  # of float32: a step that is not finite is never taken
        curvature = _Curvature(differences, prior, by_prior)
        point = objective.at(start)
        iteration, stalled, best, first, reason = 0, 0, np.inf, np.inf, "not converged"
        while True:
            bound = float(np.sqrt(point.gradient @ by_prior(point.gradient)))
            if bound <= tolerance:
                reason = ""
                break
            stalled, best = (0 if bound <= best / 2 else stalled + 1), min(best, bound)
            first = bound if iteration == 0 else first
            if iteration == max_iterations or stalled >= _PATIENCE or not np.isfinite(bound):
                break
            forcing = max(_FORCING * min(1.0, bound / first), _FORCING * tolerance / bound)
            found = curvature.newton_step(point, forcing)
            if found is None:
                break
            step, changes, prior_step = found
            gain = float(point.gradient @ step)
            length = _step_length(point, changes, step, prior_step, np.sqrt(gain)) if gain > 0 else 0.0
            if length == 0.0:
                break
            if length * float(np.abs(changes).max(initial=0.0)) > _SMALL_CHANGE:
                best, stalled = np.inf, 0
            point = objective.at(point.theta + length * step)
            iteration += 1
    precision = partial(posterior_precision, differences, point.probabilities, prior.precision)
    return Maximum.at(point, precision, reason=reason, iterations=iteration)


class _Curvature:
    """Minus the Hessian in float32, and the metric in which its equations are solved."""

    def __init__(self, differences: Floats, prior: GaussianPrior, by_prior: Solver) -> None:
        self._differences: Floats32 = differences.astype(np.float32)
        self._prior = prior
        self._solve = by_prior
        self._products = 0  # since the metric was chosen
        count, dimension = differences[..., 0].size, prior.dimension
        # measured costs in nanoseconds on one core: a Hessian with its factor, and a product with a vector
        factor = 0.012 * count * dimension**2 + 0.006 * dimension**3 + 1e5
        product = 0.25 * count * dimension + 4e4
        self._affordable = 2 * factor / product

    def newton_step(self, point: Point, forcing: float) -> tuple[Floats, Floats, Floats] | None:
        """Solve H s = gradient until the residual, in the metric, is at most ``forcing`` times that of s = 0.

        Returns:
            The step (d,), the changes of the utilities (n, K - 1), and P s; None if H isn't positive definite in
            float32.
        """
        if self._products >= self._affordable and not self._factor(point):
            return None
        weights = point.probabilities[:, 1:].astype(np.float32)
        residual, step = point.gradient.copy(), np.zeros_like(point.gradient)
        changes = np.zeros_like(weights)
        direction = self._solve(residual)
        size = float(residual @ direction)
        goal = forcing**2 * size
        while True:
            utilities, product = self._product(weights, direction)
            curvature = float(direction @ product)
            if not 0.0 < curvature < np.inf:
                break
            length = size / curvature
            step += length * direction
            changes += np.float32(length) * utilities
            residual -= length * product
            image = self._solve(residual)
            last, size = size, float(residual @ image)
            if not goal < size or self._products >= self._affordable:
                break
            direction = image + (size / last) * direction
        return (step, changes.astype(np.float64), self._prior.times(step)) if step.any() else None

    def _product(self, weights: Floats32, vector: Floats) -> tuple[Floats32, Floats]:
        """Changes of the utilities by a vector, (n, K - 1), and H times the vector, (d,)."""
        self._products += 1
        rows = self._differences.reshape(-1, len(vector))
        utilities = (rows @ vector.astype(np.float32)).reshape(weights.shape)
        scores = weights * utilities
        scores -= weights * scores.sum(axis=1, keepdims=True)
        return utilities, self._prior.times(vector) + scores.ravel() @ rows

    def _factor(self, point: Point) -> bool:
        """Take H at a point as the metric; whether it has a factor."""
        precision = posterior_precision(self._differences, point.probabilities, self._prior.precision)
        factor, status = lapack.spotrf(precision.astype(np.float32), lower=1)
        if status != 0:
            return False

        def solve(vector: Floats) -> Floats:
            half = strsv(factor, vector.astype(np.float32), lower=1)
            return np.asarray(strsv(factor, half, lower=1, trans=1, overwrite_x=1), dtype=np.float64)

        self._solve, self._products = solve, 0
        return True
