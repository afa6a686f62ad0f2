"""Prompts that really differ: how many tokens two of them may share, and the best prompts under this limit.

Two prompts share a token where they have the same one in the same step. The limit holds for every pair, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_number

__all__ = ["most_shared", "pick", "shortage"]

_FEW = 512  # prompts among which other sets are tried where the best first leaves no room for enough
_TRIES = 4000  # sets, at most


def most_shared(share: float, steps: int) -> int:
    """The number of steps in which two prompts may have the same token.

    Args:
        share: Largest share of the steps, 0 to 1. A half of 5 steps is 2; 1 only excludes equal prompts.
        steps: Number of steps in which the prompts may differ.

    Raises:
        ValueError: The share is not in [0, 1].
    """
    if check_number(share, "shared", minimum=0.0) > 1.0:
        raise ValueError(f"Expected shared in [0, 1], the share of equal phrases, got {share}")
    return max(0, min(int(share * steps + 1e-9), steps - 1))


def pick(
    scores: Floats, tokens: Sequence[tuple[int, ...]] | NDArray[np.int64], count: int, most: int, *, fill: bool = True
) -> list[int]:
    """Indices of the best prompt, then each time of the best one that shares at most ``most`` tokens with all before.

    The scores are (n,), the tokens (n, steps). Where this ends before there are ``count``, among few prompts, ``fill``
    gives up better ones for a larger set.
    """
    order = np.argsort(-np.asarray(scores), kind="stable")
    prompts = np.array([tokens[place] for place in order], dtype=np.int64)
    free, chosen = np.ones(len(order), dtype=bool), list[int]()
    while len(chosen) < count and free.any():
        chosen.append(int(free.argmax()))
        free &= (prompts == prompts[chosen[-1]]).sum(axis=1) <= most
        free[chosen[-1]] = False
    if fill and len(chosen) < min(count, len(order)) and len(order) <= _FEW:
        chosen = max(chosen, _largest(prompts, count, most), key=len)
    return [int(order[place]) for place in chosen]


def _largest(prompts: NDArray[np.int64], count: int, most: int) -> list[int]:
    """The first set of ``count`` prompts in the order of the scores, or the largest that was tried."""
    allowed = (prompts[:, None] == prompts[None]).sum(axis=2) <= most
    after = [
        sum(1 << int(other) for other in np.flatnonzero(row) if other > place) for place, row in enumerate(allowed)
    ]
    best: list[int] = []
    stack: list[tuple[list[int], int]] = [([], (1 << len(prompts)) - 1)]
    for _ in range(_TRIES):
        if not stack or len(best) == count:
            break
        chosen, free = stack.pop()
        if len(chosen) > len(best):
            best = chosen
        if free and len(chosen) + free.bit_count() > len(best):
            first = (free & -free).bit_length() - 1
            stack.append((chosen, free & (free - 1)))  # without it, tried after all sets with it
            stack.append(([*chosen, first], free & after[first]))
    return best


def shortage(found: int, asked: int) -> str:
    """A line that says that there are fewer prompts than asked for; "" where there are not."""
    if found >= asked:
        return ""
    return f"Only {found} of {asked} prompts could be found that differ enough from each other."
