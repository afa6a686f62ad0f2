"""What is known about the gap of a design without a table, under three names that are never mixed.

The gap of a mixture with moments z is max over all policies of <g, z' - z>, g the gradient at z. With a table value
iteration computes it. Without one there are three numbers, and each answers another question:

- `achieved_gap`: what the policy that was trained gained over the mixture on rollouts. It is too low, by as much as the
  training missed, and proves nothing.
- `gap_bound`: more than any policy can gain, because features may lie anywhere in a ball at every step.
- `enumerated_gap`: the gap itself, where nothing is random after an initial noise that the policy sees. An unbiased
  estimate with a confidence interval.

The third rests on this. Given the noise x an episode is a sequence of actions, and a policy that sees x can choose the
best one, so V*(g) = max over policies of <g, z'> = E_x[ max over sequences of the sum of r_h ]. `EpisodeTrees` of fresh
noises give that maximum exactly, so its mean is unbiased for V*(g), for a gradient fixed before the noises were drawn.
The design's moments, on which g depends, must therefore come from other noises than the gap's: on the same noises the
mixture has been chosen to look good.

Since f is concave, the gradient at any moments z^, estimated ones too, also bounds the optimum (`optimum_bound`):

    max over policies of f <= f(z^) + V*(g) - <g, z^>.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import stdtrit

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_integers, check_number
from edpbrl_gym.design.moments import GradientReward, MomentProblem, PolicyMoments
from edpbrl_gym.design.trees import EpisodeTrees, StepReward

__all__ = [
    "GapEstimate",
    "MeanEstimate",
    "achieved_gap",
    "ball_maximum",
    "enumerated_gap",
    "gap_bound",
    "optimum_bound",
]

_NO_SKEWNESS = 1e-6
_LEAST_SHIFT = 1e-14  # of the multiplier above the largest eigenvalue, relative to its scale


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over independent noises, with a confidence interval that allows for skewness.

    Gaps are skewed to the right: few noises have large ones. Student's interval then lies too low. This one is that of
    Hall (1992, "On the removal of skewness by transformation"): with W = (mean - mu) / s and g the sample skewness,

        sqrt(n) (W + g W^2 / 3 + g^2 W^3 / 27 + g / (6 n))

    is nearly free of skewness, and the cubic is solved for mu at the quantiles of Student's t. Without skewness it is
    Student's interval.

    Attributes:
        mean: The estimate.
        standard_error: Standard deviation over the noises divided by the root of their number.
        low: Lower end of the interval.
        high: Upper end.
        noises: Number of noises n >= 2.
        level: Confidence level, such as 0.95; it holds approximately.
    """

    mean: float
    standard_error: float
    low: float
    high: float
    noises: int
    level: float

    @classmethod
    def of(cls, values: ArrayLike, *, level: float = 0.95) -> Self:
        """Estimate from the value of each noise, shape (n,), n >= 2."""
        sample = check_array(values, "values", shape=("n",))
        if len(sample) < 2:
            raise ValueError(f"Expected the values of at least 2 noises, got {len(sample)}: one has no standard error.")
        share = check_number(level, "level", minimum=0.0, exclusive=True)
        if share >= 1.0:
            raise ValueError(f"Expected a level below 1, got {share:g}")
        mean, error = float(sample.mean()), float(sample.std(ddof=1) / np.sqrt(len(sample)))
        count, spread = len(sample), float(sample.std(ddof=1))
        quantile = float(stdtrit(count - 1, (1.0 + share) / 2.0)) / np.sqrt(count)
        skewness = float(((sample - mean) ** 3).mean()) / spread**3 if spread > 0 else 0.0
        low, high = (mean - spread * _unskewed(end, skewness, count) for end in (quantile, -quantile))
        return cls(mean, error, low, high, count, share)


def _unskewed(value: float, skewness: float, count: int) -> float:
    """W with W + g W^2 / 3 + g^2 W^3 / 27 + g / (6 n) = value, the inverse of Hall's transformation."""
    if abs(skewness) < _NO_SKEWNESS:
        return value
    inner = 1.0 + skewness * (value - skewness / (6.0 * count))
    return float(3.0 / skewness * (np.cbrt(inner) - 1.0))


