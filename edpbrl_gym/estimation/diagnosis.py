"""Do the assumptions of the paper's bound on the error hold for an estimate, and what bound does hold?

The paper (appendix, "Upper Bound on MSE") bounds the mean squared error matrix of theta_hat by C H(theta*)^-1 with
H = I + lambda I_d, I the Fisher information of all answers and C = (1 - r)^-4, under two assumptions:

1. r = |theta_hat - theta*|_I(theta*) < 1 for all answers ("local radius");
2. |theta*|^2 <= 1 / lambda.

**The first** does not become true with more answers. Where the answers outweigh the prior, r^2 is about chi-squared
with one degree of freedom for each parameter, for any number of answers: its mean is about tr(I H^-1), the effective
number of parameters. It holds only where a prior dominates, and then the error is mostly bias.

**The second**, for a prior N(m, P^-1), becomes (theta* - m)' P (theta* - m) <= 1. The penalised score at theta* is
s = score - P (theta* - m), so E[s s'] = I + b b' with b = P (theta* - m), and b b' <= P if and only if b' P^-1 b <= 1.
That prior itself expects d for this number, not 1.

**Self-concordance.** The paper takes the multinomial logit for a self-concordant function, whose third derivative is
bounded by the second to the power 3/2. It is not: it is a generalised self-concordant one (Bach, 2010, for the logistic
loss; Sun & Tran-Dinh, 2019), with a constant that scales with the features. Let D = theta_hat - theta* and
delta = max over the questions and their options q, q' of |D . (x_q - x_q')|. With p_t the choice probabilities at
theta* + t D and y = v . x, z = D . x,

    d/dt Var_t(y) = E_t[(y - E_t y)^2 (z - E_t z)],   |z - E_t z| <= delta,

so that exp(-t delta) I(theta*) <= I(theta* + t D) <= exp(t delta) I(theta*) in the Loewner order. The gradient is 0 at
theta_hat, so s = Hbar D with the mean Hessian Hbar = integral over t in [0, 1] of H(theta* + t D), and integrating the
two sides gives (1 - exp(-delta)) / delta H(theta*) <= Hbar <= (exp(delta) - 1) / delta H(theta*).

With u = H(theta*)^-1/2 s and M = H(theta*)^1/2 Hbar^-1 H(theta*)^1/2, H(theta*)^1/2 D = M u, and the eigenvalues of M
lie in an interval of length delta with the centre c = (delta / 2) coth(delta / 2) and the upper end b = c + delta / 2.
Under the second assumption E[u u'] <= I_d and E|u|^2 <= k + 1, k the effective number of parameters. If delta is a
bound for all possible answers, then

    E|D|^2_H(theta*) <= b^2 (k + 1),                                   "total constant" b^2 <= exp(2 delta)
    E[D D'] <= (c + delta / 2 sqrt(k + 1))^2 H(theta*)^-1              "matrix constant"

The second holds because M u = c u + (M - c) u with |(M - c) u| <= delta / 2 |u| (and Minkowski's inequality). The
paper's proof takes b^2 for the matrix, too; but M depends on the answers, and M <= b I_d does not imply
E[M u u' M] <= b^2 E[u u']. Both constants tend to 1 as the number of answers grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.estimation.newton import posterior_precision
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.likelihood.choice import log_softmax

if TYPE_CHECKING:
    from edpbrl_gym.estimation.map_estimate import Estimate, Fitted

__all__ = ["Diagnosis", "diagnose"]


_BLOCK_NUMBERS = 1 << 22  # utilities in a block of draws: bounds the memory
_ROUNDING = 1e-9  # a unit-norm theta at lambda = 1 meets its assumption with equality


@dataclass(frozen=True)
class Diagnosis:
    """Whether the assumptions of the bound on the error hold, with numbers; see the module for the formulas.

    With a known truth the numbers are exact; without one each is its posterior quantile at ``level``, and a condition
    that holds does so with at least this posterior probability; two conditions that hold, both do with 2 level - 1.

    Attributes:
        questions: Number of answers (terms of the likelihood, for rankings).
        dimension: Number of features d.
        truth_known: Whether theta* was given.
        level: Level of the quantiles.
        effective_parameters: k = tr(I H^-1), in [0, d], at theta* if known, else at theta_hat: about the mean of the
            squared radius.
        radius: r, the distance of theta_hat to theta* in units of the information at theta*.
        radius_holds: Whether r < 1, the paper's first assumption.
        paper_constant: C = (1 - r)^-4; infinity where r >= 1.
        prior_distance: (theta* - m)' P (theta* - m); lambda |theta*|^2 for the ridge.
        prior_distance_interval: Its central posterior interval at ``level``; the exact value twice with a known truth.
        prior_distance_of_estimate: The same number for theta_hat.
        prior_holds: Whether the prior distance is at most 1, the paper's second assumption.
        utility_error: delta, the largest error of a difference of utilities within a question.
        feature_radius: Largest distance of two options of a question; delta is at most this times |theta_hat - theta*|.
        total_constant: Constant of the bound on E|theta_hat - theta*|^2 in units of H(theta*).
        matrix_constant: Constant of the bound on the mean squared error matrix.
        limit: Largest total constant that counts as useful.
        bound_holds: Whether the prior distance is at most 1 and the total constant at most ``limit``.
    """

    questions: int
    dimension: int
    truth_known: bool
    level: float
    effective_parameters: float
    radius: float
    radius_holds: bool
    paper_constant: float
    prior_distance: float
    prior_distance_interval: tuple[float, float]
    prior_distance_of_estimate: float
    prior_holds: bool
    utility_error: float
    feature_radius: float
    total_constant: float
    matrix_constant: float
    limit: float
    bound_holds: bool

    def summary(self) -> str:
        """The diagnosis for people, one line for each assumption."""
        source = "theta* given" if self.truth_known else f"quantiles at {self.level:.0%} of the Laplace posterior"
        low, high = self.prior_distance_interval
        interval = "" if self.truth_known else f", interval {low:.3g} to {high:.3g}"
        return "\n".join(
            [
                f"{self.questions} answers, {self.dimension} features, {self.effective_parameters:.1f} effective "
                f"parameters ({source})",
                f"local radius           {_verdict(self.radius_holds)}: r = {self.radius:.3g}, must be below 1; "
                f"C = (1 - r)^-4 = {self.paper_constant:.3g}",
                f"prior around theta*    {_verdict(self.prior_holds)}: (theta* - m)' P (theta* - m) = "
                f"{self.prior_distance:.3g}, must be at most 1 ({self.prior_distance_of_estimate:.3g} at theta_hat"
                f"{interval})",
                f"bound of this library  {_verdict(self.bound_holds)}: delta = {self.utility_error:.3g} for options "
                f"up to {self.feature_radius:.3g} apart; constant {self.total_constant:.3g} (limit {self.limit:g}), "
                f"{self.matrix_constant:.3g} for the matrix",
            ]
        )


def _verdict(holds: bool) -> str:
    return "holds" if holds else "FAILS"


def diagnose(
    estimate: Estimate,
    *,
    truth: ArrayLike | None,
    level: float,
    draws: int,
    seed: int,
    limit: float,
) -> Diagnosis:
    """Diagnose an estimate; see :meth:`~edpbrl_gym.estimation.Estimate.diagnose`."""
    level = check_number(level, "level", minimum=0.0, exclusive=True)
    if level >= 1:
        raise ValueError(f"Expected level in (0, 1), got {level}")
    limit = check_number(limit, "limit", minimum=1.0)
    num_draws = check_count(draws, "draws")
    fitted = estimate.fitted
    if fitted is None:
        raise ValueError("Expected an estimate from estimate() or fit_prior(), got one without its answers")
    if not estimate.converged:
        raise ValueError(f"Expected an estimate that converged, got one that did not: {estimate.reason}")
    posterior = Posterior.from_estimate(estimate)
    if truth is None:
        candidates = posterior.draws(num_draws, np.random.default_rng(check_count(seed, "seed", minimum=0)))
    else:
        hint = "as many features as the estimate"
        candidates = check_array(truth, "truth", shape=(len(estimate.theta),), hint=hint)[None]
    radii, errors = _radii_and_errors(fitted, estimate.theta, candidates)
    prior = fitted.prior
    distances = _distances(prior.precision, candidates - prior.mean)
    precision = estimate.precision if truth is None else _precision(fitted, candidates[0])
    effective = len(precision) - float(np.trace(cho_solve(cho_factor(precision), prior.precision)))
    effective = min(max(effective, 0.0), float(len(precision)))  # by rounding
    radius, error, distance = (float(np.quantile(values, level)) for values in (radii, errors, distances))
    low, high = np.quantile(distances, [0.5 - level / 2, 0.5 + level / 2])
    total, matrix = _constants(error, effective)
    prior_holds = distance <= 1.0 + _ROUNDING
    return Diagnosis(
        questions=len(fitted.differences),
        dimension=len(estimate.theta),
        truth_known=truth is not None,
        level=level,
        effective_parameters=effective,
        radius=radius,
        radius_holds=radius < 1.0,
        paper_constant=(1.0 - radius) ** -4 if radius < 1.0 else np.inf,
        prior_distance=distance,
        prior_distance_interval=(float(low), float(high)),
        prior_distance_of_estimate=float(_distances(prior.precision, (estimate.theta - prior.mean)[None])[0]),
        prior_holds=prior_holds,
        utility_error=error,
        feature_radius=_feature_radius(fitted.differences),
        total_constant=total,
        matrix_constant=matrix,
        limit=limit,
        bound_holds=prior_holds and total <= limit,
    )


def _precision(fitted: Fitted, theta: Floats) -> Floats:
    """H at theta, (d, d)."""
    values = fitted.differences @ theta
    if fitted.offsets is not None:
        values += fitted.offsets
    probabilities = np.exp(log_softmax(_with_chosen(values)))
    return posterior_precision(fitted.differences, probabilities, fitted.prior.precision)


def _distances(precision: Floats, rows: Floats) -> Floats:
    """The quadratic form x' P x of each row x, (n,)."""
    return np.asarray(np.vecdot(rows @ precision, rows))


