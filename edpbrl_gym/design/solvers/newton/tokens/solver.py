"""Working-set Newton for prompt problems: a few hundred tokens carry the optimum, so solve for those and check all.

Each iteration prices every token (`newton.pricing`, `screening`), which certifies the current weights, adds the tokens
that would improve the design most, deletes those without mass, and solves the restricted problem by Newton's method
with a quadratic program over the simplices in every step (`newton.master`, `newton.simplex_qp`).

The objective is concave in the weights once the mean is lifted away (`spaces`), so Newton's method converges
quadratically on the working set; the objective rises in every iteration, so the working sets never cycle.

Scores are computed in float32 on centred features; those that decide the gap are computed again in float64, at exactly
the returned weights. Where float32 hides what to add, the solver goes on with all scores in float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym.design.criteria import ACriterion, SingularInformationError, VCriterion
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.diagnostics import PriorBalance
from edpbrl_gym.design.metric import PriorMetric
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, IterationRecord, assemble, check_occupancy
from edpbrl_gym.design.rounding import Rounding
from edpbrl_gym.design.solvers.newton.master import improve
from edpbrl_gym.design.solvers.newton.pricing import FullPricing, Prices, Pricing
from edpbrl_gym.design.solvers.newton.tokens.backend import ArrayBackend
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.certificate import certified_gap
from edpbrl_gym.design.solvers.newton.tokens.layout import PromptLayout
from edpbrl_gym.design.solvers.newton.tokens.screening import ScreenedPricing
from edpbrl_gym.design.solvers.newton.tokens.spaces import FeatureSpace, Space, TokenSpace
from edpbrl_gym.design.solvers.state import NewtonState

__all__ = ["TokenSolver", "solve_tokens"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_START = 64  # tokens
_SAMPLE = 128  # tokens whose uniform design finds the start
SCREENED = 40_000  # tokens above which bounds save more than they cost
POOL = 20_000
_POOL_TOLERANCE = 1e-3
_POOL_ITERATIONS = 20
_LARGEST_RATIO = 1e6  # data to prior, up to which inner products in the metric of the prior keep enough digits
_RESTRICTED_SHARE = 0.1  # the restricted problem is solved to this share of the full gap
_MASTER_STEPS = 10
_DENSE_SHARE = 0.4  # of all tokens: if so many improve the design, and it may need all of them, take them all
_DENSE_AT_ONCE = 0.9  # a share that needs no patience
_DENSE_PATIENCE = 3  # the first small working sets leave many tokens better off, whatever the support
_DENSE_LIMIT = 50_000_000  # numbers in the features of so many tokens, in float64
_SHRINK = 0.7  # of all tokens: keep them all while at least so many have mass or would improve the design
_PATIENCE = 3  # iterations without progress before giving up


@dataclass
class TokenRun:
    """The solver's memory: the point is replaced only by a better finished one, so an interrupt finds it whole."""

    space: Space
    weights: FloatArray
    value: float
    history: list[IterationRecord] = field(default_factory=list)
    prices: Prices | None = None  # of the current point
    steps: int = 0
    oracle_calls: int = 0
    status: str = "iteration_limit"
    exact: bool = False  # all scores in float64
    slow: int = 0  # iterations in a row without progress
    budget: int = 0  # tokens to add

    @property
    def support(self) -> IntArray:
        """Tokens with mass."""
        return self.space.tokens[self.weights > 0]


