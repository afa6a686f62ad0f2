"""Damped Newton for the penalised multinomial likelihood, in the differences to the chosen option.

With y_k = x_k - x_choice the log-likelihood of a question is -log(1 + sum_k exp(theta . y_k)) over the K - 1 options
that were not chosen: one row less a question than in the features, and the chosen option as reference is the stable
one (its probability is the largest where the fit is good).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from edpbrl_gym.choice import information_from_differences, log_softmax

__all__ = ["Maximum", "differences_to_chosen", "maximise"]

Floats = NDArray[np.float64]

_EPSILON = float(np.finfo(np.float64).eps)
_SUFFICIENT = 1e-4  # Armijo: share of the predicted gain that a step must reach
_SMALLEST_STEP = 1e-10
_STALLED = 1e-4  # below this decrement Newton at least halves it in each step, unless rounding is all that is left


@dataclass(frozen=True, eq=False)
class Maximum:
    """Where the iteration ended: the fields of ``Estimate``, and what the check for separable answers needs.

    ``score`` is the gradient of the log-likelihood alone, (d,); ``probabilities`` has the chosen option first, (n, K).
    """

    theta: Floats
    reason: str
    iterations: int
    score: Floats
    gradient_norm: float
    log_likelihood: float
    log_posterior: float
    precision: Floats
    probabilities: Floats


def differences_to_chosen(options: Floats, choices: NDArray[np.int64]) -> Floats:
    """x_k - x_choice for the K - 1 other options, (n, K - 1, d), of checked arrays."""
    num_questions, num_options, _ = options.shape
    others = np.arange(num_options - 1)[None, :]
    others = others + (others >= choices[:, None])
    rows = np.arange(num_questions)
    return options[rows[:, None], others] - options[rows, choices][:, None, :]


def _log_probabilities(values: Floats) -> Floats:
    """Log probabilities (n, K), the chosen option (utility 0) first, from the others' utilities (n, K - 1)."""
    return log_softmax(np.concatenate([np.zeros((len(values), 1)), values], axis=1))


def maximise(
    differences: Floats, prior_precision: Floats, start: Floats, *, tolerance: float, max_iterations: int
) -> Maximum:
    """Maximise log-likelihood - 1/2 theta' P theta.

    Args:
        differences: x_k - x_choice, (n, K - 1, d).
        prior_precision: P, positive semidefinite, (d, d).
        start: first theta, (d,).
        tolerance: of the Newton decrement.
        max_iterations: most Newton steps.

    Returns:
        The last point; ``reason`` is empty when it converged.
    """
    num_questions, others, dimension = differences.shape
    rows = differences.reshape(-1, dimension)
    theta = start
    values = (rows @ theta).reshape(num_questions, others)
    iteration, previous = 0, np.inf
    while True:
        logs = _log_probabilities(values)
        probabilities = np.exp(logs)
        log_likelihood = float(logs[:, 0].sum())
        slope = prior_precision @ theta
        score = -(probabilities[:, 1:].ravel() @ rows)
        gradient = score - slope
        precision = information_from_differences(differences, probabilities) + prior_precision
        log_posterior = log_likelihood - 0.5 * float(theta @ slope)
        step, decrement, reason = _newton_step(precision, gradient)
        if reason == "" and decrement > tolerance:
            if previous < _STALLED and decrement > previous / 2:
                reason = f"rounding stops progress at a Newton decrement of {decrement:.2e}; use a larger tolerance"
            elif iteration == max_iterations:
                reason = f"the Newton decrement is {decrement:.2e} after {iteration} iterations; raise max_iterations"
        if reason or decrement <= tolerance:
            break
        moves = (rows @ step).reshape(num_questions, others)
        curve = (float(step @ slope), float(step @ (prior_precision @ step)))
        length = _step_length(values, moves, log_likelihood, curve, decrement)
        if length == 0.0:
            reason = f"no step raises the log posterior (Newton decrement {decrement:.2e})"
            break
        theta = theta + length * step
        values = values + length * moves
        iteration, previous = iteration + 1, decrement
    return Maximum(
        theta=theta,
        reason=reason,
        iterations=iteration,
        score=score,
        gradient_norm=float(np.linalg.norm(gradient)),
        log_likelihood=log_likelihood,
        log_posterior=log_posterior,
        precision=precision,
        probabilities=probabilities,
    )


def _newton_step(precision: Floats, gradient: Floats) -> tuple[Floats, float, str]:
    """The step H^-1 g, its decrement sqrt(g' H^-1 g), and a reason when H has no Cholesky factor."""
    try:
        step = cho_solve(cho_factor(precision, lower=True, check_finite=False), gradient, check_finite=False)
    except LinAlgError:
        return np.zeros_like(gradient), np.inf, "the posterior precision is singular in floating point"
    return step, float(np.sqrt(max(0.0, float(gradient @ step)))), ""


def _step_length(
    values: Floats, moves: Floats, log_likelihood: float, curve: tuple[float, float], decrement: float
) -> float:
    """Backtrack from 1 to a step with a sufficient gain; 0 when there is none.

    ``curve`` is (step' P theta, step' P step): the prior's part along the line is - t curve[0] - t^2 curve[1] / 2. Only
    (n, K) numbers are touched, no features. Gains below the rounding of the sum count as no loss, so that the last
    full steps are taken.
    """
    slack = 16 * _EPSILON * (1.0 + abs(log_likelihood))
    length = 1.0
    while length >= _SMALLEST_STEP:
        moved = float(_log_probabilities(values + length * moves)[:, 0].sum())
        gain = moved - log_likelihood - length * curve[0] - 0.5 * length**2 * curve[1]
        if gain >= _SUFFICIENT * length * decrement**2 - slack:
            return length
        length /= 2
    return 0.0