def _constants(delta: float, effective: float) -> tuple[float, float]:
    """The total and the matrix constant for the largest error ``delta`` of a difference of utilities."""
    half = delta / 2
    centre = half / np.tanh(half) if half > 0 else 1.0
    return float((centre + half) ** 2), float((centre + half * np.sqrt(effective + 1.0)) ** 2)


def _radii_and_errors(fitted: Fitted, theta: Floats, candidates: Floats) -> tuple[Floats, Floats]:
    """|theta - c|_I(c) and the largest error of a difference of utilities for each candidate c, (n,) each."""
    differences, offsets = fitted.differences, fitted.offsets
    count, others = differences.shape[:2]
    rows = differences.reshape(-1, differences.shape[2])
    radii, errors = np.zeros(len(candidates)), np.zeros(len(candidates))
    step = max(1, _BLOCK_NUMBERS // (len(rows) + 1))
    for start in range(0, len(candidates), step):
        block = candidates[start : start + step]
        values, changes = (
            _with_chosen((points @ rows.T).reshape(len(block), count, others)) for points in (block, theta - block)
        )
        if offsets is not None:
            values[:, :, 1:] += offsets
        probabilities = np.exp(log_softmax(values))
        deviations = changes - (probabilities * changes).sum(axis=2, keepdims=True)
        radii[start : start + step] = np.sqrt((probabilities * deviations**2).sum(axis=(1, 2)))
        errors[start : start + step] = np.ptp(changes, axis=2).max(axis=1, initial=0.0)
    return radii, errors


def _with_chosen(values: Floats) -> Floats:
    """The values with those of the chosen alternative, 0, first on the last axis."""
    return np.concatenate([np.zeros((*values.shape[:-1], 1)), values], axis=-1)


def _feature_radius(differences: Floats) -> float:
    """Largest distance of two alternatives of a question; absent ones coincide with the chosen one."""
    largest = float(np.linalg.norm(differences, axis=2).max(initial=0.0))
    for first in range(differences.shape[1]):
        apart = differences[:, first + 1 :] - differences[:, first : first + 1]
        largest = max(largest, float(np.linalg.norm(apart, axis=2).max(initial=0.0)))
    return largest
