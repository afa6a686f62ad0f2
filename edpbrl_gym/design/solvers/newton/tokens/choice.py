"""Which tokens the next working set has, and the weights to begin with there.

Either what has mass and a number of the tokens that would improve the design most; or, where that would take many
rounds to reach a large support, all tokens at once (`Rounds`). Of nearly equal tokens only one (`copies`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.solvers.newton.master import uniform_weights
from edpbrl_gym.design.solvers.newton.quasi_newton import IDLE
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.copies import Copies
from edpbrl_gym.design.solvers.newton.tokens.costs import Rounds, central_path_cost, products_above, round_cost
from edpbrl_gym.design.solvers.newton.tokens.feature_space import FeatureSpace
from edpbrl_gym.design.solvers.newton.tokens.pricing import TokenPrices
from edpbrl_gym.design.solvers.newton.tokens.space import Space

__all__ = ["TokenPoint", "WorkingSets"]


# times the tokens that suffice for an optimal design: of more tokens most have no mass, and the Hessian is so singular
# that products with it lead nowhere
_SUPPORTS = 1
_LARGEST = 50_000_000  # numbers in the float64 features of a working set that is not made of what has mass
# first rounds that cost as much as solving for all such tokens: the geometric mean for rows of equal length and for the
# same rows in float16
_HARD = 100


@dataclass(frozen=True)
class TokenPoint:
    """Weights on a working set of tokens.

    Attributes:
        space: The objective on the working set.
        weights: Non-negative, sum to 1 in every block, shape (k,).
        value: s(I).
    """

    space: Space
    weights: Floats
    value: float

    @property
    def support(self) -> Positions:
        """Tokens with mass."""
        return self.space.tokens[self.weights > 0]


class WorkingSets:
    """Chooses working sets.

    Args:
        blocks: All tokens.
        copies: Groups of nearly equal tokens, or None.
        space: The objective on some sorted tokens.
        sufficient: Tokens that suffice for an optimal design.
        grams: 1 for D, 2 for A and V.
    """

    def __init__(
        self,
        blocks: TokenBlocks,
        copies: Copies | None,
        space: Callable[[Positions], Space],
        *,
        sufficient: int,
        grams: int,
    ) -> None:
        self._blocks, self._copies, self._space = blocks, copies, space
        self._sufficient, self._grams = sufficient, grams
        self._count = len(blocks if copies is None else copies)

    def best(self, prices: TokenPrices, budget: int) -> Positions:
        """The tokens with the largest excess, `budget` in all, and the best of every block; sorted."""
        prices = self._one_of_each(prices)
        if len(prices.tokens) <= budget:
            return prices.tokens
        best = np.argpartition(-prices.excess, budget - 1)[:budget]
        tops = [
            part.start + int(np.argmax(prices.excess[part]))
            for part in self._blocks.parts(prices.tokens)
            if part.stop > part.start
        ]
        return np.unique(prices.tokens[np.concatenate([best, tops])])

    def next(self, point: TokenPoint, prices: TokenPrices, budget: int) -> tuple[Space, Floats]:
        """The next working set, and its first weights: never a worse design than the point."""
        mass = point.weights[point.weights > 0]
        prices = self._one_of_each(prices)
        if self._copies is None:
            return self._chosen(point, prices, budget, point.support, mass)
        support, moved = self._copies.moved(point.support, mass, prices.tokens)
        if np.array_equal(support, point.support):
            return self._chosen(point, prices, budget, support, mass)
        space, weights = self._chosen(point, prices, budget, support, moved)
        try:
            if space.value(weights) + space.offset >= point.value:
                return space, weights
        except SingularInformationError:  # only without a proper prior
            pass
        space, weights = self._chosen(point, prices, budget, point.support, mass)
        if isinstance(space, FeatureSpace):
            space.factor()  # several copies of a group have mass: products hardly tell them apart
        return space, weights

    def _chosen(
        self, point: TokenPoint, prices: TokenPrices, budget: int, support: Positions, mass: Floats
    ) -> tuple[Space, Floats]:
        last = point.space.tokens
        whole = len(last) == self._count  # every token, or one of every group
        if not whole and self._takes_all(point, prices, budget):
            tokens = np.union1d(support, prices.tokens)
            tokens = np.arange(self._count) if self._copies is None else self._copies.filled(tokens)
        else:
            tokens = np.union1d(support, prices.tokens if whole else self.best(prices, budget))
            if (
                len(tokens) > IDLE * len(last)
                and (whole or len(last) > products_above(self._blocks.dimension, self._grams))
                and np.isin(tokens, last, assume_unique=True).all()
            ):
                tokens = last  # with its curvature
        space = point.space if tokens is last else self._space(tokens)
        weights = np.zeros(len(tokens))
        weights[np.searchsorted(tokens, support)] = mass
        return space, weights

    def all_tokens(self, point: TokenPoint) -> Positions:
        """All tokens; of a group of copies those with mass, or the first one."""
        return np.arange(self._count) if self._copies is None else self._copies.filled(point.support)

    @property
    def central_path_cost(self) -> float:
        """What all tokens on the central path cost; infinite where that takes too much memory."""
        fits = max(self._count, self._sufficient) * self._sufficient <= _LARGEST  # the directions, and their factor
        return central_path_cost(self._count, self._sufficient) if fits else np.inf

    def spreads(self, point: TokenPoint) -> bool:
        """Whether the optimum seems to spread over many tokens, which costs working sets more than the central path.

        So it does where the uniform design of all tokens beats the result of the first round.
        """
        if self.central_path_cost > _HARD * round_cost(len(point.space.tokens), self._blocks.dimension, self._grams):
            return False
        space = self._space(self.all_tokens(point))
        try:
            return space.value(uniform_weights(space.parts)) + space.offset > point.value
        except SingularInformationError:  # only without a proper prior
            return False

    def _takes_all(self, point: TokenPoint, prices: TokenPrices, budget: int) -> bool:
        count, support = self._count, len(point.support)
        if count > _SUPPORTS * self._sufficient or count * self._blocks.dimension > _LARGEST:
            return False
        rounds = Rounds(
            count=count,
            priced=len(self._blocks),
            support=support,
            kept=support / len(point.space.tokens),
            improving=len(prices.tokens),
            budget=budget,
            grams=self._grams,
            sufficient=self._sufficient,
            dimension=self._blocks.dimension,
        )
        return rounds.at_once() < rounds.one_by_one()

    def _one_of_each(self, prices: TokenPrices) -> TokenPrices:
        """The best token of each group of copies."""
        if self._copies is None:
            return prices
        best = self._copies.best(prices.tokens, prices.excess)
        return replace(prices, tokens=prices.tokens[best], excess=prices.excess[best])
