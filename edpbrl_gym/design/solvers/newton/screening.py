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
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Booleans, Floats, Positions
from edpbrl_gym.design.criteria import Form
from edpbrl_gym.design.solvers.newton.objective import Objective
from edpbrl_gym.design.solvers.newton.scores import (
    RECHECK,
    Prices,
    PriorMetric,
    ScoreForm,
    Scorer,
    Scores,
    levels_of,
)
from edpbrl_gym.design.solvers.newton.tokens import Chunk

__all__ = ["Screening", "deletion_factor", "split_form", "upper_bounds"]


_TERMS = 64  # directions of the low-rank bound: they leave 0.1 to 2% of a million tokens for exact scores
_SAFETY = 1e-9  # relative allowance for the float64 rounding of a carried bound
_ROUNDING = 1e-5  # relative allowance for float32 products, which err by about 1e-6


@dataclass(frozen=True)
class _PricedDesign:
    """The design that the bounds belong to: sqrt(c w) (x - m) in the metric of the prior, and the means there."""

    rows: Floats  # (k, d)
    means: Floats  # (B, d)


class Screening:
    """An `Oracle` that prices tokens by bounds first, and carries the bounds from one design to the next.

    Args:
        scores: Computes the scores; its metric is that of a proper prior.
        form: The criterion in closed form; None if it has none.

    Attributes:
        upper: Upper bounds of all scores at the last design, shape (n,); None before the first.
        alive: Tokens that an optimal support may hold, shape (n,).
    """

    def __init__(self, scores: Scores, form: Form | None) -> None:
        assert scores.metric is not None
        self._scores = scores
        self._tokens = scores.tokens
        self._metric = scores.metric
        # a bound for A carries over in the Euclidean norm, which the metric of the prior keeps only for lambda I
        self._is_d = form is not None and not form.trace
        self._carries = self._is_d or (form is not None and form.identity and self._metric.isotropic is not None)
        self.upper: Floats | None = None
        self.alive: Booleans = np.ones(len(self._tokens), dtype=bool)
        self._last_design: _PricedDesign | None = None

    def __call__(self, objective: Objective, weights: Floats, *, exact: bool) -> Prices:
        """Price all tokens; with `exact` the deleted ones too, and all decisive scores are float64."""
        form, means = objective.form(weights), objective.means(weights)
        gradient = objective.gradient(weights)
        levels = levels_of(objective, weights, gradient)
        self._carry(objective, weights, means)
        tokens = self._candidates(levels, exact=exact)
        upper, scores = upper_bounds(self._scores, form, means, levels, tokens)
        if tokens is None:
            self.upper = upper
            tokens = np.arange(len(self._tokens))
        else:
            assert self.upper is not None
            self.upper[tokens] = upper
        sizes = [part.stop - part.start for part in self._tokens.parts(tokens)]
        above = np.flatnonzero(upper > np.repeat(levels, sizes))
        above = above[~np.isin(tokens[above], objective.tokens, assume_unique=True)]
        candidates = tokens[above]
        excess = self._excess(form, means, levels, candidates, None if exact else scores[above])
        inside = np.concatenate([gradient[part] - levels[number] for number, part in enumerate(objective.parts)])
        priced, excess = np.concatenate([candidates, objective.tokens]), np.concatenate([excess, inside])
        order = np.argsort(priced)
        priced, excess = priced[order], excess[order]
        gaps = [max(0.0, float(excess[part].max(initial=0.0))) for part in self._tokens.parts(priced)]
        if self._is_d:
            self._delete(gaps, levels)
        positive = excess > 0
        scored = int(np.count_nonzero(~np.isnan(scores)))
        return Prices(float(sum(gaps)), priced[positive], excess[positive], scored)

    def _candidates(self, levels: Floats, *, exact: bool) -> Positions | None:
        """Tokens whose bound exceeds the level of their block; None for all."""
        if self.upper is None:
            return None
        above = self.upper > np.repeat(levels, [block.stop - block.start for block in self._tokens.slices])
        if not exact:
            above &= self.alive
        return np.flatnonzero(above)

    def _excess(
        self, form: ScoreForm, means: Floats, levels: Floats, candidates: Positions, scores: Floats | None
    ) -> Floats:
        """Scores less the level: those given, and float64 near the largest of a block; without them all float64."""
        if scores is None:
            excess = self._scores(form, means, np.float64, candidates)
        else:
            excess = scores
            lacking = np.flatnonzero(np.isnan(excess))
            excess[lacking] = self._scores(form, means, np.float32, candidates[lacking])
        for number, part in enumerate(self._tokens.parts(candidates)):
            if scores is not None and part.stop > part.start:
                decisive = part.start + np.flatnonzero(excess[part] >= (1.0 - RECHECK) * excess[part].max())
                excess[decisive] = self._scores(form, means, np.float64, candidates[decisive])
            excess[part] -= levels[number]
        return excess

    def _delete(self, gaps: list[float], levels: Floats) -> None:
        """Drop the tokens that no optimal support holds."""
        assert self.upper is not None
        share = deletion_factor(sum(gaps))
        for number, block in enumerate(self._tokens.slices):
            scale = self._tokens.scale[number]
            largest = (levels[number] + gaps[number]) / scale + 1.0 / scale
            self.alive[block] &= self.upper[block] / scale + 1.0 / scale >= share * largest

    def _carry(self, objective: Objective, weights: Floats, means: Floats) -> None:
        """Turn the bounds at the last design into bounds at this one."""
        rows = self._metric.half(objective.roots(weights))
        now = _PricedDesign(rows, self._metric.half(means))
        # an interrupt may come anywhere: bounds and the design that they belong to are replaced together, at the end
        last, upper = self._last_design, self.upper
        self._last_design, self.upper = None, None
        if upper is not None and last is not None and self._carries:
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
        scale = self._tokens.scale
        if self._is_d:
            factor = _largest_ratio(_lifted(last, basis, scale), _lifted(now, basis, scale)) * (1.0 + _SAFETY)
            return factor * (upper + 1.0) - 1.0
        last_information, new_information = _information(last, basis), _information(now, basis)
        ratio = max(1.0, float(np.linalg.norm(np.linalg.solve(new_information, last_information), 2))) * (1.0 + _SAFETY)
        mean_shifts = np.linalg.solve(new_information, (basis.T @ (last.means - now.means).T))  # (r, B)
        # in the metric of the prior lambda I: I^-1 z has the norm of (I / lambda)^-1 z / lambda
        shifts = np.linalg.norm(mean_shifts, axis=0) / np.sqrt(self._metric.isotropic or 1.0)
        result = np.empty_like(upper)
        for number, block in enumerate(self._tokens.slices):
            root = ratio * np.sqrt(np.maximum(upper[block], 0.0))
            result[block] = (root + np.sqrt(scale[number]) * shifts[number] * (1.0 + _SAFETY)) ** 2
        return result


