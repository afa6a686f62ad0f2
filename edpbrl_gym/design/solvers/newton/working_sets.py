"""The working sets of tokens: where to begin, which tokens come next, and what Newton's method makes of them.

A working set has what has mass and a number of the tokens that would improve the design most; or, where nearly every
token would, all of them at once, since a large support takes many rounds to reach. Of nearly equal tokens it has only
one (`copies`).

Steps on many tokens are taken in float32 first, at half the price, as long as that tells where to go.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import DTypeLike

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.problem import Deadline, DesignProblem
from edpbrl_gym.design.solvers.newton.curvature import IDLE, CurvatureModel
from edpbrl_gym.design.solvers.newton.gradients import GradientObjective
from edpbrl_gym.design.solvers.newton.objective import InformationObjective, Objective, uniform_weights
from edpbrl_gym.design.solvers.newton.scores import Oracle, Prices, PriorMetric, Scores, levels_of, price_all
from edpbrl_gym.design.solvers.newton.screening import Screening
from edpbrl_gym.design.solvers.newton.steps import centred_gradient, maximise
from edpbrl_gym.design.solvers.newton.tokens import AXES, Copies, Tokens
from edpbrl_gym.design.solvers.newton.woodbury import LARGEST_RATIO, WoodburyObjective

__all__ = ["MANY", "Effort", "Point", "WorkingSets"]


_BOUNDED = 30_000  # tokens above which bounds save more scores than they cost
MANY = 100_000  # tokens above which a pool saves more passes than it costs; copies are not looked for among more
_START = 64  # tokens to begin with
_SAMPLE = 128  # tokens whose uniform design finds the start
_WOODBURY = 0.75  # of the dimension: up to so many tokens k x k matrices cost less than d x d ones
_FACTORED = 256  # tokens beyond d up to which factors of the Hessian take less time than products with it
_LARGEST_FACTOR = 3000  # tokens whose Hessian may be factored, dozens of times, where products with it lead nowhere
_NEARLY_ALL = 0.95  # of the tokens: where more would improve the design, most of the optimum's support is among them
_LARGEST = 50_000_000  # numbers in the float64 features of a working set of all tokens: 400 MB
_LARGE_SHARE = 0.02  # of the full gap, to which many tokens are solved for: their next prices cost nothing
_SINGLE = 1e-5  # of the mean scores: to smaller gaps float32 gives no direction
_SINGLE_STEPS = 4  # in float32, after which fewer tokens may be found to do


@dataclass(frozen=True)
class Point:
    """Weights on a working set of tokens.

    Attributes:
        objective: The objective on the working set.
        weights: Non-negative, sum to 1 in every block, shape (k,).
        value: s(I).
    """

    objective: Objective
    weights: Floats
    value: float

    @property
    def support(self) -> Positions:
        """Tokens with mass."""
        return self.objective.tokens[self.weights > 0]


@dataclass(frozen=True)
class Effort:
    """How far to go on a working set.

    Attributes:
        target: Restricted gap to reach.
        goal: A gap that would end the run at the present value.
        max_steps: Newton steps at most.
        by_factors: Whether to take factors of the Hessian where products would be cheaper: only they tell nearly equal
            tokens apart.
        deadline: When to return what has been reached.
    """

    target: float
    goal: float
    max_steps: int
    by_factors: bool
    deadline: Deadline


class WorkingSets:
    """Working sets of a problem's tokens, or of some of them.

    Args:
        problem: The problem: its prior and criterion.
        tokens: The tokens.

    Attributes:
        tokens: The tokens.
        oracle: Prices all of them.
    """

    def __init__(self, problem: DesignProblem, tokens: Tokens) -> None:
        self.problem = problem
        self.tokens = tokens
        self._metric = PriorMetric(problem) if np.isfinite(problem.baseline) else None
        self._scores = Scores(tokens, self._metric)
        self._form = form = problem.criterion.form
        self._target = None if form is None else form.target(problem.dimension)  # B with V = B B'; None for D
        self._every_score: Oracle = partial(price_all, self._scores)
        self.oracle: Oracle = self._every_score
        if len(tokens) > _BOUNDED and self._metric is not None:
            self.oracle = Screening(self._scores, form)
        # in few dimensions all tokens are near to others
        apart = len(tokens) > MANY or tokens.dimension <= AXES
        self._copies = None if apart else Copies.find(tokens)
        self._count = len(tokens if self._copies is None else self._copies)

    def objective(self, tokens: Positions) -> Objective:
        """The objective on some sorted tokens, in the coordinates that cost less and keep enough digits."""
        if self._form and self._metric is not None and len(tokens) <= _WOODBURY * self.problem.dimension:
            small = WoodburyObjective(self.tokens, tokens, self._metric, self.problem)
            if small.largest <= LARGEST_RATIO:
                return small
        objective = self.by_information(tokens)
        if not objective.exact_hessian or len(tokens) > self.problem.dimension + _FACTORED:
            objective.curvature = CurvatureModel()
        return objective

    def by_information(self, tokens: Positions, dtype: DTypeLike = np.float64) -> InformationObjective:
        """The objective on some sorted tokens by the d x d information, with sums in some precision."""
        problem = self.problem
        if self._form is None:
            return GradientObjective(self.tokens, tokens, problem.prior, problem.criterion, dtype)
        return InformationObjective(self.tokens, tokens, problem.prior, self._target, dtype)

    def point(self, tokens: Positions, weights: Floats | None = None) -> Point:
        """Weights (None: uniform in every block) on sorted tokens."""
        objective = self.objective(tokens)
        if weights is None:
            weights = uniform_weights(objective.parts)
        return Point(objective, weights, objective.value(weights) + objective.offset)

    def price(self, point: Point, *, exact: bool) -> Prices:
        """Price all tokens. Scores that decide the gap are float64; with `exact` all are."""
        # with all tokens in the working set no score is left to bound
        everything = len(point.objective.tokens) == len(self.tokens)
        oracle = self._every_score if everything else self.oracle
        return oracle(point.objective, point.weights, exact=exact)

    def first(self, rng: np.random.Generator) -> Point:
        """Uniform weights on the tokens that the uniform design of a small random sample finds most informative."""
        order = [block.start + rng.permutation(block.stop - block.start) for block in self.tokens.slices]
        # without a proper prior the tokens must reach every direction
        least = 0 if self._metric is not None else 2 * self.problem.dimension
        count = -(-max(_SAMPLE, least) // len(order))
        while True:
            try:
                sample = self.point(np.sort(np.concatenate([block[:count] for block in order])))
                break
            except SingularInformationError:  # the sample does not reach every direction
                if count >= max(len(block) for block in order):
                    raise
                count *= 2
        tokens = self._best(self.price(sample, exact=False), max(_START, least))
        if any(part.stop == part.start for part in self.tokens.parts(tokens)):
            return sample
        try:
            best = self.point(tokens)
        except SingularInformationError:  # the best tokens alone need not reach every direction
            return sample
        return best if best.value > sample.value else sample

    def advanced(
        self,
        point: Point,
        prices: Prices,
        *,
        budget: int,
        effort: Effort,
        observe: Callable[[Point], object],
    ) -> tuple[Point, float]:
        """A better point on the next working set, with ``budget`` more tokens, and the size of the last step there.

        ``observe`` is called with the point after every step; a true return value ends the steps.
        """
        objective, weights = self._next(point, prices, budget)
        if effort.by_factors:
            _take_factors(objective)
        if objective.curvature is not None:
            effort = replace(effort, target=max(_LARGE_SHARE * prices.gap, 0.5 * effort.goal))
            rough = self._in_float32(point, prices.gap, objective, weights, effort)
            if rough is not None:
                if observe(rough):
                    return rough, 1.0
                objective, weights = rough.objective, rough.weights
            if len(objective.tokens) == len(self.tokens):
                # the next prices cost nothing, and may tell that fewer tokens do
                effort = replace(effort, max_steps=1)

        def at(weights: Floats, value: float) -> Point:
            return Point(objective, weights, value + objective.offset)

        weights, value, step = maximise(
            objective,
            weights,
            target=effort.target,
            max_steps=effort.max_steps,
            deadline=effort.deadline,
            observe=lambda weights, value: observe(at(weights, value)),
        )
        return at(weights, value), step

    def _in_float32(
        self, point: Point, gap: float, objective: Objective, weights: Floats, effort: Effort
    ) -> Point | None:
        """What steps with sums in float32 lead to, on the tokens that matter; None if they find nothing better."""
        levels = levels_of(point.objective, point.weights, point.objective.gradient(point.weights))
        enough = _SINGLE * float(levels.sum())
        if gap <= enough:
            return None
        single = self.by_information(objective.tokens, np.float32)
        single.curvature = objective.curvature
        assert single.curvature is not None
        steps = itertools.count(1)

        def needed(weights: Floats) -> Positions:
            gradient = centred_gradient(single.gradient(weights), weights, single.parts)
            return np.flatnonzero((weights > 0) | (gradient > 0))

        target = effort.target
        try:
            if len(objective.tokens) == len(self.tokens):
                target = effort.goal
                even = uniform_weights(single.parts)
                if objective is not point.objective and single.value(even) > point.value:
                    weights = even
            rough, _, _ = maximise(
                single,
                weights,
                target=max(target, enough),
                max_steps=effort.max_steps,
                deadline=effort.deadline,
                observe=lambda weights, _: next(steps) >= _SINGLE_STEPS and len(needed(weights)) <= IDLE * len(weights),
            )
            kept = needed(rough)
        except SingularInformationError:
            return None
        if len(kept) <= IDLE * len(rough):
            objective, rough = self.objective(objective.tokens[kept]), rough[kept]
            if objective.curvature is not None:
                objective.curvature = CurvatureModel(single.curvature.gaps)
        value = objective.value(rough) + objective.offset
        return Point(objective, rough, value) if value > point.value else None

    def _next(self, point: Point, prices: Prices, budget: int) -> tuple[Objective, Floats]:
        """The next working set, and its first weights: never a worse design than the point."""
        mass = point.weights[point.weights > 0]
        prices = self._one_of_each(prices)
        if self._copies is None:
            return self._chosen(point, prices, budget, point.support, mass)
        support, moved = self._copies.moved(point.support, mass, prices.tokens)
        if np.array_equal(support, point.support):
            return self._chosen(point, prices, budget, support, mass)
        objective, weights = self._chosen(point, prices, budget, support, moved)
        try:
            if objective.value(weights) + objective.offset >= point.value:
                return objective, weights
        except SingularInformationError:  # only without a proper prior
            pass
        objective, weights = self._chosen(point, prices, budget, point.support, mass)
        _take_factors(objective)  # several copies of a group have mass: products hardly tell them apart
        return objective, weights

    def _chosen(
        self, point: Point, prices: Prices, budget: int, support: Positions, mass: Floats
    ) -> tuple[Objective, Floats]:
        """The tokens of a support and those to add, with the support's mass."""
        last = point.objective.tokens
        whole = len(last) == self._count  # every token, or one of every group
        if not whole and self._takes_all(prices):
            tokens = np.union1d(support, prices.tokens)
            tokens = np.arange(self._count) if self._copies is None else self._copies.filled(tokens)
        else:
            tokens = np.union1d(support, prices.tokens if whole else self._best(prices, budget))
            if (
                len(tokens) > IDLE * len(last)
                and (whole or point.objective.curvature is not None)
                and np.isin(tokens, last, assume_unique=True).all()
            ):
                tokens = last  # with its curvature
        objective = point.objective if tokens is last else self.objective(tokens)
        weights = np.zeros(len(tokens))
        weights[np.searchsorted(tokens, support)] = mass
        return objective, weights

    def _takes_all(self, prices: Prices) -> bool:
        """Whether the next working set has all tokens.

        An optimal design needs no more tokens than a second moment, a mean and a mass for each block have numbers
        (Caratheodory): of more tokens most have no mass, and their Hessian is too singular for products with it.
        """
        dimension = self.problem.dimension
        sufficient = dimension * (dimension + 1) // 2 + len(self.tokens.scale) * (dimension + 1)
        fits = self._count <= sufficient and self._count * dimension <= _LARGEST
        return fits and len(prices.tokens) > _NEARLY_ALL * self._count

    def _best(self, prices: Prices, budget: int) -> Positions:
        """The tokens with the largest excess, `budget` in all, and the best of every block; sorted."""
        prices = self._one_of_each(prices)
        if len(prices.tokens) <= budget:
            return prices.tokens
        best = np.argpartition(-prices.excess, budget - 1)[:budget]
        tops = [
            part.start + int(np.argmax(prices.excess[part]))
            for part in self.tokens.parts(prices.tokens)
            if part.stop > part.start
        ]
        return np.unique(prices.tokens[np.concatenate([best, tops])])

    def _one_of_each(self, prices: Prices) -> Prices:
        """The best token of each group of copies."""
        if self._copies is None:
            return prices
        best = self._copies.best(prices.tokens, prices.excess)
        return replace(prices, tokens=prices.tokens[best], excess=prices.excess[best])


def _take_factors(objective: Objective) -> None:
    """Take factors of the Hessian in place of products with it, where they are not too large."""
    if objective.exact_hessian and len(objective.tokens) <= _LARGEST_FACTOR:
        objective.curvature = None
