"""The certificate of occupancies: evaluated from scratch, or computed by the solver itself.

What float64 may hide in a certificate: an allowance that makes value + gap a bound in spite of rounding.

Analysis. Everything comes from a Cholesky factor of the information I = Lambda + sum c w z z'. Sums, products and the
factorisation are backward stable: what they compute is exact for I + E with |E_ij| <= gamma sqrt(D_ii D_jj), D the
diagonal of I before the means are subtracted (Higham, "Accuracy and stability of numerical algorithms", 2002, theorem
10.3). So ||I^(-1/2) E I^(-1/2)||_2 <= eta = gamma kappa, where

    kappa = ||D^(1/2) I^-1 D^(1/2)||_2

is the condition number after scaling: it does not see the units of the features, but it does see what the means
cancel. In the metric of the prior (Woodbury) the factor of Lambda errs in the same way, by gamma kappa(Lambda), which
is added. With q = z' I^-1 z the score of D, and g = ||B' I^-1 z||^2 that of A and V, to first order in eta

    D:     |dq| <= eta q,                                   |d log det I| <= d eta
    A, V:  |dg| <= 2 eta sqrt(||B' I^-1 B|| q g),           |d tr B' I^-1 B| <= eta tr B' I^-1 B.

Over the weights of the design Cauchy and Schwarz bound the means of these by the means of q, which is what the data
determine (`PriorBalance.learned`), and of g; ||B' I^-1 B|| <= tr B' I^-1 B = -value. Other logarithmic criteria are
treated as D, all others as A: of any s(c I) = s(I) / c the value errs by eta tr(G I) = -eta s, as -tr B' I^-1 B does.
Scores are sums of d products whose rounding is eps of the sizes of their terms, `magnitude`.

The worst case, gamma of the order of d eps, is never seen: rounding errors are of both signs, and their sum is of the
order of sqrt(d) eps (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). So we take
gamma = (2 + sqrt(d)) eps, and for log det I an error of gamma kappa instead of d times as much. This is no proof: it is
what 1,500 random hard problems (2 to 200 dimensions, fewer and more tokens than that, condition numbers from 1 to 1e8,
common parts of 1e5) bear out in long double, where the errors were at most 0.4 of these allowances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve

from edpbrl_gym._arrays import Floats, read_only, row_chunks
from edpbrl_gym.design import information
from edpbrl_gym.design.criteria import cholesky
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import (
    Design,
    IterationRecord,
    PriorBalance,
    check_occupancies,
    design_warnings,
    mean_rows,
    prior_balance,
)

__all__ = ["EXACT", "Rounding", "assemble", "certify", "condition_number", "factor_condition", "rounding_of"]


_CONDITION_STEPS = 24  # of the power method


class Rounding(NamedTuple):
    """What rounding may hide, absolute: of the gap, and of the value."""

    gap: float
    value: float


EXACT = Rounding(0.0, 0.0)


def certify(
    problem: DesignProblem,
    occupancies: ArrayLike,
    *,
    status: str,
    solver: str,
    iterations: int,
    oracle_calls: int,
    seconds: float,
    history: tuple[IterationRecord, ...] = (),
) -> Design:
    """Evaluate occupancies from scratch in float64 and wrap them with their certificate.

    The gap comes from the gradient at exactly these occupancies and from value iteration over all policies. The
    occupancies are those of the K policies, shape (K, H, M), or one for all of them, shape (H, M); the rest is reported
    (see `Design`), the ``oracle_calls`` without the one here.

    Raises:
        ValueError: If an occupancy is not feasible.
    """
    distinct = _policies(problem, occupancies)
    check_occupancies(problem, distinct)
    rows = mean_rows(problem, distinct)
    centre = information.common_centre(problem.features, rows)
    data = information.surrogate_information(problem.features, rows, problem.episodes, centre=centre)
    value, curvature = problem.criterion.evaluate(data + problem.prior)
    means = information.mean_features(problem.features, rows, centre)
    reward = information.gradient(problem.features, rows, curvature, problem.episodes, centre=centre)
    _, best = problem.mdp.best_response(reward)
    balance = prior_balance(problem, rows, data=data)
    gap = max(0.0, best - float(np.vdot(reward, rows)))
    rounding = rounding_of(
        problem,
        condition=factor_condition(cholesky(data + problem.prior), means, np.full(len(means), problem.episodes)),
        value=value,
        learned=balance.learned,
        reward=float(np.vdot(curvature, data)) + gap,  # the mean score, and what the best exceeds it by
        magnitude=_magnitude(problem, means, curvature, centre),
    )
    return assemble(
        problem,
        distinct,
        value=value,
        gap=gap,
        rounding=rounding,
        status=status,
        solver=solver,
        iterations=iterations,
        oracle_calls=oracle_calls + 1,
        seconds=seconds,
        history=history,
        balance=balance,
    )


def _magnitude(problem: DesignProblem, means: Floats, curvature: Floats, centre: Floats) -> float:
    """Size of the terms of z' G z in the largest sum over the steps; |G_ij| is at most sqrt(G_ii G_jj)."""
    diagonal = np.diag(curvature)
    largest = max(float((rows**2 @ diagonal).max()) for _, rows in row_chunks(problem.features, None, centre))
    return problem.episodes * (problem.horizon * largest + float((means**2 @ diagonal).sum()))


