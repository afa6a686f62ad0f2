"""What the ways to compute with columns cost, in nanoseconds of one core: wherever two lead to the same, the cheaper.

Only ratios matter. The constants were measured on an x86 server core with OpenBLAS (60 to 3,000 states, horizons of 4
to 20, d = 6 to 100, both kinds of transitions); the times of both ways are then right to a factor of 2.
"""

from __future__ import annotations

import numpy as np

from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.solvers.newton.interior import FACTORS

__all__ = [
    "CHAIN",
    "chain_cost",
    "interior_cost",
    "low_rank_pays",
    "moments_cost",
    "new_moments_cost",
    "nodes_cost",
    "pass_cost",
    "paths_cost",
    "paths_pay",
    "policies_cost",
    "scores_cost",
    "sparse_congruence_pays",
    "sparse_product_pays",
    "step_cost",
]


CHAIN = 8  # Frank-Wolfe steps between two corrections of all weights, each a chance for a Newton step
_DENSE = 0.04  # a multiplication in a product of matrices
_SPARSE = 0.35  # a multiplication in a product of a sparse matrix with a dense one
_SINGLE = 1.0  # an operation on one number of an array
_CALL = 4_000.0  # of numpy
_PATH_PAIR = 35.0  # pricing of paths, of a pair at a step and an initial state
_MOST_NUMBERS = 2**27  # in memory at once (1 GiB)


def product_cost(rows: float, inner: float, columns: float) -> float:
    """A product of dense matrices; where one side is short, most of it is reading and writing."""
    return _CALL + _DENSE * rows * inner * columns + _SINGLE * (rows * inner + inner * columns + rows * columns)


def sparse_product_cost(entries: float, rows: float, columns: float) -> float:
    """A product of a sparse matrix of so many entries and rows with a dense one."""
    return 5.0 * _CALL + _SPARSE * entries * columns + _SINGLE * rows * columns


def sparse_product_pays(entries: float, shape: tuple[int, int], columns: float) -> bool:
    """Whether to multiply by a sparse matrix as it is, not to make it dense before."""
    rows, inner = shape
    dense = _SINGLE * rows * inner + product_cost(rows, inner, columns)
    return sparse_product_cost(entries, rows, columns) < dense


def sparse_congruence_pays(entries: float, shape: tuple[int, int]) -> bool:
    """The same for E' N E, with a dense N and a sparse E of a shape (n, k)."""
    sparse, dense = _congruence_costs(entries, shape)
    return sparse < dense


def _congruence_costs(entries: float, shape: tuple[int, int]) -> tuple[float, float]:
    """Of E' N E with a sparse E, and with a dense one."""
    n, k = shape
    copied = _SINGLE * n * k
    sparse = sparse_product_cost(entries, k, n) + copied + sparse_product_cost(entries, k, k)
    return sparse, copied + product_cost(n, n, k) + product_cost(k, n, k)


def nodes_cost(shape: tuple[int, int], entries: float, dimension: int, rank: int, *, hessian: bool) -> float:
    """Derivatives on k columns by n nodes (`master`).

    Args:
        shape: n and k.
        entries: Nodes of all columns.
        dimension: d.
        rank: Columns of B for A and V, d at most; 0 for D.
        hessian: Whether they include the Hessian.
    """
    n, _ = shape
    solved = product_cost(n, dimension, dimension / 2.0) + (product_cost(n, dimension, rank) if rank else 0.0)
    if not hessian:
        return solved + 10.0 * _CALL
    inner = product_cost(n, dimension / 2.0, n) + (product_cost(n, rank / 2.0, n) if rank else 0.0)
    return solved + inner + 4.0 * _SINGLE * n * n + 15.0 * _CALL + min(_congruence_costs(entries, shape))


def moments_cost(count: int, horizon: int, dimension: int, rank: int) -> float:
    """Gradient and Hessian on k columns by their moments, which are known."""
    size, width = count * dimension, rank or dimension
    shifted = 10.0 * _SINGLE * size * dimension + product_cost(size, horizon, dimension)
    solved = 2.0 * product_cost(size, dimension, width)
    inner = product_cost(count, (dimension + horizon) * width / 2.0, count)
    return shifted + solved + inner + 4.0 * _SINGLE * count * count + 20.0 * _CALL


def new_moments_cost(entries: float, rows: int, dimension: int) -> float:
    """Moments of a column with so many entries, among so many rows of features."""
    used = min(entries, rows)
    gathered = _SINGLE * (4.0 * rows + (entries + used) * dimension)
    return gathered + product_cost(dimension, used / 2.0, dimension) + 20.0 * _CALL


