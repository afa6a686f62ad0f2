"""Curvature of an objective of many weights: a Hessian made rarely, or its diagonal alone, corrected by every step.

Every step from w to w + s changes the gradient by -y, and H s = y to first order; so BFGS updates of what is known of H
learn from gradients that are computed anyway (Nocedal and Wright, "Numerical optimization", 2006, section 7.2, the
compact form). Beginning with the diagonal alone this takes a few gradients a digit where H, scaled by its diagonal, is
nearly the identity but for a few directions, as on features without clusters; beginning with the whole H two digits for
every three gradients on any features, but H costs as much as several gradients. So the diagonal comes first, and H is
made once it pays (`Costs`) by what the first step shows: the rate, and how far H is from its diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.solvers.newton.tokens.curvature import Curvature, DiagonalCurvature

__all__ = ["IDLE", "Costs", "CurvatureModel", "Renewed", "Secants"]


_MEMORY = 20  # secants
_CURVED = 1e-10  # s'y over |s| |y|: less is rounding
_RATE = 0.2  # of the gap after a step by a new Hessian and its secants; measured 0.1 to 0.2 on all kinds of features
IDLE = 0.7  # of the weights: with fewer that have mass or should have some, no Hessian is made of all
_STEPS = 4  # the last ones tell the rate


@dataclass(frozen=True)
class Costs:
    """What a Newton step on many weights consists of, in operations of a float32 product of the same time.

    Attributes:
        evaluation: Value and gradient.
        hessian: Making the Hessian.
        program: A quadratic program with it.
    """

    evaluation: float
    hessian: float
    program: float

    def hessian_pays(self, rate: float, remaining: float, kept: float = 1.0) -> bool:
        """Whether a new Hessian costs less than going on, and than one step more and then a Hessian.

        Args:
            rate: Of the gap after a step to the gap before.
            remaining: Of the gap at the end to the gap now.
            kept: Share of the weights to make a Hessian of after a further step.
        """
        if remaining >= 1.0 or self.evaluation + kept**2 * self.hessian < self.hessian:
            return False
        steps = np.log(remaining) / np.log(min(rate, 0.99))
        steps_with = np.log(remaining) / np.log(_RATE)
        return bool(self.evaluation * steps > self.hessian + (self.evaluation + self.program) * steps_with)


class Secants:
    """A curvature with BFGS corrections.

    Args:
        base: What is corrected.
        parts: Entries of each block: changes of weights sum to 0 there, so gradients matter up to a constant.
    """

    def __init__(self, base: Curvature, parts: list[slice]) -> None:
        self._base, self._parts = base, parts
        self._pairs: list[tuple[Floats, Floats, Floats]] = []  # s, B s, y
        self._correction: tuple[Floats, Floats] | None = None  # U and M with H = B - U M U'
        self.diagonal = base.diagonal
        self.work = base.work

    def learn(self, step: Floats, change: Floats) -> None:
        """Take in that H s = y.

        Args:
            step: s, shape (k,).
            change: y, minus the change of the gradient, up to a constant in every block, shape (k,).
        """
        centred = change.copy()
        inverse = 1.0 / (self.diagonal + 1e-12 * self.diagonal.max() + np.finfo(float).tiny)
        for part in self._parts:
            if part.stop > part.start:
                centred[part] -= inverse[part] @ change[part] / inverse[part].sum()
        if not step @ centred > _CURVED * np.linalg.norm(step) * np.linalg.norm(centred):
            return
        self._pairs = [*self._pairs[1 - _MEMORY :], (step, self._base.product(step), centred)]
        self._correct()

    @property
    def rate(self) -> float:
        """Of the gap after a step of the base alone, as far as the secants tell.

        Scaled by its diagonal, H has eigenvalues of mean 1, so its condition number is at least the largest of them, l,
        and gradient steps in the metric of the diagonal leave (l - 1) / (l + 1); and y' D^-1 y <= l s'y.
        """
        inverse = 1.0 / (self.diagonal + np.finfo(float).tiny)
        largest = max((float(y @ (inverse * y) / (s @ y)) for s, _, y in self._pairs), default=1.0)
        return max(0.0, (largest - 1.0) / (largest + 1.0))

    def rebased(self, base: Curvature) -> None:
        """Correct something else by the same secants."""
        self._base, self.diagonal, self.work = base, base.diagonal, base.work
        self._pairs = [(step, base.product(step), change) for step, _, change in self._pairs]
        self._correct()

    def product(self, vector: Floats) -> Floats:
        """See `Curvature`."""
        result = self._base.product(vector)
        if self._correction is not None:
            columns, middle = self._correction
            result = result - columns @ (middle @ (columns.T @ vector))
        return result

    def _correct(self) -> None:
        self._correction = None
        if not self._pairs:
            return
        steps, products, changes = (np.stack(arrays, axis=1) for arrays in zip(*self._pairs, strict=True))
        inner = steps.T @ changes
        lower = np.tril(inner, -1)
        outer = steps.T @ products
        matrix = np.block([[0.5 * (outer + outer.T), lower], [lower.T, -np.diag(np.diag(inner))]])
        scale = 1.0 / np.sqrt(np.abs(np.diag(matrix)) + np.finfo(float).tiny)
        try:
            middle = np.linalg.inv(matrix * np.outer(scale, scale))
        except np.linalg.LinAlgError:
            middle = np.full_like(matrix, np.nan)
        if not np.isfinite(middle).all():  # steps that repeat each other: begin again with the last
            self._pairs = self._pairs[-1:] if len(self._pairs) > 1 else []
            self._correct()
            return
        self._correction = np.concatenate([products, changes], axis=1), middle * np.outer(scale, scale)


@dataclass
class Renewed:
    """A Hessian that is made at every point.

    Attributes:
        curvature: Makes it, of an objective and weights (no bound method: objectives hold large arrays, which a cycle
            would keep).
        above: See `ByProducts`.
        share: See `ByProducts`.
    """

    curvature: Callable[[Any, Floats], Curvature]
    above: float
    share: float

    def at(self, space: Any, weights: Floats, gradient: Floats, gap: float) -> Curvature:
        """See `ByProducts`."""
        return self.curvature(space, weights)

    def renew(self) -> bool:
        """See `ByProducts`."""
        return False


class CurvatureModel:
    """What is known of the Hessian of the negative of an objective at the points that Newton's method visits.

    Args:
        diagonal: Diagonal of the Hessian, of an objective and weights (no bound method: objectives hold large arrays,
            which a cycle would keep).
        hessian: The Hessian, of the same.
        costs: What they cost, of an objective and weights.
        above: Weights above which Newton's method uses this, not factors of the Hessian.
        goal: Gap at the end.
    """

    share = 0.1  # of the gap, to which the quadratic program is solved

    def __init__(
        self,
        diagonal: Callable[[Any, Floats], Floats],
        hessian: Callable[[Any, Floats], Curvature],
        costs: Callable[[Any, Floats], Costs],
        *,
        above: float,
        goal: float = 0.0,
    ) -> None:
        self._diagonal, self._hessian, self._costs = diagonal, hessian, costs
        self.above = above
        self.goal = goal
        self._secants: Secants | None = None
        self._whole = False  # whether the secants correct a Hessian, not its diagonal
        self._last: tuple[Floats, Floats] | None = None  # weights and gradient
        self._gaps: list[float] = []  # since the secants began
        self._renewed = False  # since the last step that raised the objective

    def at(self, space: Any, weights: Floats, gradient: Floats, gap: float) -> Curvature:
        """The curvature at some weights, where the gradient, up to constants, and the gap are known."""
        kept = 1.0
        if self._last is not None and self._secants is not None:
            kept = float(np.mean((weights > 0) == (self._last[0] > 0)))  # the next step may move as many to or from 0
            step = weights - self._last[0]
            self._secants.learn(step, self._last[1] - gradient)
            self._renewed = self._renewed and not step.any()
        self._last = weights.copy(), gradient
        self._gaps.append(gap)
        active = int(np.count_nonzero((weights > 0) | (gradient > 0)))
        # where few entries matter, whoever keeps the others should drop them first: H grows with their square
        if self._renewed or (active > IDLE * len(weights) and self._hessian_pays(space, weights, gap, kept)):
            self._secants, self._whole, self._gaps = Secants(self._hessian(space, weights), space.parts), True, [gap]
        if not self._whole:
            base = DiagonalCurvature(self._diagonal(space, weights))
            if self._secants is None:
                self._secants = Secants(base, space.parts)
            else:
                self._secants.rebased(base)
        assert self._secants is not None
        return self._secants

    def renew(self) -> bool:
        """See `ByProducts`."""
        self._renewed = not self._renewed
        return self._renewed

    def inherit(self, other: CurvatureModel) -> None:
        """Take over the rate that was observed on more weights."""
        self._gaps = list(other._gaps)

    def _hessian_pays(self, space: Any, weights: Floats, gap: float, kept: float) -> bool:
        steps = min(len(self._gaps) - 1, _STEPS)
        if steps < 1:
            return False
        rate = (gap / self._gaps[-1 - steps]) ** (1.0 / steps)
        if not self._whole and self._secants is not None:
            rate = max(rate, self._secants.rate)
        return self._costs(space, weights).hessian_pays(rate, max(self.goal, 1e-9 * gap) / gap, kept)