def assemble(
    problem: DesignProblem,
    occupancies: ArrayLike,
    *,
    value: float,
    gap: float,
    status: str,
    solver: str,
    iterations: int,
    oracle_calls: int,
    seconds: float,
    history: tuple[IterationRecord, ...] = (),
    balance: PriorBalance | None = None,
    rounding: Rounding = EXACT,
) -> Design:
    """Make a design of occupancies and a certificate that the solver has computed itself, in float64.

    Where no answer can say anything (`DesignProblem.uninformative`) the value is the one without data, and the gap 0.
    Nothing is computed over rows without mass: `certify` is for solvers that have no certificate of their own.

    Arguments as in `certify`, and the value and gap at the policies' mean, its `prior_balance` if that is known, and
    what rounding may hide of gap and value, which the certificate then allows for (nothing where they come from a
    certificate that does). Policies or steps that are the same may be broadcast (stride 0), and stay so.

    Raises:
        ValueError: If an occupancy is not feasible, or the gap is negative or NaN.
    """
    if not gap >= 0:
        raise ValueError(f"Expected a gap >= 0, got {gap}.")
    distinct = _policies(problem, occupancies)
    check_occupancies(problem, distinct)
    if problem.uninformative:
        value, gap, rounding = problem.baseline, 0.0, EXACT
    gap += rounding.gap
    upper_bound = value + gap + rounding.value
    return Design(
        problem=problem,
        occupancies=read_only(np.broadcast_to(distinct, (problem.num_policies, *distinct.shape[1:]))),
        value=value,
        upper_bound=upper_bound,
        gap=gap,
        gain=float(value - problem.baseline),
        relative_gap=float(problem.relative_gap(gap, value)),
        efficiency=problem.criterion.efficiency(value, upper_bound, problem.dimension),
        status=status,
        solver=solver,
        iterations=iterations,
        oracle_calls=oracle_calls,
        seconds=seconds,
        history=history,
        warnings=design_warnings(problem, mean_rows(problem, distinct), balance=balance),
        rounding=rounding.gap,
    )


def _policies(problem: DesignProblem, occupancies: ArrayLike) -> Floats:
    """Occupancies as an array (K, H, M), or (1, H, M) for all policies."""
    array = np.asarray(occupancies, dtype=np.float64)
    policies = array[None] if array.ndim == 2 else array
    if policies.ndim != 3 or policies.shape[0] not in (1, problem.num_policies):
        raise ValueError(f"Expected occupancies (K, H, M) with K = {problem.num_policies}, got shape {array.shape}.")
    return policies[:1] if policies.strides[0] == 0 else policies


def rounding_of(
    problem: DesignProblem,
    *,
    condition: float,
    value: float,
    learned: float,
    reward: float,
    magnitude: float,
    offset: float = 0.0,
) -> Rounding:
    """Allowances for a gap and a value, from what a solver has at hand.

    Args:
        problem: The problem.
        condition: kappa, the sum of those of all factors used.
        value: Objective.
        learned: Mean of q over the design, summed over the steps: tr(I^-1 I_data).
        reward: Largest score of each step, summed.
        magnitude: The same of the terms that scores are sums of, where they may be larger.
        offset: A part of the value that was computed on its own.
    """
    reward, learned = max(0.0, reward), max(0.0, learned)  # sums of squares, but for rounding
    gamma = (2.0 + float(np.sqrt(problem.dimension))) * float(np.finfo(np.float64).eps)
    size = abs(value) + abs(offset)
    if problem.criterion.logarithmic:
        return Rounding(gamma * (condition * reward + magnitude), gamma * (condition + size))
    of_scores = reward + float(np.sqrt(abs(value) * learned * reward))
    return Rounding(gamma * (condition * of_scores + magnitude), gamma * condition * size)


def factor_condition(factor: Floats, means: Floats, scale: Floats, inverse: Floats | None = None) -> float:
    """Condition number kappa of an information matrix from its Cholesky factor.

    Args:
        factor: L with I = L L', shape (d, d).
        means: What is subtracted as sum scale_b m_b m_b', shape (B, d).
        scale: Shape (B,).
        inverse: L^-1 where it is at hand: products with it take a third of the time of solving with L.
    """
    diagonal = np.einsum("ij,ij->i", factor, factor) + scale @ means**2
    if inverse is not None:
        return condition_number(diagonal, lambda vector: (inverse @ vector) @ inverse)
    columns = np.asfortranarray(factor)  # or every solution would copy it
    return condition_number(diagonal, lambda vector: cho_solve((columns, True), vector, check_finite=False))


def condition_number(diagonal: Floats, solve: Callable[[Floats], Floats]) -> float:
    """||D^(1/2) I^-1 D^(1/2)||_2 by the power method.

    From a random start the relative error after n steps is about 0.9 log(d) / n on average, from below (Kuczynski and
    Wozniakowski, "Estimating the largest eigenvalue by the power and Lanczos algorithms", 1992).

    Args:
        diagonal: D, shape (d,).
        solve: Product of I^-1 with a vector of shape (d,).
    """
    root = np.sqrt(diagonal)
    vector = np.random.default_rng(0).standard_normal(len(root))
    largest = 1.0  # kappa is never less
    for _ in range(_CONDITION_STEPS):
        vector /= np.linalg.norm(vector)
        image = root * solve(root * vector)
        largest = max(largest, float(vector @ image))
        vector = image
    return largest