def scores_cost(problem: DesignProblem, rank: int) -> float:
    """Scores of all rows at all steps."""
    rows, dimension = problem.mdp.num_rows, problem.dimension
    scored = product_cost(rows, dimension, rank or dimension / 2.0)
    return scored + product_cost(problem.horizon, rank or dimension, rows) + 10.0 * _CALL


def pass_cost(problem: DesignProblem) -> float:
    """Value iteration, the occupancy of its policy, its moments and a line search."""
    mdp, dimension = problem.mdp, problem.dimension
    step = 2.0 * mdp.transitions.nnz + 30.0 * mdp.num_pairs + mdp.num_rows * dimension
    return mdp.horizon * (_SINGLE * step + 40.0 * _CALL) + 3.0 * product_cost(mdp.num_rows, dimension, dimension)


def chain_cost(problem: DesignProblem) -> float:
    """A turn of Frank-Wolfe steps and the correction of all weights."""
    return (CHAIN + 2.0) * pass_cost(problem)


def low_rank_pays(size: int, rank: int) -> bool:
    """Whether the interior point factors a matrix of the rank of the Hessian, not one of its size."""
    return size > rank and _low_rank_cost(size, rank) < _matrix_cost(size, rank)


def interior_cost(size: int, rank: int) -> float:
    """A quadratic program over simplices with this many entries and a Hessian of this rank, by an interior point."""
    return _low_rank_cost(size, rank) if low_rank_pays(size, rank) else _matrix_cost(size, rank)


def _low_rank_cost(size: int, rank: int) -> float:
    factor = product_cost(rank, size / 2.0, rank) + _DENSE * rank**3 / 6.0 + 5.0 * _SINGLE * size * rank
    return FACTORS * (factor + 60.0 * _CALL)


def _matrix_cost(size: int, rank: int) -> float:
    factor = _DENSE * size**3 / 6.0 + 10.0 * _SINGLE * size * size
    return product_cost(size, rank / 2.0, size) + FACTORS * (factor + 60.0 * _CALL)


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


def paths_pay(problem: DesignProblem, tolerance: float) -> bool:
    """Whether to design a deterministic MDP by paths, not by policies."""
    return paths_cost(problem, tolerance) < policies_cost(problem, tolerance)


def paths_cost(problem: DesignProblem, tolerance: float) -> float:
    """A design of a deterministic MDP by paths; each initial state is a block with a support of its own.

    What is not known before (how many iterations, how large working sets) are means over problems.
    """
    mdp, dimension = problem.mdp, problem.dimension
    roots = int(np.count_nonzero(mdp.initial))
    iterations = 3.0 + 0.45 * mdp.horizon + 0.7 * _digits(tolerance)
    passes = roots * mdp.horizon * (_PATH_PAIR * mdp.num_pairs + 20.0 * _CALL)
    count = 50.0 + 4.0 * dimension + roots * (1.0 + dimension / 12.0)
    nodes = int(min(0.4 * count * mdp.horizon, mdp.num_rows * mdp.horizon))
    entries = count * mdp.horizon
    hessian = nodes_cost((nodes, int(count)), entries, dimension, 0, hessian=True)
    program = 10.0 * (_DENSE * count**3 / 3.0 + _SINGLE * count**2 + (20.0 + 4.0 * roots) * _CALL)
    return iterations * (passes + hessian + program + scores_cost(problem, 0))


def policies_cost(problem: DesignProblem, tolerance: float) -> float:
    """The same by policies: Frank-Wolfe steps, the fewer the more initial states, and Newton steps for more digits."""
    mdp, dimension = problem.mdp, problem.dimension
    digits = _digits(tolerance)
    moments = dimension * (dimension + 1) // 2 + mdp.horizon * dimension
    turn = chain_cost(problem) + 3.0 * moments_cost(8 + dimension, mdp.horizon, dimension, 0)
    turn += 10.0 * new_moments_cost(mdp.num_states * mdp.horizon / 2.0, mdp.num_rows, dimension)
    turns = (2.0 + 0.5 * dimension / np.count_nonzero(mdp.initial) ** 0.5) * min(1.0, digits / 3.0)
    states = mdp.num_states * mdp.horizon // 2
    step = step_cost(problem, states=states, candidates=moments, moments=moments)
    return turns * turn + max(0.0, digits - 3.0) * min(step + turn, dimension / 4.0 * turn)


def _digits(tolerance: float) -> float:
    """Of the gain that are to be right; beyond 6 both ways take about the same for each."""
    return 6.0 if tolerance <= 1e-6 else max(0.0, -float(np.log10(tolerance)))
