"""Working-set Newton for prompt problems: a few hundred tokens carry the optimum, so solve for those and check all.

Each iteration of the loop (`newton.working_set`) prices every token (`pricing`, `screening`), adds those that would
improve the design most, deletes those without mass, and solves the restricted problem by Newton's method with a
quadratic program over the simplices in every step (`newton.master`, `newton.simplex_qp`).

The objective is concave in the weights once the mean is lifted away (`space`), so Newton's method converges
quadratically on the working set.

Scores are computed in float32 on centred features; those that decide the gap are computed again in float64, at exactly
the returned weights. Where float32 hides what to add, the solver goes on with all scores in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.certificate import assemble
from edpbrl_gym.design.criteria import ACriterion, SingularInformationError, VCriterion
from edpbrl_gym.design.deadline import Deadline, WorkLimit
from edpbrl_gym.design.diagnostics import PriorBalance
from edpbrl_gym.design.metric import PriorMetric
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, check_occupancy
from edpbrl_gym.design.solvers.newton.master import centred_gradient, improve, uniform_weights
from edpbrl_gym.design.solvers.newton.quasi_newton import IDLE
from edpbrl_gym.design.solvers.newton.tokens.backend import ArrayBackend
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.central_path import solve_on_central_path
from edpbrl_gym.design.solvers.newton.tokens.certificate import certified_gap
from edpbrl_gym.design.solvers.newton.tokens.choice import TokenPoint, WorkingSets
from edpbrl_gym.design.solvers.newton.tokens.copies import Copies
from edpbrl_gym.design.solvers.newton.tokens.costs import bounds_pay
from edpbrl_gym.design.solvers.newton.tokens.feature_space import FeatureSpace
from edpbrl_gym.design.solvers.newton.tokens.layout import PromptLayout
from edpbrl_gym.design.solvers.newton.tokens.pricing import FullPricing, Pricing, TokenPrices, levels_of
from edpbrl_gym.design.solvers.newton.tokens.screening import ScreenedPricing
from edpbrl_gym.design.solvers.newton.tokens.space import Space
from edpbrl_gym.design.solvers.newton.tokens.token_space import TokenSpace
from edpbrl_gym.design.solvers.newton.working_set import Engine, Run, iterate

__all__ = ["TokenPoint", "TokenSolver"]


_START = 64  # tokens
_SAMPLE = 128  # tokens whose uniform design finds the start
POOL = 20_000  # tokens
POOLED = 5 * POOL  # tokens above which a pool saves more passes over all tokens than its own solution costs
_POOL_TOLERANCE = 1e-3
_POOL_ITERATIONS = 20
_LARGEST_RATIO = 1e6  # data to prior, up to which inner products in the metric of the prior keep enough digits
_STUCK = 3  # iterations on one working set that do not halve the gap
_SINGLE = 1e-5  # of the mean scores: to smaller gaps float32 gives no direction
_SINGLE_STEPS = 4  # after which fewer tokens may be found to do
_SINGLE_ROUNDING = 1e-6  # of their values
_LARGE_SHARE = 0.02
_CENTRAL_SHARE = 0.9  # of the goal, which is computed with other rounding


class TokenSolver(Engine[TokenPoint, TokenPrices]):
    """Working-set Newton on the tokens of some blocks.

    Args:
        problem: The problem: its prior, criterion and stopping rule.
        layout: The blocks of the problem.
        blocks: Their tokens, or some of them.
        metric: Inverse of the prior precision; None if that is singular.
    """

    def __init__(
        self, problem: DesignProblem, layout: PromptLayout, blocks: TokenBlocks, metric: PriorMetric | None
    ) -> None:
        super().__init__(problem)
        self.layout = layout
        self.blocks = blocks
        self.metric = metric
        criterion = problem.criterion
        self.pricing: Pricing = FullPricing(blocks)
        if metric is not None and bounds_pay(len(blocks), problem.dimension):
            self.pricing = ScreenedPricing(blocks, metric, criterion.name)
        self._target: Floats | None = None
        if isinstance(criterion, (ACriterion, VCriterion)):
            self._target = criterion.target_factor(problem.dimension)
        self._isotropic_a = metric is not None and metric.isotropic is not None and isinstance(criterion, ACriterion)
        self._work: WorkLimit | None = None  # of working sets, after which the central path is taken
        self._on_path = False  # whether it has been
        self.working_sets = WorkingSets(
            blocks,
            None if len(blocks) > POOLED else Copies.find(blocks),
            self.space,
            sufficient=self._sufficient,
            grams=1 if self._target is None else 2,
        )

    @classmethod
    def of(cls, problem: DesignProblem, backend: ArrayBackend) -> TokenSolver:
        """The solver on all tokens of a problem."""
        layout = PromptLayout(problem)
        metric = PriorMetric(problem) if np.isfinite(problem.baseline) else None
        return cls(problem, layout, TokenBlocks(problem.features, layout.rows, layout.scale, metric, backend), metric)

    @property
    def _sufficient(self) -> int:
        """Tokens that suffice for an optimal design (Caratheodory): second moment, mean and mass of each block."""
        dimension = self.problem.dimension
        return dimension * (dimension + 1) // 2 + len(self.blocks.scale) * (dimension + 1)

    def space(self, tokens: Positions) -> Space:
        """The objective on some tokens, in the coordinates that cost less and keep enough digits."""
        if self.metric is not None and len(tokens) <= 0.75 * self.problem.dimension:
            space = TokenSpace(
                self.blocks,
                tokens,
                self.metric,
                self.problem.prior,
                self._target,
                baseline=self.problem.baseline,
                isotropic_a=self._isotropic_a,
            )
            if space.largest <= _LARGEST_RATIO:
                return space
        return self._feature_space(tokens)

    def _feature_space(self, tokens: Positions) -> FeatureSpace:
        return FeatureSpace(self.blocks, tokens, self.problem.prior, self._target)

    def point(self, tokens: Positions, weights: Floats | None = None) -> TokenPoint:
        """Weights (None: uniform in every block) on sorted tokens."""
        space = self.space(tokens)
        if weights is None:
            weights = uniform_weights(space.parts)
        return TokenPoint(space, weights, space.value(weights) + space.offset)

    def first(self, start: ArrayLike | None, seed: int, deadline: Deadline) -> tuple[TokenPoint, int]:
        """The start; else uniform weights on the tokens that the uniform design of a small sample finds best.

        Of many tokens, nearly optimal weights of a random pool of them.
        """
        if start is not None:
            occupancy = np.array(start, dtype=np.float64)
            check_occupancy(self.problem, occupancy)
            weights = self.layout.weights(occupancy)
            tokens = np.flatnonzero(weights)
            return self.point(tokens, weights[tokens]), 0
        rng = np.random.default_rng(seed)
        if len(self.blocks) > POOLED:
            size = POOL
            while True:
                try:
                    return self._from_pool(self.blocks.sample(size, rng), seed, deadline), 0
                except SingularInformationError:  # no proper prior, and the pool does not reach every direction
                    if size >= len(self.blocks):
                        raise
                    size *= 2
        return self._from_sample(rng), 1

    def _from_sample(self, rng: np.random.Generator) -> TokenPoint:
        """Uniform weights on the tokens that the uniform design of a small random sample finds most informative."""
        order = [block.start + rng.permutation(block.stop - block.start) for block in self.blocks.slices]
        # without a proper prior the tokens must reach every direction
        least = 0 if self.metric is not None else 2 * self.problem.dimension
        count = -(-max(_SAMPLE, least) // len(order))
        while True:
            try:
                sample = self.point(np.sort(np.concatenate([block[:count] for block in order])))
                break
            except SingularInformationError:  # the sample does not reach every direction
                if count >= max(len(block) for block in order):
                    raise
                count *= 2
        prices = self.pricing(sample.space, sample.weights, exact=False)
        tokens = self.working_sets.best(prices, max(_START, least))
        if len(np.unique(np.searchsorted(self.blocks.starts, tokens, side="right"))) < len(order):
            return sample
        try:
            best = self.point(tokens)
        except SingularInformationError:  # the best tokens alone need not reach every direction
            return sample
        return best if best.value > sample.value else sample

    def _from_pool(self, pool: Positions, seed: int, deadline: Deadline) -> TokenPoint:
        """Solve for the tokens of a pool to a tolerance that the others will move anyway."""
        small = TokenSolver(self.problem, self.layout, self.blocks.restricted(pool), self.metric)
        run = small.run_from(small._from_sample(np.random.default_rng(seed)))
        iterate(small, run, _POOL_TOLERANCE, _POOL_ITERATIONS, lambda *_: False, deadline)
        point = run.point
        return self.point(pool[point.support], point.weights[point.weights > 0])

    def price(self, point: TokenPoint, *, budget: int, exact: bool) -> TokenPrices:
        """See `Engine`; the budget limits what is added of the tokens priced here."""
        # with all tokens in the working set no score is left to bound
        pricing = FullPricing(self.blocks) if len(point.space.tokens) == len(self.blocks) else self.pricing
        return pricing(point.space, point.weights, exact=exact)

    def advanced(
        self,
        run: Run[TokenPoint],
        prices: TokenPrices,
        *,
        target: float,
        max_steps: int,
        deadline: Deadline,
        observe: Callable[[TokenPoint], object],
    ) -> tuple[TokenPoint, float]:
        """See `Engine`."""
        if self._work is None:
            self._work = WorkLimit(deadline, self.working_sets.central_path_cost)
        if self._on_path:
            return self._on_working_set(run, prices, target, max_steps, deadline, observe)
        point, step = run.point, 0.0
        if not self._work.spent and not (run.steps == 1 and self.working_sets.spreads(point)):
            point, step = self._on_working_set(run, prices, target, max_steps, self._work, observe)
            if point.value > run.point.value or not self._work.spent:
                return point, step
        if deadline.passed:
            return point, step
        self._on_path = True
        found = self._on_central_path(run, deadline, observe)
        return (point, step) if found is None else (found, 1.0)

    def _on_working_set(
        self,
        run: Run[TokenPoint],
        prices: TokenPrices,
        target: float,
        max_steps: int,
        deadline: Deadline,
        observe: Callable[[TokenPoint], object],
    ) -> tuple[TokenPoint, float]:
        """See `advanced`."""
        space, weights = self.working_sets.next(run.point, prices, run.budget)
        recent = run.history[-_STUCK:]
        stuck = space is run.point.space and len(recent) == _STUCK and prices.gap > 0.5 * recent[0].gap
        if (run.exact or stuck) and isinstance(space, FeatureSpace):
            space.factor()
        if isinstance(space, FeatureSpace) and len(space.tokens) > space.curvatures.above:
            target = max(_LARGE_SHARE * prices.gap, 0.5 * run.goal)
            space, weights, rough = self._roughly(run, prices.gap, space, weights, target, max_steps, deadline)
            if len(space.tokens) == len(self.blocks):
                max_steps = 1  # the next prices cost nothing, and may tell that fewer tokens do
            if rough is not None and observe(rough):
                return rough, 1.0

        def point(weights: Floats, value: float) -> TokenPoint:
            return TokenPoint(space, weights, value + space.offset)

        weights, value, step = improve(
            space,
            weights,
            target=target,
            max_steps=max_steps,
            deadline=deadline,
            observe=lambda weights, value: observe(point(weights, value)),
        )
        return point(weights, value), step

    def _on_central_path(
        self, run: Run[TokenPoint], deadline: Deadline, observe: Callable[[TokenPoint], object]
    ) -> TokenPoint | None:
        """All tokens on the central path, from the uniform design or, where it is better, the point; None if worse."""
        last = run.point
        space = self._feature_space(self.working_sets.all_tokens(last))
        weights = uniform_weights(space.parts)

        def point(weights: Floats, value: float) -> TokenPoint:
            return TokenPoint(space, weights, value + space.offset)

        def better(weights: Floats, value: float) -> bool:
            return value + space.offset > last.value and bool(observe(point(weights, value)))

        try:
            if space.value(weights) + space.offset < last.value:
                weights = 0.5 * weights
                weights[np.searchsorted(space.tokens, last.support)] += 0.5 * last.weights[last.weights > 0]
            weights, value = solve_on_central_path(
                space, weights, target=_CENTRAL_SHARE * run.goal, deadline=deadline, observe=better
            )
        except SingularInformationError:
            return None
        found = point(weights, value)
        return found if found.value > last.value else None

    def _roughly(
        self,
        run: Run[TokenPoint],
        gap: float,
        space: FeatureSpace,
        weights: Floats,
        target: float,
        max_steps: int,
        deadline: Deadline,
    ) -> tuple[Space, Floats, TokenPoint | None]:
        """Steps with sums in float32, at half the price, as long as they tell where to go.

        Returns:
            The working set, or what matters of it; weights there; and the same as a point if they are better.
        """
        space.curvatures.goal = run.goal
        point = run.point
        enough = _SINGLE * float(levels_of(point.space, point.weights, point.space.gradient(point.weights)).sum())
        if gap <= enough:
            return space, weights, None
        single = FeatureSpace(self.blocks, space.tokens, self.problem.prior, self._target, np.float32)
        single.curvatures = single.by_products = space.curvatures
        whole = len(space.tokens) == len(self.blocks)
        steps = itertools.count(1)

        def needed(weights: Floats) -> Positions:
            gradient = centred_gradient(single.gradient(weights), weights, single.parts)
            return np.flatnonzero((weights > 0) | (gradient > 0))

        try:
            if whole and space is not point.space:
                even = uniform_weights(space.parts)
                weights = even if single.value(even) > point.value else weights
            goal = max(run.goal, enough) if whole else max(target, enough)
            rough, _, _ = improve(
                single,
                weights,
                target=goal,
                max_steps=max_steps,
                deadline=deadline,
                observe=lambda weights, _: next(steps) >= _SINGLE_STEPS and len(needed(weights)) <= IDLE * len(weights),
                rounding=_SINGLE_ROUNDING,
            )
            kept = needed(rough)
        except SingularInformationError:
            return space, weights, None
        better: Space = space
        if len(kept) <= IDLE * len(rough):
            better, rough = self.space(space.tokens[kept]), rough[kept]
            if isinstance(better, FeatureSpace):
                better.curvatures.inherit(single.curvatures)
                better.curvatures.goal = run.goal
        value = better.value(rough) + better.offset
        if value > point.value:
            return better, rough, TokenPoint(better, rough, value)
        return space, weights, None

    def occupancy(self, point: TokenPoint) -> Floats:
        """See `Engine`."""
        return self.layout.occupancy(point.space.tokens, point.weights)

    def certified(self, run: Run[TokenPoint]) -> Design:
        """The design of a run, its gap from scores in float64."""
        point = run.point
        gap, rounding = certified_gap(
            self.problem, self.pricing, point.space, point.weights, point.value, feature_space=self._feature_space
        )
        return assemble(
            self.problem,
            self.occupancy(point),
            value=point.value,
            gap=gap,
            rounding=rounding,
            balance=_balance(self.problem, point),
            **run.report(),
        )

    def resume(self, run: Run[TokenPoint], attempt: int) -> bool:
        """Go on with all scores in float64, once."""
        single, run.exact = not run.exact, True
        return single


def _balance(problem: DesignProblem, point: TokenPoint) -> PriorBalance:
    """`prior_balance` from what is known on the support."""
    learned, trace = point.space.learned(point.weights), point.space.trace(point.weights)
    return PriorBalance.of(problem, learned=learned, trace=trace)
