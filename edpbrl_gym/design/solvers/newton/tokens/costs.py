"""What the ways to compute with tokens cost: wherever two lead to the same, the cheaper.

Costs are in multiplications of a float32 product of matrices that take the same time; only their ratios matter. The
constants were measured on an x86 server core with OpenBLAS.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edpbrl_gym.design.solvers.newton.interior import FACTORS
from edpbrl_gym.design.solvers.newton.quasi_newton import Costs
from edpbrl_gym.design.solvers.newton.tokens.curvature import ENTRY_READ, NUMBER

__all__ = [
    "Rounds",
    "bounds_pay",
    "central_path_cost",
    "products_above",
    "round_cost",
    "step_costs",
    "stored_hessian_pays",
]


# steps on one working set
_DOUBLE = 2.7  # an operation of a float64 product, of two that use symmetry or a triangle
_ENTRY = 200.0  # making an entry of a stored Hessian, beside the inner products, most of it for new memory
_PRODUCTS = 20.0  # with the Hessian, in a quadratic program
# rounds of working sets
_TOKEN = 10.0  # d^2: a token of a working set that is solved for by products, for D; twice as much for A and V
_STEPS = 2.2  # Newton steps by factors in a round, in operations of the same time: see `Rounds`
_PLACED, _CROWDED = 0.5, 8
# bounds in a pass over all tokens
_CARRY = 100.0  # d^3: factors, eigenvalues and products of d x d matrices, in float64
_OVERHEAD = 5e7


def step_costs(support: int, size: int, dimension: int, grams: int, *, stored: bool) -> Costs:
    """Of Newton steps on a working set.

    Args:
        support: Tokens with mass.
        size: Tokens.
        dimension: d.
        grams: Inner products that an entry of the Hessian consists of: 1 for D, 2 for A and V.
        stored: Whether the Hessian is.
    """
    evaluation = _DOUBLE * (support + size) * dimension**2 + 6.0 * dimension**3
    hessian = _DOUBLE * grams * size * dimension**2
    if stored:
        hessian += (1.3 * grams * dimension + _ENTRY) * size**2
        return Costs(evaluation, hessian, _PRODUCTS * ENTRY_READ * size**2)
    return Costs(evaluation, hessian, _PRODUCTS * (4.6 * dimension + NUMBER) * size * dimension)


def stored_hessian_pays(size: int, dimension: int, grams: int) -> bool:
    """Whether a stored Hessian of `size` tokens and a program with it cost less than products without it."""
    stored, implicit = (step_costs(0, size, dimension, grams, stored=stored) for stored in (True, False))
    return stored.hessian + stored.program < implicit.hessian + implicit.program


def products_above(dimension: int, grams: int) -> float:
    """Tokens above which Newton's method takes less time by products with the Hessian than by its factors.

    Fitted on 3,314 working sets of 120 to 1,500 tokens, solved both ways: five kinds of features of 16 to 768
    dimensions. To solve for k tokens takes, in float32 multiplications of the same time and with g = `grams`,

        by factors   1.2e8 + 21 k d^2 + 5.6 g k^2 d + 2740 k^2
        by products  5.2e8 + 19.5 g k d^2 + 560 k^2 + 17 d^3

    Args:
        dimension: d.
        grams: Inner products that an entry of the Hessian consists of: 1 for D, 2 for A and V.
    """
    square = 5.6 * grams * dimension + 2180.0
    linear = (21.0 - 19.5 * grams) * dimension**2
    constant = 17.0 * dimension**3 + 4e8
    return float((np.sqrt(linear**2 + 4.0 * square * constant) - linear) / (2.0 * square))


def round_cost(size: int, dimension: int, grams: int) -> float:
    """Of solving for a working set of k tokens, by factors or by products: the two costs of `products_above`."""
    if size > products_above(dimension, grams):
        return 5.2e8 + 19.5 * grams * size * dimension**2 + 560.0 * size**2 + 17.0 * dimension**3
    return 1.2e8 + 21.0 * size * dimension**2 + 5.6 * grams * size**2 * dimension + 2740.0 * size**2


def central_path_cost(count: int, directions: int) -> float:
    """Of a solution on the central path (`central_path`).

    A factor took 0.75 n r^2 + 280 n r + 0.1 r^3 + 2e7, from 1,000 tokens in 8 dimensions to 6,000 in 60.

    Args:
        count: Tokens, n.
        directions: Directions of the Hessian, r.
    """
    return FACTORS * (0.75 * count * directions**2 + 280.0 * count * directions + 0.1 * directions**3 + 2e7)


def bounds_pay(count: int, dimension: int) -> bool:
    """Whether bounds save more than they cost: the scores of most of n tokens, d^2 multiplications each."""
    return count * dimension**2 > _CARRY * dimension**3 + _OVERHEAD


@dataclass(frozen=True)
class Rounds:
    """What it takes to find the support round by round, or from all tokens at once.

    Costs are in units of pricing every token, n d^2 multiplications in float32. A round prices once and solves for k
    tokens: by products with the Hessian (`products_above`), 10 k d^2 for D and twice as much for A and V; by factors
    2.2 times 5.4 k d^2 for values and gradients, 3.6 k^2 d for the Hessian (A and V: twice) and 2.7 k^3, all in
    float64. Budgets double from round to round.

    Of the tokens that would improve the design (a share m of all) about half times m^8 find a place in it, times the
    share of the last working set that has kept its mass: 0.3 to 0.5 where m > 0.97, 0.1 to 0.2 where m is 0.8 to 0.9.
    Fitted on five kinds of features at 5,000 x 384 and 2,000 x 256, lambda = 1 and 100.

    Attributes:
        count: Tokens, or groups of copies.
        priced: Tokens that are priced, copies included.
        support: Tokens with mass.
        kept: Share of the last working set that has mass.
        improving: Tokens that would improve the design.
        budget: Of them to add in the next round.
        grams: 1 for D, 2 for A and V.
        sufficient: Tokens that suffice for an optimal design.
        dimension: d.
    """

    count: int
    priced: int
    support: int
    kept: float
    improving: int
    budget: int
    grams: int
    sufficient: int
    dimension: int

    @property
    def expected_support(self) -> float:
        """Tokens with mass in the end."""
        placed = _PLACED * self.kept * (self.improving / self.count) ** _CROWDED
        return min(self.support + placed * self.improving, self.sufficient)

    def one_by_one(self) -> float:
        """Of the rounds until the support is reached."""
        cost, size, budget, expected = 0.0, float(self.support), self.budget, self.expected_support
        while size < expected:
            size = min(size + budget, expected)
            budget *= 2
            cost += self._round(size)
        return cost

    def at_once(self) -> float:
        """Of one round with all tokens."""
        return self._round(self.count)

    def _round(self, size: float) -> float:
        dimension = self.dimension
        if size > products_above(dimension, self.grams):
            work = _TOKEN * self.grams * size * dimension**2
        else:
            hessian = 3.6 * self.grams * size**2 * dimension
            work = _STEPS * (5.4 * size * dimension**2 + hessian + 2.7 * size**3)
        return 1.0 + work / (self.priced * dimension**2)
