"""Steps of Frank-Wolfe: the active set of the pairwise ones, and exact line search.

The best point of a segment of designs costs one symmetric eigenvalue problem.

Along d(g) = d + g (d' - d) the surrogate information is quadratic, I(g) = I + g A - g^2 T dm' dm. Lifting every row
to (phi_n ; e_h) makes it affine: with the Cholesky factor I = L L' and

    C = [[ L^-1 A L^-T,  sqrt(T) L^-1 dm' ], [ sqrt(T) dm L^-T,  0 ]]        (d + H) x (d + H), eigenpairs (mu_i, w_i),

    det I(g) = det I * prod_i (1 + g mu_i),       I(g)^-1 = L^-T [ (1 + g C)^-1 ]_11 L^-1,

so log det I is sum_i log(1 + g mu_i) and -tr B' I^-1 B is -sum_i c_i / (1 + g mu_i) with c_i = ||B' L^-T w_i,1||^2:
along the whole segment the slope costs O(d), and its root is found to machine precision. (Measured against safeguarded
Newton on Cholesky factors at d = 384 and 768: 1.9 times faster for D, 2.7 to 4 times for V.) A criterion without a
closed form is searched by the root of its slope, one gradient for each trial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import brentq

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.criteria import Criterion, Form, SingularInformationError, cholesky

__all__ = ["ActiveSet", "Segment", "exact_step"]


_MAX_HALVINGS = 200
_SINGULAR = 1e-13  # 1 + g mu below this: the information matrix is singular to working precision


@dataclass(frozen=True)
class Segment:
    """A segment of designs in terms of their moments.

    Attributes:
        information: I at the start, prior included, shape (d, d).
        means: m_h at the start, shape (H, d).
        moment_change: Change of sum_h Phi' diag(d_h) Phi over a unit step, shape (d, d).
        mean_change: Change of m_h over a unit step, shape (H, d).
        episodes: T.
        longest: Largest step that stays feasible.
    """

    information: Floats
    means: Floats
    moment_change: Floats
    mean_change: Floats
    episodes: float
    longest: float

    @property
    def slope(self) -> Floats:
        """A = dI/dg at the start, shape (d, d)."""
        cross = self.means.T @ self.mean_change
        return np.asarray(self.episodes * (self.moment_change - cross - cross.T))

    def at(self, step: float) -> Floats:
        """Information after a step."""
        bend = self.mean_change.T @ self.mean_change
        return self.information + step * self.slope - step**2 * self.episodes * bend


def exact_step(criterion: Criterion, segment: Segment) -> float:
    """Maximise the criterion over the segment.

    Args:
        criterion: In closed form where it has one, else through its gradient.
        segment: The segment.

    Returns:
        The step in [0, segment.longest].
    """
    if segment.longest <= 0.0:
        return 0.0
    form = criterion.form
    slope = _gradient_slope(criterion, segment) if form is None else _spectral_slope(form, segment)
    return _root_of_decreasing(slope, segment.longest)


def _spectral_slope(form: Form, segment: Segment) -> Callable[[float], float]:
    """Slope of the criterion along the segment, by the eigenvalues of the lifted direction."""
    factor = cholesky(segment.information)
    dimension, steps = len(factor), len(segment.mean_change)
    lifted = np.zeros((dimension + steps, dimension + steps))
    reduced, _ = lapack.dsygst(segment.slope, factor, lower=1)  # L^-1 A L^-T, lower triangle
    lifted[:dimension, :dimension] = reduced
    cross = solve_triangular(factor, segment.mean_change.T, lower=True, check_finite=False)
    lifted[dimension:, :dimension] = np.sqrt(segment.episodes) * cross.T
    target = form.target(dimension)
    if target is None:
        eigenvalues = np.linalg.eigvalsh(lifted)

        def slope(step: float) -> float:
            scale = 1.0 + step * eigenvalues
            return float((eigenvalues / scale).sum()) if scale.min() > _SINGULAR else -np.inf

        return slope
    eigenvalues, vectors = np.linalg.eigh(lifted)
    projected = vectors[:dimension].T @ solve_triangular(factor, target, lower=True, check_finite=False)
    weights = eigenvalues * np.einsum("ir,ir->i", projected, projected)

    def trace_slope(step: float) -> float:
        scale = 1.0 + step * eigenvalues
        return float((weights / scale**2).sum()) if scale.min() > _SINGULAR else -np.inf

    return trace_slope


def _gradient_slope(criterion: Criterion, segment: Segment) -> Callable[[float], float]:
    linear, bend = segment.slope, segment.mean_change.T @ segment.mean_change

    def slope(step: float) -> float:
        curvature = criterion.gradient(segment.at(step))
        return float(np.vdot(curvature, linear - 2.0 * step * segment.episodes * bend))

    return slope


def _root_of_decreasing(slope: Callable[[float], float], longest: float) -> float:
    """Maximiser in [0, longest] of a concave function by its slope, which may be -inf near `longest`."""
    if _guarded(slope, 0.0) <= 0.0:
        return 0.0
    low, high, at_high = 0.0, longest, _guarded(slope, longest)
    if at_high >= 0.0:
        return longest
    for _ in range(_MAX_HALVINGS):  # a step to a vertex may end in a singular matrix: move the end off it
        if np.isfinite(at_high):
            return float(brentq(slope, low, high, xtol=1e-15, rtol=8.9e-16, maxiter=200))
        middle = 0.5 * (low + high)
        at_middle = _guarded(slope, middle)
        if at_middle > 0.0:
            low = middle
        else:
            high, at_high = middle, at_middle
    return low


def _guarded(slope: Callable[[float], float], step: float) -> float:
    """Slope, with -inf where the information matrix is singular."""
    try:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value = slope(step)
    except SingularInformationError:
        return -np.inf
    return value if np.isfinite(value) else -np.inf


class ActiveSet:
    """Occupancies with positive weights that sum to 1; only their nonzero entries are kept.

    Args:
        start: The first atom, any feasible occupancy, shape (H, M).
    """

    def __init__(self, start: Floats) -> None:
        self._shape = start.shape
        self._indices: list[NDArray[np.intp]] = []
        self._values: list[Floats] = []
        self._weights: list[float] = []
        self._position: dict[bytes, int] = {}
        self._add(start, 1.0)

    def __len__(self) -> int:
        return len(self._weights)

    @property
    def weights(self) -> Floats:
        """Weights of the atoms, shape (n,)."""
        return np.array(self._weights)

    def occupancy(self, position: int) -> Floats:
        """Atom number `position` as an array (H, M)."""
        dense = np.zeros(self._shape).ravel()
        dense[self._indices[position]] = self._values[position]
        return dense.reshape(self._shape)

    def mean(self) -> Floats:
        """The weighted sum of the atoms, shape (H, M)."""
        total = np.zeros(self._shape).ravel()
        for indices, values, weight in zip(self._indices, self._values, self._weights, strict=True):
            total[indices] += weight * values
        return total.reshape(self._shape)

    def worst(self, pair_reward: Floats) -> tuple[int, float]:
        """The atom with the smallest reward (the first of equals) and its weight.

        Args:
            pair_reward: Reward of each pair and step, shape (H, M).
        """
        lengths = np.array([len(indices) for indices in self._indices])
        products = pair_reward.ravel()[np.concatenate(self._indices)] * np.concatenate(self._values)
        totals = np.add.reduceat(products, np.concatenate(([0], np.cumsum(lengths)[:-1])))
        position = int(np.argmin(totals))
        return position, self._weights[position]

    def shift(self, source: int, target: Floats, step: float) -> None:
        """Move weight from an atom to an occupancy, which becomes an atom if it is none; drop an empty source."""
        if step <= 0.0:
            return
        key = self._key(target)
        if key in self._position:
            self._weights[self._position[key]] += step
        else:
            self._add(target, step)
        remainder = self._weights[source] - step
        self._weights[source] = remainder
        if remainder <= 0.0:
            self._remove(source)

    def _add(self, occupancy: Floats, weight: float) -> None:
        flat = occupancy.ravel()
        indices = np.flatnonzero(flat)
        self._position[self._key(occupancy)] = len(self._weights)
        self._indices.append(indices)
        self._values.append(flat[indices])
        self._weights.append(weight)

    def _remove(self, position: int) -> None:
        for items in (self._indices, self._values, self._weights):
            del items[position]
        self._position = {key: index - (index > position) for key, index in self._position.items() if index != position}

    @staticmethod
    def _key(occupancy: Floats) -> bytes:
        flat = occupancy.ravel()
        indices = np.flatnonzero(flat)
        return indices.tobytes() + flat[indices].tobytes()
