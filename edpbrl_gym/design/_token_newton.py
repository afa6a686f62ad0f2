"""Working-set Newton for prompt problems: a few hundred tokens carry the optimum, so solve for those and check all.

Each iteration scores every token (one product of the features with a d x d factor), which certifies the current
weights, adds the tokens that would improve the design most, deletes those without mass, and solves the restricted
problem by Newton's method with a quadratic program over the simplices in every step (`_master`, `_simplex_qp`).

The objective is concave in the weights once the mean is lifted away (`_master`), so Newton's method converges
quadratically on the working set; the objective rises in every iteration, so the working sets never cycle.

Scores are computed in float32 on centred features; tokens within 5e-5 of the largest score of their block, and the
working set, are scored again in float64. The final certificate is that of `certify`: all tokens, float64, at exactly
the returned weights. If it does not confirm convergence, the solver goes on with all scores in float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym.design._blocks import TokenBlocks
from edpbrl_gym.design._master import Master, Point
from edpbrl_gym.design._newton_state import NewtonState
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, IterationRecord, certify, check_occupancy

__all__ = ["solve_tokens"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_SMALLEST_START = 128  # tokens
_RECHECK = 5e-5  # relative; float32 scores err by about 1e-6 of the largest
_RESTRICTED_SHARE = 0.1  # the restricted problem is solved to this share of the full gap
_MASTER_STEPS = 10
_PATIENCE = 3  # iterations without progress before giving up


@dataclass
class _Run:
    """The solver's memory: the point is replaced only by a better finished one, so an interrupt finds it whole."""

    point: Point
    history: list[IterationRecord]
    steps: int = 0
    oracle_calls: int = 0
    status: str = "iteration_limit"
    dtype: type = np.float32
    slow: int = 0  # iterations in a row without progress
    budget: int = 0  # tokens to add


