"""Improve one policy of an exact design: column generation with a Newton master on a concave problem.

A policy is a convex combination of columns: single tokens (`TokenPricing`, one simplex a step) where transitions do not
depend on the action, paths or deterministic policies elsewhere. Each round scores every row at every step, lets the
linear oracle find the best columns, which bounds what any policy could gain in this block, adds them to those with
weight, and moves the weights by Newton's method.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.criteria import ACriterion, DCriterion, VCriterion
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.exact.block import BlockSpace, CentredFeatures, Local, Moments, Surroundings
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.solvers.newton.columns.columns import Column, ColumnOracle, ColumnSet
from edpbrl_gym.design.solvers.newton.columns.costs import paths_pay
from edpbrl_gym.design.solvers.newton.columns.paths import PathPricing
from edpbrl_gym.design.solvers.newton.columns.policies import PolicyPricing
from edpbrl_gym.design.solvers.newton.master import improve
from edpbrl_gym.mdp import PromptMDP

__all__ = ["Ascent", "PolicyPoint", "TokenPricing"]


_SMALLEST_BUDGET = 64  # columns to add at once
# the others will move anyway: little is gained by solving a block to the end
_RESTRICTED_SHARE = 0.3  # the restricted problem is solved to this share of the full gap
_MASTER_STEPS = 2
_POLICY_ROUNDS = 8  # where each round finds one policy only; tokens and paths come many at once
_POLICY_SHARE = 0.3  # of the block's gap to go on to
_ACCURACY = 1e-3  # of a design whose costs by paths and by policies are in the proportion that they are in here


class TokenPricing:
    """Prices the tokens of a prompt MDP; each step is a block.

    Args:
        mdp: The MDP.
    """

    def __init__(self, mdp: PromptMDP) -> None:
        self._mdp = mdp

    def price(self, scores: Floats, levels: Floats, budget: int) -> tuple[Floats, list[Column]]:
        """Find the best tokens.

        Args:
            scores: Reward of each token at each step, shape (H, M).
            levels: Only tokens with a reward above this are returned, the best one of each step always; shape (H,).
            budget: Tokens at most for all steps together, and the best one of each.

        Returns:
            The largest reward of each step, shape (H,), and columns.
        """
        best = np.empty(self._mdp.horizon)
        tokens_by_step, excess = [], []
        for step in range(self._mdp.horizon):
            pairs = self._mdp.step_pairs(step)
            rewards = scores[step, pairs]
            best[step] = rewards.max()
            above = np.union1d(np.flatnonzero(rewards > levels[step]), [int(np.argmax(rewards))])
            tokens_by_step.append(step * self._mdp.num_pairs + pairs.start + above)
            over = rewards[above] - levels[step]
            over[np.argmax(over)] = np.inf
            excess.append(over)
        tokens, surplus = np.concatenate(tokens_by_step), np.concatenate(excess)
        limit = budget + self._mdp.horizon
        if len(tokens) > limit:
            tokens = tokens[np.argpartition(-surplus, limit - 1)[:limit]]
        return best, [self._column(int(token)) for token in tokens]

    def split(self, occupancy: Floats) -> list[Column]:
        """A column for every token with mass."""
        return [self._column(int(token)) for token in np.flatnonzero(occupancy)]

    def _column(self, token: int) -> Column:
        return Column(np.array([token]), np.ones(1), token // self._mdp.num_pairs)


@dataclass(frozen=True)
class PolicyPoint:
    """One policy as weights on columns.

    Attributes:
        columns: The columns.
        weights: Non-negative, sum to 1 in every block, shape (k,).
        moments: Its moments.
    """

    columns: ColumnSet
    weights: Floats
    moments: Moments

    @property
    def support(self) -> list[Column]:
        """Columns with weight."""
        return [self.columns.columns[number] for number in np.flatnonzero(self.weights)]

    @cached_property
    def occupancy(self) -> Floats:
        """Shape (H, M)."""
        return self.columns.occupancy(self.weights)


class Ascent:
    """The exact objective of K policies and its blocks.

    Args:
        problem: The problem.
        deadline: When `improved` returns what it has reached.

    Raises:
        ValueError: If the criterion is not A, V or D.

    Attributes:
        features: The rows, centred.
        target: B with V = B B' for A and V, shape (d, r); None for D.
        oracle_calls: Calls of the linear oracle so far.
    """

    def __init__(self, problem: DesignProblem, deadline: Deadline = NEVER) -> None:
        self.problem = problem
        self.deadline = deadline
        self.features = CentredFeatures(problem.features)
        mdp = problem.mdp
        self._tokens = isinstance(mdp, PromptMDP)
        self._pricing = _pricing_of(problem)
        self._rounds = _POLICY_ROUNDS if isinstance(self._pricing, PolicyPricing) else 1
        self.oracle_calls = 0
        self._budget = max(_SMALLEST_BUDGET, problem.dimension // 4)
        criterion = problem.criterion
        self.target: Floats | None = None
        if isinstance(criterion, (ACriterion, VCriterion)):
            self.target = criterion.target_factor(problem.dimension)
        elif not isinstance(criterion, DCriterion):
            raise ValueError(f"Expected the criterion A, V or D, got {criterion.name!r}.")

    def point(self, occupancy: Floats) -> PolicyPoint:
        """A policy from its occupancy, shape (H, M)."""
        columns = self.column_set(self._pricing.split(occupancy))
        weights = np.ones(len(columns))
        if self._tokens:  # a column of mass 1 for each token; elsewhere the columns carry the masses
            weights = occupancy.ravel()[[column.indices[0] for column in columns.columns]]
            for block in columns.slices:
                weights[block] /= weights[block].sum()
        return self._point(columns, weights)

    def information(self, points: list[PolicyPoint]) -> Floats:
        """Exact expected information of all policies, prior included, shape (d, d)."""
        return self._around(points, 0).information(points[0].moments)

    def value(self, points: list[PolicyPoint]) -> float:
        """s(I); SingularInformationError where it is infinite."""
        return Local.at(self.information(points), self.target).value

    def gap(self, points: list[PolicyPoint], policy: int) -> float:
        """Bound on what changing this policy alone can gain: max over all policies of <gradient, d - d_q>."""
        around = self._around(points, policy)
        return self._priced(points[policy], around, 0)[0]

    def improved(self, points: list[PolicyPoint], policy: int, *, target: float) -> tuple[list[PolicyPoint], float]:
        """Raise the objective in one policy.

        Args:
            points: All policies; not changed.
            policy: Which one to improve.
            target: Stop at a block gap of this.

        Returns:
            All policies, and the block's gap before. The objective has not fallen.
        """
        around = self._around(points, policy)
        point, first = points[policy], np.inf
        for number in range(self._rounds):
            gap, additions = self._priced(point, around, self._budget)
            first = gap if number == 0 else first
            if self.deadline.passed or gap <= max(target, _POLICY_SHARE * first if number else 0.0):
                break
            columns = self.column_set([*point.support, *additions])
            space = BlockSpace(self.features, around, columns, self.target)
            before = columns.weights_of(point.columns, point.weights)
            weights, _, _ = improve(
                space,
                before,
                target=max(_RESTRICTED_SHARE * gap, 0.5 * target),
                max_steps=_MASTER_STEPS,
                deadline=self.deadline,
            )
            if space.value(weights) <= space.value(before):  # rounding allows no more
                break
            point = self._point(columns, weights)
        return [*points[:policy], point, *points[policy + 1 :]], first

    def _priced(self, point: PolicyPoint, around: Surroundings, budget: int) -> tuple[float, list[Column]]:
        """Gap of the block and the columns that would improve it most."""
        self.oracle_calls += 1
        local = Local.at(around.information(point.moments), self.target)
        scores = around.scale * self.features.scores(local.score_factor(), around.centres)
        levels = point.columns.levels(point.weights, scores)
        best, columns = self._pricing.price(scores, levels, budget)
        return float(np.maximum(best - levels, 0.0).sum()), columns

    def _around(self, points: list[PolicyPoint], policy: int) -> Surroundings:
        moments = [point.moments for number, point in enumerate(points) if number != policy]
        return Surroundings.of(self.problem.prior, moments, self.problem.episodes)

    def column_set(self, columns: list[Column]) -> ColumnSet:
        """A working set; single tokens in the order of the nodes, so that the incidence is the identity."""
        if self._tokens:
            columns = sorted(columns, key=lambda column: int(column.indices[0]))
        return ColumnSet(self.problem.mdp, columns)

    def _point(self, columns: ColumnSet, weights: Floats) -> PolicyPoint:
        return PolicyPoint(columns, weights, self.features.moments(columns, weights, self.problem.horizon))


def _pricing_of(problem: DesignProblem) -> ColumnOracle:
    mdp = problem.mdp
    if isinstance(mdp, PromptMDP):
        return TokenPricing(mdp)
    if PathPricing.applies(mdp) and paths_pay(problem, _ACCURACY):
        return PathPricing(mdp)
    return PolicyPricing(mdp)