class TokenSolver:
    """Working-set Newton on the tokens of some blocks.

    Args:
        problem: The problem: its prior, criterion and stopping rule.
        blocks: The tokens.
        metric: Inverse of the prior precision; None if that is singular.
    """

    def __init__(self, problem: DesignProblem, blocks: TokenBlocks, metric: PriorMetric | None) -> None:
        self.problem = problem
        self.blocks = blocks
        self.metric = metric
        criterion = problem.criterion
        self.pricing: Pricing = FullPricing(blocks)
        if metric is not None and len(blocks) > SCREENED:
            self.pricing = ScreenedPricing(blocks, metric, criterion.name)
        self._target: FloatArray | None = None
        if isinstance(criterion, (ACriterion, VCriterion)):
            self._target = criterion.target_factor(problem.dimension)
        self._isotropic_a = metric is not None and metric.isotropic is not None and isinstance(criterion, ACriterion)

    @property
    def _largest_support(self) -> int:
        """Tokens that suffice for an optimal design (Caratheodory): second moment, mean and mass of each block."""
        dimension = self.problem.dimension
        return dimension * (dimension + 1) // 2 + len(self.blocks.scale) * (dimension + 1)

    def space(self, tokens: IntArray) -> Space:
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

    def _feature_space(self, tokens: IntArray) -> FeatureSpace:
        return FeatureSpace(self.blocks, tokens, self.problem.prior, self._target)

    def certified(self, run: TokenRun) -> tuple[float, Rounding]:
        """The gap of a run from scores in float64, and what rounding may hide of it."""
        return certified_gap(
            self.problem, self.pricing, run.space, run.weights, run.value, feature_space=self._feature_space
        )

    def run_at(self, tokens: IntArray, weights: FloatArray | None = None) -> TokenRun:
        """A run that begins with these weights (None: uniform in every block) on sorted tokens."""
        space = self.space(tokens)
        if weights is None:
            weights = np.concatenate(
                [np.full(part.stop - part.start, 1.0 / (part.stop - part.start)) for part in space.parts]
            )
        run = TokenRun(space, weights, space.value(weights) + space.offset)
        run.budget = max(64, self.problem.dimension // 4)
        return run

    def first(self, seed: int, deadline: Deadline = NEVER) -> TokenRun:
        """Where to begin.

        Of many tokens, nearly optimal weights of a random pool of them; else uniform weights on the tokens that the
        uniform design of a small random sample finds most informative.
        """
        rng = np.random.default_rng(seed)
        if len(self.blocks) > SCREENED:
            size = POOL
            while True:
                try:
                    return self._from_pool(self.blocks.sample(size, rng), seed, deadline)
                except SingularInformationError:  # no proper prior, and the pool does not reach every direction
                    if size >= len(self.blocks):
                        raise
                    size *= 2
        return self._from_sample(rng)

    def _from_sample(self, rng: np.random.Generator) -> TokenRun:
        """Uniform weights on the tokens that the uniform design of a small random sample finds most informative."""
        order = [own.start + rng.permutation(own.stop - own.start) for own in self.blocks.slices]
        # without a proper prior the tokens must reach every direction
        least = 0 if self.metric is not None else 2 * self.problem.dimension
        count = -(-max(_SAMPLE, least) // len(order))
        while True:
            try:
                sample = self.run_at(np.sort(np.concatenate([own[:count] for own in order])))
                break
            except SingularInformationError:  # the sample does not reach every direction
                if count >= max(len(own) for own in order):
                    raise
                count *= 2
        prices = self.pricing(sample.space, sample.weights, exact=False)
        sample.oracle_calls = 1
        tokens = self._added(prices, max(_START, least))
        if len(np.unique(np.searchsorted(self.blocks.starts, tokens, side="right"))) < len(order):
            return sample
        try:
            run = self.run_at(tokens)
        except SingularInformationError:  # the best tokens alone need not reach every direction
            return sample
        run.oracle_calls = 1
        return run if run.value > sample.value else sample

    def _from_pool(self, pool: IntArray, seed: int, deadline: Deadline) -> TokenRun:
        """Solve for the tokens of a pool to a tolerance that the others will move anyway."""
        small = TokenSolver(self.problem, self.blocks.restricted(pool), self.metric)
        run = small._from_sample(np.random.default_rng(seed))
        small.iterate(run, _POOL_TOLERANCE, _POOL_ITERATIONS, lambda *_: False, deadline)
        return self.run_at(pool[run.support], run.weights[run.weights > 0])

    def iterate(
        self,
        run: TokenRun,
        tolerance: float,
        max_iterations: int,
        observe: Callable[[TokenRun, float], object],
        deadline: Deadline = NEVER,
    ) -> None:
        """Run the iterations; `run` is valid whenever an exception leaves.

        Args:
            run: Where to begin.
            tolerance: As in `newton`.
            max_iterations: As in `newton`.
            observe: Called with the run and its gap in every iteration that goes on; a true return value stops.
            deadline: When to leave, with status "time_limit" and a point that has not been priced.
        """
        while True:
            if deadline.passed:
                run.status = "time_limit"
                return
            started = time.perf_counter()
            run.prices = self.pricing(run.space, run.weights, exact=run.exact)
            run.oracle_calls += 1
            gap = run.prices.gap
            self._note_progress(run, gap)
            if self.problem.converged(gap, run.value, tolerance):
                run.status = "converged"
            elif run.steps >= max_iterations:
                run.status = "iteration_limit"
            elif run.slow >= _PATIENCE and run.exact:
                run.status = "stalled"
            elif observe(run, gap):
                run.status = "interrupted"
            else:
                if run.slow >= _PATIENCE:  # perhaps float32 hides what to add
                    run.exact, run.slow = True, 0
                value = run.value
                step = self._advance(run, run.prices, deadline)
                run.history.append(IterationRecord(run.steps, value, gap, step, time.perf_counter() - started))
                run.steps += 1
                continue
            run.history.append(IterationRecord(run.steps, run.value, gap, 0.0, time.perf_counter() - started))
            return

    def _note_progress(self, run: TokenRun, gap: float) -> None:
        """Count iterations that neither raised the objective beyond rounding nor lowered the gap; adapt the budget."""
        if not run.history:
            return
        last = run.history[-1]
        rounding = 8 * float(np.finfo(np.float64).eps) * max(1.0, abs(run.value))
        smallest = min(record.gap for record in run.history)
        run.slow = run.slow + 1 if run.value - last.value <= rounding and gap > 0.5 * smallest else 0
        if gap > 0.5 * last.gap:
            run.budget *= 2

    def _advance(self, run: TokenRun, prices: Prices, deadline: Deadline) -> float:
        """Choose the next working set and solve on it; returns the size of the last Newton step."""
        space, weights = self._next(run, prices)
        weights, value, step = improve(
            space, weights, target=_RESTRICTED_SHARE * prices.gap, max_steps=_MASTER_STEPS, deadline=deadline
        )
        run.space, run.weights, run.value = space, weights, value + space.offset
        return step

    def _next(self, run: TokenRun, prices: Prices) -> tuple[Space, FloatArray]:
        """The next working set and the weights to begin with there."""
        support, count = run.support, len(self.blocks)
        fits = count <= self._largest_support and count * self.problem.dimension <= _DENSE_LIMIT
        share = len(prices.tokens) / count
        dense = fits and share > (_DENSE_SHARE if run.steps >= _DENSE_PATIENCE else _DENSE_AT_ONCE)
        if len(run.space.tokens) == count:  # a dense support
            tokens = np.union1d(support, prices.tokens)
            if len(tokens) > _SHRINK * count:
                return run.space, run.weights
            dense = False
        elif dense:
            tokens = np.arange(count)
        else:
            tokens = np.union1d(support, self._added(prices, run.budget))
        space = self.space(tokens)
        weights = np.zeros(len(tokens))
        weights[np.searchsorted(tokens, support)] = run.weights[run.weights > 0]
        return space, _more_even(space, weights) if dense else weights

    def _added(self, prices: Prices, budget: int) -> IntArray:
        """The tokens with the largest excess, `budget` in all, and the best of every block; sorted."""
        if len(prices.tokens) <= budget:
            return prices.tokens
        best = np.argpartition(-prices.excess, budget - 1)[:budget]
        tops = [
            part.start + int(np.argmax(prices.excess[part]))
            for part in self.blocks.parts(prices.tokens)
            if part.stop > part.start
        ]
        return np.unique(prices.tokens[np.concatenate([best, tops])])


def solve_tokens(
    problem: DesignProblem,
    *,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[NewtonState], object] | None,
    start: ArrayLike | None,
    seed: int,
    backend: ArrayBackend | None = None,
    deadline: Deadline = NEVER,
) -> Design:
    """Solve the design problem of a prompt MDP by working-set Newton; arguments and result as in `newton`."""
    begun = time.perf_counter()
    layout = PromptLayout(problem)
    metric = PriorMetric(problem) if np.isfinite(problem.baseline) else None
    solver = TokenSolver(problem, TokenBlocks(problem.features, layout.rows, layout.scale, metric, backend), metric)
    if start is None:
        run = solver.first(seed, deadline)
    else:
        occupancy = np.array(start, dtype=np.float64)
        check_occupancy(problem, occupancy)
        weights = layout.weights(occupancy)
        tokens = np.flatnonzero(weights)
        run = solver.run_at(tokens, weights[tokens])

    def observe(run: TokenRun, gap: float) -> object:
        return callback is not None and callback(_state(problem, layout, run, gap, time.perf_counter() - begun))

    aim = tolerance
    try:
        while True:
            solver.iterate(run, aim, max_iterations, observe, deadline)
            gap, rounding = solver.certified(run)
            if run.status == "time_limit":
                _close(problem, run, gap + rounding.gap, tolerance)
                break
            if run.status != "converged" or problem.converged(gap + rounding.gap, run.value, tolerance):
                break
            if run.exact:
                run.status = "stalled"
                break
            run.exact = True
            aim = tolerance / 4.0  # the rest is for rounding
    except KeyboardInterrupt:
        if not run.history:
            raise
        run.status = "interrupted"
        gap, rounding = solver.certified(run)
    return assemble(
        problem,
        layout.occupancy(run.space.tokens, run.weights),
        value=run.value,
        gap=gap,
        rounding=rounding,
        balance=_balance(problem, run),
        status=run.status,
        solver="newton",
        iterations=run.steps,
        oracle_calls=run.oracle_calls,
        seconds=time.perf_counter() - begun,
        history=tuple(run.history),
    )


def _close(problem: DesignProblem, run: TokenRun, gap: float, tolerance: float) -> None:
    """Record the certificate of a run that was cut short; its last steps may have been the last that it needed."""
    run.history.append(IterationRecord(run.steps, run.value, gap, 0.0, 0.0))
    if problem.converged(gap, run.value, tolerance):
        run.status = "converged"


def _more_even(space: Space, weights: FloatArray) -> FloatArray:
    """The better of some weights and uniform ones."""
    sizes = [part.stop - part.start for part in space.parts]
    even = np.repeat(1.0 / np.array(sizes), sizes)
    return even if space.value(even) > space.value(weights) else weights


def _balance(problem: DesignProblem, run: TokenRun) -> PriorBalance:
    """`prior_balance` from what is known on the support."""
    roots = run.space.roots(run.weights)
    learned = run.space.learned(run.weights)
    return PriorBalance.of(problem, learned=learned, trace=float(np.vdot(roots, roots)))


def _state(problem: DesignProblem, layout: PromptLayout, run: TokenRun, gap: float, seconds: float) -> NewtonState:
    return NewtonState(
        iteration=run.steps,
        value=run.value,
        gap=gap,
        relative_gap=problem.relative_gap(gap, run.value),
        seconds=seconds,
        occupancy=layout.occupancy(run.space.tokens, run.weights),
        upper_bound=run.value + gap,
        support=len(run.support),
        oracle_calls=run.oracle_calls,
    )
