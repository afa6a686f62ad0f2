"""Search for the K complete prompts of a question: coordinate exchange over lanes and steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans
from edpbrl_gym.planners.exchange import exchange
from edpbrl_gym.planners.option_features import PromptFeatures
from edpbrl_gym.planners.scores import QuestionScore

__all__ = ["search_prompts"]

_GAIN = 1e-3  # relative gain of a sweep below which the search ends


def search_prompts(
    score: QuestionScore,
    options: PromptFeatures,
    tables: list[NDArray[np.float32]],
    allowed: Callable[[int, int, NDArray[np.int64]], Booleans],
    start: NDArray[np.int64],
    *,
    steps: NDArray[np.int64],
    candidates: int,
    sweeps: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Improve K complete prompts token by token.

    In a sweep, at one step after the other, the token of one lane after the other is replaced by the best of a random
    part of the step's tokens, drawn once for the search. A part suffices, and more than that is no better: the features
    of the options come from an additive model, whose errors an exhaustive search would seek.

    Args:
        score: Acquisition function.
        options: The additive model.
        tables: Its candidates of each step, (V_h, d).
        allowed: Called with a step, a lane and the prompts (K, H); returns which
            The present one must be allowed.
        start: First prompts, (K, H), allowed.
        steps: Steps whose tokens may be replaced.
        candidates: Tokens of a step that are tried, beside the present ones.
        sweeps: Sweeps over the steps at most, >= 1.
        rng: Draws the candidates and the order.

    Returns:
        The prompts, (K, H).
    """
    prompts = np.array(start, dtype=np.int64)
    pools = {
        int(step): rng.choice(len(tables[step]), size=min(candidates, len(tables[step])), replace=False)
        for step in steps
    }
    value = -np.inf
    for _ in range(sweeps):
        before = value
        for step in rng.permutation(steps):
            pool = np.unique(np.concatenate([pools[int(step)], prompts[:, step]]))
            score.prepare(tables[step][pool], options.others(prompts, int(step)))
            places = np.searchsorted(pool, prompts[:, step])
            places, value = exchange(score, _legal(allowed, prompts, int(step), pool), places, sweeps=1, rng=rng)
            prompts[:, step] = pool[places]
        if value <= before + _GAIN * abs(before):
            break
    return prompts


def _legal(
    allowed: Callable[[int, int, NDArray[np.int64]], Booleans],
    prompts: NDArray[np.int64],
    step: int,
    pool: NDArray[np.int64],
) -> Callable[[int, NDArray[np.int64]], Booleans]:
    """Which candidates of a step a lane may take, given those of all lanes."""

    def legal(lane: int, question: NDArray[np.int64]) -> Booleans:
        shown = prompts.copy()
        shown[:, step] = pool[question]
        return allowed(step, lane, shown)[pool]

    return legal