def upper_bounds(
    scores: Scores, form: ScoreForm, means: Floats, levels: Floats, tokens: Positions | None = None
) -> tuple[Floats, Floats]:
    """Upper bounds of the scores: from some terms of a form, and from all where that exceeds a level.

    The bounds contain an allowance for float32. Leaving out negative terms of a form bounds it from above. A token
    whose first bound is at most the level of its block, (B,), keeps it. Returns the bounds of all tokens, or of some
    sorted ones, and the scores where all terms were computed, nan elsewhere.
    """
    size = len(scores.tokens) if tokens is None else len(tokens)
    result, complete = np.empty(size), np.empty(size)
    split = split_form(form, _TERMS)
    head, rest = (form, None) if split is None else split
    kind, metric = np.dtype(np.float32), scores.metric
    first = [Scorer(head, mean, metric, kind) for mean in means]
    second = None if rest is None else [Scorer(rest, mean, metric, kind) for mean in means]
    slack = [_Slack(head, rest, mean, metric) for mean in means]
    scores.prepare(form)

    def bound(chunk: Chunk) -> None:
        block, rows, scale = chunk.block, chunk.rows, scores.tokens.scale[chunk.block]
        norms = scores.norms(form, chunk)
        lengths = np.sqrt((rows * rows).sum(1).astype(np.float64))
        values = first[block](rows, norms).astype(np.float64)
        extra = slack[block](values, lengths, norms)
        if second is not None:
            above = values * scale + extra * scale > levels[block]
            positions = np.flatnonzero(above)
            if len(positions):
                values[positions] += second[block](rows[positions], None)
        values *= scale
        complete[chunk.positions] = values if second is None else np.where(above, values, np.nan)
        result[chunk.positions] = (1.0 + _ROUNDING) * values + scale * extra

    scores.tokens.for_each_chunk(bound, kind, tokens)
    return result, complete


