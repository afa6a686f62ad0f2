"""What the ways to improve a design of policies cost, in nanoseconds of one core.

Only ratios matter. The constants were measured on an x86 server core with OpenBLAS (300 to 3,000 states, horizons of 6
to 20, d = 6 to 64); the times of both ways are then right to a factor of 2.
"""

from __future__ import annotations

from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.solvers.newton.interior import FACTORS

__all__ = ["interior_cost", "pass_cost", "step_cost"]


_DENSE = 0.08  # a multiplication in a product of matrices
_SINGLE = 1.0  # an operation on one number of an array, or of a sparse matrix
_CALL = 4_000.0  # of numpy
_MOST_NUMBERS = 2**27  # in memory at once (1 GiB)


def pass_cost(problem: DesignProblem) -> float:
    """Value iteration, the occupancy of its policy, its moments and a line search."""
    mdp, dimension = problem.mdp, problem.dimension
    step = 2.0 * mdp.transitions.nnz + 30.0 * mdp.num_pairs + mdp.num_rows * dimension
    return mdp.horizon * (_SINGLE * step + 40.0 * _CALL) + _DENSE * 3.0 * mdp.num_rows * dimension**2


def interior_cost(size: int, rank: int) -> float:
    """A quadratic program over simplices with this many entries and a Hessian of this rank, by an interior point."""
    smaller = min(size, rank)
    factor = _DENSE * (size * rank * smaller / 2.0 + smaller**3 / 6.0) + 8.0 * _SINGLE * size * smaller
    return FACTORS * (factor + 60.0 * _CALL)


def step_cost(problem: DesignProblem, *, states: int, candidates: int, moments: int) -> float:
    """A Newton step on the policy, infinite where it needs too much memory.

    Args:
        problem: The problem.
        states: States that are reached, summed over the steps.
        candidates: Pairs to choose among beyond one in each of them.
        moments: Number of moments.
    """
    mdp = problem.mdp
    if max(mdp.num_states + mdp.num_pairs / mdp.horizon, 2.0 * candidates) * moments > _MOST_NUMBERS:
        return float("inf")
    entries = mdp.transitions.nnz / mdp.num_pairs
    rows = (states + candidates) * moments / 2.0 * (_SINGLE * entries + 20.0 * _SINGLE)
    return rows + interior_cost(2 * candidates, moments) + 3.0 * pass_cost(problem)
