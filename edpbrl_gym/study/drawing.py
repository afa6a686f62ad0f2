"""Options drawn at random for questions that don't count."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.session import QuestionMaker
from edpbrl_gym.vocabulary.tokens import fold

__all__ = ["draw_options"]

_TRIES = 1000


def draw_options(maker: QuestionMaker, num_options: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Tokens of different options: complete prompts (K, H), or for "state" feedback tokens of the first step, (K, 1).

    Raises:
        ValueError: The vocabulary hasn't so many different ones.
    """
    sizes = maker.vocabulary.sizes if maker.feedback != "state" else maker.vocabulary.sizes[:1]
    for _ in range(_TRIES):
        tokens = np.stack([rng.integers(sizes) for _ in range(num_options)])
        if len({fold(text) for text in maker.texts(tokens)}) == num_options:
            return tokens
    raise ValueError(f"Expected a vocabulary with {num_options} different options, got one of sizes {sizes}")