def split_form(form: ScoreForm, count: int) -> tuple[ScoreForm, ScoreForm] | None:
    """The `count` most negative terms with the base, and the rest without; None if the form is no longer.

    The first is an upper bound of the form, and the sum of both is the form.
    """
    if form.coefficients is None or len(form.coefficients) <= count or form.coefficients.max(initial=0.0) > 0:
        return None
    order = np.argsort(form.coefficients, kind="stable")
    head, rest = order[:count], order[count:]
    return (
        ScoreForm(form.base, form.directions[head], form.coefficients[head]),
        ScoreForm(0.0, form.directions[rest], form.coefficients[rest]),
    )


class _Slack:
    """What float32 may take off a score ||F z||^2 or base ||z||^2 - ||A z||^2, from the lengths of the rows.

    A product F x errs by at most gamma ||F||_F ||x||, which may be more than a given share of ||F x||: where F is
    ill-conditioned, long rows have small scores.
    """

    def __init__(self, head: ScoreForm, rest: ScoreForm | None, mean: Floats, metric: PriorMetric | None) -> None:
        self._base, self._metric = head.base, metric
        self._gamma = float(np.finfo(np.float32).eps) * (2.0 + np.sqrt(len(mean)) / 8.0)
        self._length = float(np.linalg.norm(mean))
        self._size = float(np.sqrt(sum(_size(form) for form in (head, rest) if form is not None)))
        self._constant = self._solution_norm = self._inverse = 0.0
        if head.base != 0:
            assert metric is not None
            solution = metric.solve(mean[None])[0]
            self._constant, self._solution_norm = float(solution @ mean), float(np.linalg.norm(solution))
            if not metric.isotropic:
                self._inverse = float(np.linalg.norm(metric.factor_inverse(len(mean))))

    def __call__(self, scores: Floats, lengths: Floats, norms: NDArray | None) -> Floats:
        """Allowance for scores (without c), shape (m,)."""
        eta = self._gamma * self._size * (lengths + self._length)
        if norms is None:
            return np.asarray((2.0 * np.sqrt(np.maximum(scores, 0.0)) + eta) * eta)
        extra = _ROUNDING * self._base * (norms + self._constant)
        assert self._metric is not None
        if not self._metric.isotropic:
            roots = np.sqrt(norms.astype(np.float64))
            off = self._gamma * self._inverse * lengths
            extra += self._base * ((2.0 * roots + off) * off + 2.0 * self._gamma * self._solution_norm * lengths)
            extra += 2.0 * np.sqrt(self._base) * (roots + np.sqrt(self._constant)) * eta
        return np.asarray(extra)


def _size(form: ScoreForm) -> float:
    """Sum of |a_j| ||p_j||^2."""
    lengths = np.einsum("rd,rd->r", form.directions, form.directions)
    return float(lengths.sum() if form.coefficients is None else np.abs(form.coefficients) @ lengths)


def deletion_factor(gap: float) -> float:
    """b^2: tokens whose lifted score is below this share of the largest are in no D-optimal support."""
    # 1 / b instead of the difference of large numbers that is b: the roots of b + 1/b = 2 + e multiply to 1
    return float((1.0 + gap / 2.0 + np.sqrt(gap + gap**2 / 4.0)) ** -2)


def _basis(rows: Floats) -> Floats:
    """Orthonormal columns that span some rows, shape (d, r); outside of the span both designs have the prior alone."""
    if len(rows) >= rows.shape[1]:
        return np.eye(rows.shape[1])
    return np.linalg.qr(rows.T)[0]


def _information(design: _PricedDesign, basis: Floats) -> Floats:
    projected = design.rows @ basis
    return np.asarray(np.eye(basis.shape[1]) + projected.T @ projected)


def _lifted(design: _PricedDesign, basis: Floats, scale: Floats) -> Floats:
    """M~ in the coordinates of a basis, shape (r + B, r + B)."""
    means = design.means @ basis
    weighted = means * scale[:, None]
    return np.block([[_information(design, basis) + means.T @ weighted, weighted.T], [weighted, np.diag(scale)]])


def _largest_ratio(old: Floats, new: Floats) -> float:
    """Smallest rho >= 1 with old <= rho new."""
    factor = np.linalg.cholesky(new)
    half = solve_triangular(factor, old, lower=True)
    scaled = solve_triangular(factor, half.T, lower=True)
    return max(1.0, float(np.linalg.eigvalsh(0.5 * (scaled + scaled.T))[-1]))
