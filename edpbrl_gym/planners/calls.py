"""What planners are called with: prompts to extend, and answered questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.likelihood import Response
from edpbrl_gym.likelihood.choice import check_options

__all__ = ["check_answers", "check_prefixes"]


def check_prefixes(prefixes: ArrayLike, sizes: tuple[int, ...], num_options: int) -> NDArray[np.int64]:
    """Tokens of the lanes so far, (K, h), h < H.

    Args:
        prefixes: Tokens (K, h).
        sizes: Tokens of each step, (H,).
        num_options: K.

    Raises:
        TypeError: Tokens that are no integers.
        ValueError: Another number of lanes, tokens that don't exist, or complete prompts.
    """
    before = check_integers(prefixes, "prefixes", shape=(num_options, "h"), low=0)
    if before.shape[1] >= len(sizes):
        raise ValueError(
            f"Expected prompts of fewer than {len(sizes)} tokens, got {before.shape[1]}; they are complete"
        )
    for step, size in enumerate(sizes[: before.shape[1]]):
        check_integers(before[:, step], f"prefixes[:, {step}]", shape=(num_options,), high=size - 1)
    return before


def check_answers(
    options: ArrayLike, responses: Sequence[Response | int], num_options: int, dimension: int
) -> tuple[NDArray[np.float64], list[Response]]:
    """Features of answered questions, (n, K, d), and the answers; an integer is the best option.

    The features are a copy, since callers reuse their arrays.

    Raises:
        ValueError: Shapes that don't fit, or NaN.
    """
    shape = ("n", num_options, dimension)
    features = np.array(check_array(check_options(options), "options", shape=shape))
    return features, [response if isinstance(response, Response) else Response.best(response) for response in responses]
