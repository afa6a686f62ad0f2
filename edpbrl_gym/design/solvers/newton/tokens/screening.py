"""Pricing of many tokens: certified upper bounds tell which tokens need no score.

The gap needs the largest score and the working set needs the tokens above the mean score of their block (the level).
A token whose upper bound is at most the level is neither. Bounds allow for float32 by the lengths of the rows and of
the form; float64 rounding, in proportion to the condition number of I, is not allowed for. Four bounds, each valid
for every token:

- Low rank: a score is a prior part less one term for each direction that the data inform; some of the terms bound it.
- Carry-over, D: with q~ = g / c + 1 / c the lifted scores, M~_old <= rho M~_new gives q~_new <= rho q~_old, where M~
  is the lifted matrix [[I + sum c_b m_b m_b', c_b m_b], [., c_b]] and rho its largest generalised eigenvalue.
- Carry-over, A: ||I_new^-1 z_new|| <= ||I_new^-1 I_old||_2 ||I_old^-1 z_old|| + ||I_new^-1 (m_old - m_new)||.
- Deletion, D: at a design with gap e no optimal support holds a token whose q~ is below b^2 times the largest of its
  block, b = 1 + e/2 - sqrt(e + e^2/4). At the optimum M~* the optimality conditions of both designs give
  tr(M~^-1 M~*) + tr(M~*^-1 M~) <= 2 (d + B) + e, so the eigenvalues of M~^-1 M~* lie in [b, 1/b]; compare Harman and
  Pronzato (2007) for one simplex without a prior. Deleted tokens are looked at again for the final certificate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Booleans, Floats, Positions
from edpbrl_gym.design.metric import PriorMetric
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.forms import ScoreForm
from edpbrl_gym.design.solvers.newton.tokens.pricing import RECHECK, TokenPrices, levels_of
from edpbrl_gym.design.solvers.newton.tokens.space import Space

__all__ = ["ScreenedPricing", "deletion_factor"]


_TERMS = 64  # of the low-rank bound
_SAFETY = 1e-9  # relative allowance for the float64 rounding of a carried bound


@dataclass(frozen=True)
class _PricedDesign:
    """The design that the bounds belong to: sqrt(c w) (x - m) in the metric of the prior, and the means there."""

    rows: Floats  # (k, d)
    means: Floats  # (B, d)


class ScreenedPricing:
    """Prices tokens by bounds first; carries the bounds from one design to the next.

    Args:
        blocks: All tokens.
        metric: Inverse of the prior precision.
        criterion: "D", "A" or "V".

    Attributes:
        upper: Upper bounds of all scores at the last design, shape (n,); None before the first.
        alive: Tokens that an optimal support may hold, shape (n,).
    """

    def __init__(self, blocks: TokenBlocks, metric: PriorMetric, criterion: str) -> None:
        self._blocks = blocks
        self._metric = metric
        # a bound for A carries over in the Euclidean norm, which the metric of the prior keeps only for lambda I
        self._carry_criterion = criterion if criterion == "D" or (criterion == "A" and metric.isotropic) else None
        self._deletes = criterion == "D"
        self.upper: Floats | None = None
        self.alive: Booleans = np.ones(len(blocks), dtype=bool)
        self._last_design: _PricedDesign | None = None

    def __call__(self, space: Space, weights: Floats, *, exact: bool) -> TokenPrices:
        """See `Pricing`. With `exact` the deleted tokens are priced too, and all decisive scores are float64."""
        blocks = self._blocks
        form, means = space.form(weights), space.means(weights)
        gradient = space.gradient(weights)
        levels = levels_of(space, weights, gradient)
        self.carry(space, weights, means)
        tokens = self._candidates(levels, exact=exact)
        upper, scores = blocks.bounds(form, _TERMS, means, levels, tokens)
        if tokens is None:
            self.upper = upper
            tokens = np.arange(len(blocks))
        else:
            assert self.upper is not None
            self.upper[tokens] = upper
        sizes = [part.stop - part.start for part in blocks.parts(tokens)]
        above = np.flatnonzero(upper > np.repeat(levels, sizes))
        above = above[~np.isin(tokens[above], space.tokens, assume_unique=True)]
        candidates = tokens[above]
        excess = self._excess(form, means, levels, candidates, None if exact else scores[above])
        inside = np.concatenate([gradient[part] - levels[number] for number, part in enumerate(space.parts)])
        priced, excess = np.concatenate([candidates, space.tokens]), np.concatenate([excess, inside])
        order = np.argsort(priced)
        priced, excess = priced[order], excess[order]
        gaps = [max(0.0, float(excess[part].max(initial=0.0))) for part in blocks.parts(priced)]
        if self._deletes:
            self._delete(gaps, levels)
        positive = excess > 0
        return TokenPrices(
            float(sum(gaps)), priced[positive], excess[positive], int(np.count_nonzero(~np.isnan(scores)))
        )

    def _candidates(self, levels: Floats, *, exact: bool) -> Positions | None:
        """Tokens whose bound exceeds the level of their block; None for all."""
        if self.upper is None:
            return None
        above = self.upper > np.repeat(levels, [block.stop - block.start for block in self._blocks.slices])
        if not exact:
            above &= self.alive
        return np.flatnonzero(above)

    def _excess(
        self, form: ScoreForm, means: Floats, levels: Floats, candidates: Positions, scores: Floats | None
    ) -> Floats:
        """Scores less the level: those given, and float64 near the largest of a block; without them all float64."""
        blocks = self._blocks
        if scores is None:
            excess = blocks.scores(form, means, np.float64, candidates)
        else:
            excess = scores
            lacking = np.flatnonzero(np.isnan(excess))
            excess[lacking] = blocks.scores(form, means, np.float32, candidates[lacking])
        for number, part in enumerate(blocks.parts(candidates)):
            if scores is not None and part.stop > part.start:
                decisive = part.start + np.flatnonzero(excess[part] >= (1.0 - RECHECK) * excess[part].max())
                excess[decisive] = blocks.scores(form, means, np.float64, candidates[decisive])
            excess[part] -= levels[number]
        return excess

    def _delete(self, gaps: list[float], levels: Floats) -> None:
        """Drop the tokens that no optimal support holds."""
        assert self.upper is not None
        share = deletion_factor(sum(gaps))
        for number, block in enumerate(self._blocks.slices):
            scale = self._blocks.scale[number]
            largest = (levels[number] + gaps[number]) / scale + 1.0 / scale
            self.alive[block] &= self.upper[block] / scale + 1.0 / scale >= share * largest

    def carry(self, space: Space, weights: Floats, means: Floats) -> None:
        """Turn the bounds at the last design into bounds at this one."""
        rows = self._metric.half(space.roots(weights))
        now = _PricedDesign(rows, self._metric.half(means))
        # an interrupt may come anywhere: bounds and the design that they belong to are replaced together, at the end
        last, upper = self._last_design, self.upper
        self._last_design, self.upper = None, None
        if upper is not None and last is not None and self._carry_criterion is not None:
            upper = self._carried_bounds(upper, last, now)
        else:
            upper = None
        self.upper = upper
        self._last_design = now

    def _carried_bounds(self, upper: Floats, last: _PricedDesign, now: _PricedDesign) -> Floats:
        """Bounds at one design from those at another."""
        if np.array_equal(last.rows, now.rows) and np.array_equal(last.means, now.means):
            return upper
        basis = _basis(np.concatenate([last.rows, now.rows, last.means, now.means]))
        scale = self._blocks.scale
        if self._carry_criterion == "D":
            factor = largest_ratio(_lifted(last, basis, scale), _lifted(now, basis, scale)) * (1.0 + _SAFETY)
            return factor * (upper + 1.0) - 1.0
        last_information, new_information = information_in(last, basis), information_in(now, basis)
        ratio = max(1.0, float(np.linalg.norm(np.linalg.solve(new_information, last_information), 2))) * (1.0 + _SAFETY)
        mean_shifts = np.linalg.solve(new_information, (basis.T @ (last.means - now.means).T))  # (r, B)
        # in the metric of the prior lambda I: I^-1 z has the norm of (I / lambda)^-1 z / lambda
        shifts = np.linalg.norm(mean_shifts, axis=0) / np.sqrt(self._metric.isotropic or 1.0)
        result = np.empty_like(upper)
        for number, block in enumerate(self._blocks.slices):
            root = ratio * np.sqrt(np.maximum(upper[block], 0.0))
            result[block] = (root + np.sqrt(scale[number]) * shifts[number] * (1.0 + _SAFETY)) ** 2
        return result


def deletion_factor(gap: float) -> float:
    """b^2: tokens whose lifted score is below this share of the largest are in no D-optimal support."""
    # 1 / b instead of the difference of large numbers that is b: the roots of b + 1/b = 2 + e multiply to 1
    return float((1.0 + gap / 2.0 + np.sqrt(gap + gap**2 / 4.0)) ** -2)


def _basis(rows: Floats) -> Floats:
    """Orthonormal columns that span some rows, shape (d, r); outside of the span both designs have the prior alone."""
    if len(rows) >= rows.shape[1]:
        return np.eye(rows.shape[1])
    return np.linalg.qr(rows.T)[0]


def information_in(design: _PricedDesign, basis: Floats) -> Floats:
    projected = design.rows @ basis
    return np.asarray(np.eye(basis.shape[1]) + projected.T @ projected)


def _lifted(design: _PricedDesign, basis: Floats, scale: Floats) -> Floats:
    """M~ in the coordinates of a basis, shape (r + B, r + B)."""
    means = design.means @ basis
    weighted = means * scale[:, None]
    return np.block([[information_in(design, basis) + means.T @ weighted, weighted.T], [weighted, np.diag(scale)]])


def largest_ratio(old: Floats, new: Floats) -> float:
    """Smallest rho >= 1 with old <= rho new."""
    factor = np.linalg.cholesky(new)
    half = solve_triangular(factor, old, lower=True)
    scaled = solve_triangular(factor, half.T, lower=True)
    return max(1.0, float(np.linalg.eigvalsh(0.5 * (scaled + scaled.T))[-1]))