@dataclass(frozen=True)
class GapEstimate(MeanEstimate):
    """An estimate of the gap; see `MeanEstimate`. No gap is below 0, so neither is the interval."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", max(0.0, float(self.low)))
        object.__setattr__(self, "high", max(0.0, float(self.high)))


def achieved_gap(reward: GradientReward, found: PolicyMoments, mixture: PolicyMoments) -> float:
    """What a trained policy gained over the mixture: <g, z_found - z>. Not a certificate, a better policy may exist."""
    return reward.expected(found) - reward.expected(mixture)


def gap_bound(reward: GradientReward, mixture: PolicyMoments, *, radius: float) -> float:
    """An upper bound of the gap: the best features of the ball at every step, whether or not any policy reaches them.

    Args:
        reward: The gradient.
        mixture: Moments z of the mixture.
        radius: No feature has a larger norm; 1 for unit-norm embeddings.

    Returns:
        sum_h max over ||phi|| <= radius of r_h(phi), minus <g, z>.
    """
    best = ball_maximum(reward.curvature, reward.means @ reward.curvature, radius)
    return float(reward.episodes * best.sum() - reward.expected(mixture))


def ball_maximum(curvature: ArrayLike, slopes: ArrayLike, radius: float) -> Floats:
    """Maximum of phi' G phi - 2 s' phi over the ball ||phi|| <= R, for each s: a trust-region problem, solved exactly.

    The dual function q(mu) = mu R^2 + sum_i b_i^2 / (mu - lambda_i), with the eigenvalues lambda of G and s in their
    basis, bounds the maximum for every mu above all lambda, and its minimum equals it (there is no duality gap with
    one quadratic constraint). The minimum is the root of the secular equation sum_i b_i^2 / (mu - lambda_i)^2 = R^2, or
    lambda_max where that has none. Since q is evaluated at the root found, the result is an upper bound up to the
    rounding of the eigenvalues however well the root is known. (More, Sorensen, "Computing a trust region step", 1983.)

    Args:
        curvature: G, symmetric positive semidefinite, shape (d, d).
        slopes: The vectors s, shape (n, d).
        radius: R > 0.

    Returns:
        Shape (n,).
    """
    matrix = check_array(curvature, "curvature", shape=("d", "d"))
    vectors = check_array(slopes, "slopes", shape=("n", len(matrix)))
    bound = check_number(radius, "radius", minimum=0.0, exclusive=True)
    eigenvalues, basis = np.linalg.eigh((matrix + matrix.T) / 2)
    largest, distance = float(eigenvalues[-1]), eigenvalues[-1] - eigenvalues
    result = np.empty(len(vectors))
    for index, parts in enumerate(vectors @ basis):
        squares = parts**2
        longest = float(np.sqrt(squares.sum())) / bound  # at this shift the secular sum is at most R^2
        shift = _LEAST_SHIFT * max(abs(largest), longest, np.finfo(np.float64).tiny)

        def secular(shift: float, squares: Floats = squares) -> float:
            return float(bound**2 - (squares / (shift + distance) ** 2).sum())

        if longest > shift and secular(shift) < 0.0:
            shift = float(brentq(secular, shift, longest * (1.0 + 1e-9), xtol=1e-300, rtol=1e-14))
        result[index] = (largest + shift) * bound**2 + float((squares / (shift + distance)).sum())
    return result


def enumerated_gap(
    trees: EpisodeTrees,
    reward: StepReward,
    played: ArrayLike,
    weights: ArrayLike | None = None,
) -> GapEstimate:
    """The gap, estimated without bias from all episodes of fresh noises.

    On trees in which randomness after the first observation is fixed in advance too, the best sequence knows what no
    policy can know, and this estimates an upper bound of the gap (Brown, Smith, Sun, "Information relaxations and
    duality in stochastic dynamic programs", 2010).

    For each noise the best sequence's reward minus the mixture's on the same noise, which removes what the noise gives
    to both. Where the gradient was taken at estimated moments z^, this estimates max <g(z^), z' - z> for the true z.

    Args:
        trees: Trees of n noises that played no part in the design.
        reward: The gradient.
        played: R sequences of the mixture on each noise, integers (n, R, H): of each of R deterministic policies, or
            R independent draws of a mixture of random ones.
        weights: Weight of each of the R sequences, shape (R,), sum 1; None weighs draws equally.
    """
    sequences = check_integers(played, "played", shape=(trees.noises, "R", trees.horizon))
    count = sequences.shape[1]
    shares = np.full(count, 1.0 / max(count, 1)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not count or shares.shape != (count,) or shares.min() < 0 or abs(shares.sum() - 1.0) > 1e-9:
        raise ValueError(f"Expected weights >= 0 of shape (R,) = ({count},) with sum 1 and R >= 1, got {weights!r}.")
    values = np.stack([trees.values(reward, sequences[:, draw]) for draw in range(count)], axis=1)
    return GapEstimate.of(trees.best_values(reward) - values @ shares)


def optimum_bound(trees: EpisodeTrees, problem: MomentProblem, moments: PolicyMoments) -> MeanEstimate:
    """An upper bound on the objective of every policy: f(z^) + V*(g) - <g, z^> with the gradient g at z^.

    Args:
        trees: Trees of n noises that played no part in the moments.
        problem: The problem.
        moments: z^, at which the bound is taken; the better the design, the tighter.

    Returns:
        An unbiased estimate of the bound; its ``high`` is the bound with confidence 0.95.
    """
    reward = problem.gradient(moments)
    offset = problem.value(moments) - reward.expected(moments)
    return MeanEstimate.of(offset + trees.best_values(reward))