def solve_tokens(
    problem: DesignProblem,
    *,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[NewtonState], object] | None,
    start: ArrayLike | None,
    seed: int,
) -> Design:
    """Solve the design problem of a prompt MDP by working-set Newton; arguments and result as in `newton`."""
    begun = time.perf_counter()
    blocks = TokenBlocks(problem)
    master = Master(problem, blocks)
    first, calls = _first(problem, blocks, master, start, seed)
    run = _Run(point=first, history=[], oracle_calls=calls, budget=max(64, problem.dimension // 4))
    try:
        while True:
            _iterate(problem, blocks, master, run, tolerance, max_iterations, callback, begun)
            design = _certified(problem, blocks, run, begun)
            if run.status != "converged" or problem.converged(design.gap, design.value, tolerance):
                return design
            if run.dtype is np.float64:
                return replace(design, status="stalled")
            run.dtype = np.float64
    except KeyboardInterrupt:
        if not run.history:
            raise
        run.status = "interrupted"
        return _certified(problem, blocks, run, begun)


def _first(
    problem: DesignProblem, blocks: TokenBlocks, master: Master, start: ArrayLike | None, seed: int
) -> tuple[Point, int]:
    """The given start, or uniform weights on the tokens that a random sample finds most informative.

    Returns:
        The point, and how often all tokens were scored for it.
    """
    if start is not None:
        occupancy = np.array(start, dtype=np.float64)
        check_occupancy(problem, occupancy)
        weights = blocks.weights(occupancy)
        for number in range(len(blocks.scale)):
            weights[blocks.tokens(number)] /= weights[blocks.tokens(number)].sum()
        tokens = np.flatnonzero(weights)
        return master.point(tokens, weights[tokens]), 0
    sample = _sample(problem, blocks, master, seed)
    if not np.isfinite(problem.baseline):  # the best tokens alone need not reach every direction
        return sample, 0
    scores = blocks.scores(master.score_factor(sample), sample.means)
    count = -(-max(_SMALLEST_START, problem.dimension // 2) // len(blocks.scale))
    best = [own.start + np.argsort(-scores[own], kind="stable")[:count] for own in blocks.slices]
    tokens = np.sort(np.concatenate(best))
    point = master.point(tokens, _uniform(blocks, tokens))
    return (point if point.value > sample.value else sample), 1


def _uniform(blocks: TokenBlocks, tokens: IntArray) -> FloatArray:
    sizes = np.bincount(blocks.block[tokens])
    return np.asarray(1.0 / sizes[blocks.block[tokens]])


def _sample(problem: DesignProblem, blocks: TokenBlocks, master: Master, seed: int) -> Point:
    """Uniform weights on a random sample of at least 2d tokens, more until the information is regular."""
    rng = np.random.default_rng(seed)
    order = [rng.permutation(np.arange(blocks.starts[n], blocks.starts[n + 1])) for n in range(len(blocks.scale))]
    count = -(-2 * problem.dimension // len(order))
    while True:
        tokens = np.sort(np.concatenate([own[:count] for own in order]))
        try:
            return master.point(tokens, _uniform(blocks, tokens))
        except SingularInformationError:  # no proper prior, and the sample does not reach every direction
            if len(tokens) == len(blocks):
                raise
            count *= 2


def _iterate(
    problem: DesignProblem,
    blocks: TokenBlocks,
    master: Master,
    run: _Run,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[NewtonState], object] | None,
    begun: float,
) -> None:
    """Run the iterations; `run` is valid whenever an exception leaves."""
    while True:
        started = time.perf_counter()
        point = run.point
        scores, levels = _score(blocks, master, point, run.dtype)
        run.oracle_calls += 1
        excess = scores - levels[blocks.block]
        gap = float(sum(max(0.0, excess[blocks.tokens(number)].max()) for number in range(len(levels))))
        _note_progress(run, point.value, gap)
        state = _state(problem, blocks, run, gap, started - begun)
        if problem.converged(gap, point.value, tolerance):
            run.status = "converged"
        elif run.steps >= max_iterations:
            run.status = "iteration_limit"
        elif run.slow >= _PATIENCE and run.dtype is np.float64:
            run.status = "stalled"
        elif callback is not None and callback(state):
            run.status = "interrupted"
        else:
            if run.slow >= _PATIENCE:  # perhaps float32 hides what to add
                run.dtype, run.slow = np.float64, 0
            step = _advance(blocks, master, run, excess, gap)
            seconds = time.perf_counter() - started
            run.history.append(IterationRecord(run.steps, point.value, gap, step, seconds))
            run.steps += 1
            continue
        run.history.append(IterationRecord(run.steps, point.value, gap, 0.0, time.perf_counter() - started))
        return


def _score(blocks: TokenBlocks, master: Master, point: Point, dtype: type) -> tuple[FloatArray, FloatArray]:
    """Scores of all tokens (float64 where they decide) and the mean score of each block under the weights."""
    factor = master.score_factor(point)
    scores = blocks.scores(factor, point.means, dtype)
    scores[point.tokens] = master.gradient(point)
    levels = np.empty(len(blocks.scale))
    weighted = point.weights * scores[point.tokens]
    own = blocks.block[point.tokens]
    for number in range(len(levels)):
        levels[number] = weighted[own == number].sum()
        if dtype is np.float64:
            continue
        tokens = blocks.tokens(number)
        near = tokens.start + np.flatnonzero(scores[tokens] >= (1.0 - _RECHECK) * scores[tokens].max())
        exact = (blocks.centred(near) - point.means[number]) @ factor.T
        scores[near] = blocks.scale[number] * np.einsum("nr,nr->n", exact, exact)
    return scores, levels


def _note_progress(run: _Run, value: float, gap: float) -> None:
    """Count iterations that neither raised the objective beyond rounding nor lowered the gap; adapt the budget."""
    if not run.history:
        return
    last = run.history[-1]
    rounding = 8 * float(np.finfo(np.float64).eps) * max(1.0, abs(value))
    smallest = min(record.gap for record in run.history)
    run.slow = run.slow + 1 if value - last.value <= rounding and gap > 0.5 * smallest else 0
    if gap > 0.5 * last.gap:
        run.budget *= 2


def _advance(blocks: TokenBlocks, master: Master, run: _Run, excess: FloatArray, gap: float) -> float:
    """Choose the next working set and solve on it; returns the size of the last Newton step."""
    tokens = _working_set(blocks, run, excess)
    run.point, step = master.improve(
        master.extended(run.point, tokens), target=_RESTRICTED_SHARE * gap, max_steps=_MASTER_STEPS
    )
    return step


def _working_set(blocks: TokenBlocks, run: _Run, excess: FloatArray) -> IntArray:
    """The support and the tokens outside it with the largest excess: the best of every block, `budget` in all."""
    support = run.point.support
    candidate = excess.copy()
    candidate[support] = -np.inf
    count = min(run.budget, len(candidate))
    best = np.argpartition(-candidate, count - 1)[:count]
    tops = [own.start + int(np.argmax(candidate[own])) for own in blocks.slices]
    added = np.concatenate([best, np.array(tops, dtype=np.intp)])
    return np.union1d(support, added[candidate[added] > 0])


def _state(problem: DesignProblem, blocks: TokenBlocks, run: _Run, gap: float, seconds: float) -> NewtonState:
    point = run.point
    occupancy = blocks.occupancy(point.tokens, point.weights)
    occupancy.setflags(write=False)
    return NewtonState(
        iteration=run.steps,
        value=point.value,
        gap=gap,
        relative_gap=problem.relative_gap(gap, point.value),
        seconds=seconds,
        occupancy=occupancy,
        upper_bound=point.value + gap,
        support=len(point.support),
        oracle_calls=run.oracle_calls,
    )


def _certified(problem: DesignProblem, blocks: TokenBlocks, run: _Run, begun: float) -> Design:
    point = run.point
    design = certify(
        problem,
        blocks.occupancy(point.tokens, point.weights),
        status=run.status,
        solver="newton",
        iterations=run.steps,
        oracle_calls=run.oracle_calls,
        seconds=0.0,
        history=tuple(run.history),
    )
    return replace(design, seconds=time.perf_counter() - begun)
