"""Newton's method for a chunk of users at once: who is done leaves, the others take a step together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Booleans, Floats, Positions
from edpbrl_gym.design.deadline import Deadline
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.solvers.batch.certificate import Certificates, Pricing, certified, priced
from edpbrl_gym.design.solvers.batch.program import solve_programs
from edpbrl_gym.design.solvers.batch.tokens import Evaluation, SharedTokens

__all__ = ["Chunk", "Settings", "Stop", "extra_tokens"]


_SHARE = 0.05  # of the gap, to which the restricted problems are solved
_ENOUGH = 0.3  # of the gap that is still needed
_ARMIJO = 0.1
_ROUNDING = 1e-13  # relative, of the objective
_SMALLEST = {True: 1e-9, False: 1e-13}  # smaller weights are set to 0; for steps in float32, and in float64
_HALVINGS = 30
_PATIENCE = 3  # steps without progress before giving up
_PROGRESS = 0.01  # of the gap: what the objective should rise by in a step
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Settings:
    """What all chunks share.

    Attributes:
        problem: The problem of the mean prior.
        tokens: All tokens.
        tolerance: As in `batch_designs`.
        max_iterations: As in `batch_designs`.
        single: Whether steps are computed in float32.
        deadline: When to stop.
        observe: Called before every step with the number of users who have just been finished; a true return value
            stops everything.
    """

    problem: DesignProblem
    tokens: SharedTokens
    tolerance: float
    max_iterations: int
    single: bool
    deadline: Deadline
    observe: Callable[[int], bool]


@dataclass(frozen=True)
class Stop:
    """Users who leave a chunk.

    Attributes:
        users: Their positions in the batch.
        word: Why they leave.
        weights: Shape (u, n).
        certificates: Of these weights.
        iterations: Steps taken.
    """

    users: Positions
    word: str
    weights: Floats
    certificates: Certificates
    iterations: int


def extra_tokens(dimension: int) -> int:
    """How many tokens without mass are added to the largest support of a chunk, in each block."""
    return max(16, dimension // 4)


class Chunk:
    """Users who are solved for at once.

    Args:
        settings: What all chunks share.
        users: Their positions in the batch, shape (u,).
        weights: Where they begin, shape (u, n).
        prior: Their prior precisions, shape (u, d, d).
        baseline: Their values without data, shape (u,).
    """

    def __init__(self, settings: Settings, users: Positions, weights: Floats, prior: Floats, baseline: Floats) -> None:
        self._settings = settings
        self._tokens = settings.tokens
        self._arrays = settings.tokens.arrays
        self._users, self._baseline = users, baseline
        self._evaluation = self._tokens.evaluate(self._arrays.array(weights), self._arrays.array(prior))
        self._slow = np.zeros(len(users), dtype=np.intp)
        self._best_gap = np.full(len(users), np.inf)
        self._last_value = np.full(len(users), -np.inf)

    def solve(self, leave: Callable[[Stop], None]) -> None:
        """Take steps until all users have left; `leave` is called with those who do."""
        settings, finished = self._settings, 0
        for iteration in range(settings.max_iterations + 1):
            pricing = priced(self._tokens, self._evaluation)
            value, gap = self._arrays.numpy(self._evaluation.value), self._arrays.numpy(pricing.gap)
            reached = _reached(settings.problem, value, gap, self._baseline, settings.tolerance)
            words = {"converged": reached, "stalled": ~reached & self._stalls(value, gap)}
            rest = np.ones(len(value), dtype=bool)
            if settings.deadline.passed:
                words = {"converged": reached, "time_limit": rest}
            elif iteration == settings.max_iterations:
                words = {"converged": reached, "iteration_limit": rest}
            elif settings.observe(finished):
                words = {"converged": reached, "interrupted": rest}
            finished = 0
            for word, mask in words.items():
                who = mask & rest
                rest &= ~mask
                if who.any():
                    finished += int(who.sum())
                    leave(self._stop(word, who, pricing, iteration))
            if not rest.any():
                settings.observe(finished)
                return
            if not rest.all():
                pricing = self._keep(rest, pricing)
            self._step(pricing, gap[rest], value[rest] - self._baseline)

    def _stalls(self, value: Floats, gap: Floats) -> Booleans:
        """Who has neither raised the objective by a share of the gap nor lowered the gap, several times in a row."""
        still = value - self._last_value <= np.maximum(_PROGRESS * gap, 8.0 * _EPS * np.maximum(1.0, np.abs(value)))
        self._slow = np.where(still & ~(gap <= 0.5 * self._best_gap), self._slow + 1, 0)
        self._best_gap = np.minimum(self._best_gap, gap)
        self._last_value = value
        return (self._slow >= _PATIENCE) | ~np.isfinite(value + gap)

    def _stop(self, word: str, who: Booleans, pricing: Pricing, iteration: int) -> Stop:
        mask = self._arrays.array(who)
        evaluation = self._evaluation.of(mask)
        certificates = certified(
            self._settings.problem, self._tokens, evaluation, Pricing(*(array[mask] for array in pricing))
        )
        weights = self._arrays.numpy(evaluation.weights)
        return Stop(self._users[who], word, weights, certificates, iteration)

    def _keep(self, rest: Booleans, pricing: Pricing) -> Pricing:
        mask = self._arrays.array(rest)
        self._users, self._baseline, self._slow = self._users[rest], self._baseline[rest], self._slow[rest]
        self._best_gap, self._last_value = self._best_gap[rest], self._last_value[rest]
        self._evaluation = self._evaluation.of(mask)
        return Pricing(*(array[mask] for array in pricing))

    def _step(self, pricing: Pricing, gap: Floats, gain: Floats) -> None:
        """One Newton step on working sets: the support and the tokens of the largest excess."""
        arrays, single = self._arrays, self._settings.single
        index, parts = self._working_sets(pricing.excess)
        weights = arrays.taken(self._evaluation.weights, index)
        excess = arrays.taken(pricing.excess, index)
        target = np.maximum(_SHARE * gap, _ENOUGH * self._settings.tolerance * gain)
        with arrays.full_precision():
            change = solve_programs(
                arrays,
                self._tokens.hessians(self._evaluation, index, parts, single=single),
                arrays.cast(excess, single),
                arrays.cast(weights, single),
                parts,
                targets=arrays.cast(arrays.array(target), single),
                deadline=self._settings.deadline,
            )
        aim = weights + arrays.cast(change, False)
        aim = arrays.namespace.where(aim < _SMALLEST[single], 0.0, aim)
        for part in parts:
            aim[:, part] /= aim[:, part].sum(1)[:, None]
        self._move(index, weights, aim - weights, excess)

    def _working_sets(self, excess: Any) -> tuple[Any, list[slice]]:
        """Tokens of each user, shape (u, k), and the entries of each block."""
        arrays, weights = self._arrays, self._evaluation.weights
        keys = arrays.namespace.where(weights > 0, np.inf, excess)
        index, parts, begin = [], [], 0
        for block in self._tokens.blocks:
            support = int((weights[:, block] > 0).sum(1).max())
            count = min(block.stop - block.start, support + extra_tokens(self._tokens.dimension))
            index.append(block.start + arrays.largest(keys[:, block], count))
            parts.append(slice(begin, begin + count))
            begin += count
        return arrays.namespace.concatenate(index, 1), parts

    def _move(self, index: Any, weights: Any, change: Any, excess: Any) -> None:
        """Go as far along the changes as the objective rises as it should; who can't stays."""
        arrays, before = self._arrays, self._evaluation
        slope = (excess * change).sum(1)
        least = before.value - _ROUNDING * abs(before.value)
        left = arrays.array(np.arange(len(self._users)))
        after: Evaluation | None = None
        length = 1.0
        for _ in range(_HALVINGS):
            trial = arrays.replaced(before.weights[left], index[left], weights[left] + length * change[left])
            found = self._tokens.evaluate(trial, before.prior[left])
            good = found.value >= least[left] + _ARMIJO * length * slope[left]
            after = found if after is None else after.with_users(left[good], found.of(good))
            left = left[~good]
            if not len(left):
                break
            length *= 0.5
        assert after is not None
        if len(left):
            after = after.with_users(left, before.of(left))
        self._evaluation = after


def _reached(problem: DesignProblem, value: Floats, gap: Floats, baseline: Floats, tolerance: float) -> Booleans:
    sane = np.isfinite(value) & np.isfinite(gap) & ((value < 0) | (problem.criterion.name == "D"))  # else rounding
    reached = np.zeros(len(value), dtype=bool)
    for user in np.flatnonzero(sane):
        reached[user] = problem.converged(
            float(gap[user]), float(value[user]), tolerance, baseline=float(baseline[user])
        )
    return reached
