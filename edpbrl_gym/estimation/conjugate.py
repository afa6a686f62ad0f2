"""Newton steps by conjugate gradients: the maximum in many dimensions without its Hessian.

The Hessian of N rows of differences costs N d^2 operations and its factor d^3 / 3, a product with a vector 2 N d. The
Newton equations are therefore solved by conjugate gradients, no more exactly than a step is worth (Dembo, Eisenstat &
Steihaug, 1982). Products are in float32: they decide how good a step is, while gradients, in float64, decide where the
steps end. Conjugate gradients run in the metric of the prior; once their products have cost twice as much as a Hessian
in float32, one is factored at the point reached and is the metric from then on, so that the number of products does
not grow with the condition of the problem.

As minus the Hessian is H = P + (positive semidefinite), the Newton decrement sqrt(g' H^-1 g) is at most
sqrt(g' P^-1 g), which proves convergence without H.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.linalg import lapack
from scipy.linalg.blas import strsv

from edpbrl_gym._arrays import Floats, Floats32
from edpbrl_gym.estimation.newton import SMALL_CHANGE, Maximum, Objective, Point, posterior_precision, step_length
from edpbrl_gym.estimation.prior import GaussianPrior

__all__ = ["climb"]

Solver = Callable[[Floats], Floats]

_FORCING = 0.1  # share of the residual that the first step may leave; later ones leave less, as the gradient falls
_PATIENCE = 3  # small steps in a row that don't halve the bound: only rounding remains, or H is wrong in float32


def climb(
    differences: Floats,
    prior: GaussianPrior,
    start: Floats,
    *,
    tolerance: float,
    max_iterations: int,
    offsets: Floats | None = None,
) -> Maximum:
    """Maximise log-likelihood - 1/2 (theta - m)' P (theta - m) for a proper prior N(m, P^-1).

    Args:
        differences: x_k - x_choice, (n, K - 1, d).
        prior: Proper prior.
        start: Initial theta, (d,).
        tolerance: Bound on the Newton decrement.
        max_iterations: Maximum number of Newton steps.
        offsets: As for ``newton.maximise``.

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
            length = step_length(point, changes, step, prior_step, np.sqrt(gain)) if gain > 0 else 0.0
            if length == 0.0:
                break
            if length * float(np.abs(changes).max(initial=0.0)) > SMALL_CHANGE:
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
