"""What every token would add to a design: the linear oracle of the token solver, and its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.forms import ScoreForm
from edpbrl_gym.design.solvers.newton.tokens.space import Space
from edpbrl_gym.design.solvers.newton.working_set import Prices

__all__ = ["FullPricing", "Pricing", "RECHECK", "TokenPrices", "levels_of"]


RECHECK = 5e-5  # relative; float32 scores err by about 1e-6 of the largest


@dataclass(frozen=True)
class TokenPrices(Prices):
    """Tokens that improve the design, and by how much.

    Attributes:
        tokens: Tokens with a score above the mean of their block, sorted, shape (m,).
        excess: Their scores less that mean, shape (m,).
        scored: Tokens whose score was computed.
    """

    tokens: Positions
    excess: Floats
    scored: int


class Pricing(Protocol):
    """Prices all tokens at weights on the working set of a space: all of them, or by bounds first (`screening`)."""

    def __call__(self, space: Space, weights: Floats, *, exact: bool) -> TokenPrices:
        """Scores that decide the gap are float64; with `exact` all are."""
        ...


def levels_of(space: Space, weights: Floats, gradient: Floats) -> Floats:
    """Mean score of each block under the weights, shape (B,)."""
    return np.array([weights[part] @ gradient[part] for part in space.parts])


class FullPricing:
    """Scores every token in float32, and in float64 where the score decides the gap.

    Args:
        blocks: All tokens.
    """

    def __init__(self, blocks: TokenBlocks) -> None:
        self._blocks = blocks

    def __call__(self, space: Space, weights: Floats, *, exact: bool) -> TokenPrices:
        """See `Pricing`."""
        blocks = self._blocks
        gradient = space.gradient(weights)
        levels = levels_of(space, weights, gradient)
        if len(space.tokens) == len(blocks):
            return self._of_working_set(space, gradient, levels)
        form, means = space.form(weights), space.means(weights)
        scores = self._scores(space, form, means, np.float64 if exact else np.float32)
        scores[space.tokens] = gradient
        excess = np.empty_like(scores)
        gap = 0.0
        for number, block in enumerate(blocks.slices):
            if not exact:
                decisive = scores[block] >= (1.0 - RECHECK) * scores[block].max()
                decisive[space.tokens[space.parts[number]] - block.start] = False
                tokens = block.start + np.flatnonzero(decisive)
                scores[tokens] = blocks.scores(form, means, np.float64, tokens)
            excess[block] = scores[block] - levels[number]
            gap += max(0.0, float(excess[block].max()))
        positive = np.flatnonzero(excess > 0)
        return TokenPrices(gap, positive, excess[positive], len(blocks))

    def _of_working_set(self, space: Space, gradient: Floats, levels: Floats) -> TokenPrices:
        """Prices when the working set holds all tokens."""
        sizes = [part.stop - part.start for part in space.parts]
        excess = gradient - np.repeat(levels, sizes)
        gap = sum(max(0.0, float(excess[part].max())) for part in space.parts)
        positive = np.flatnonzero(excess > 0)
        return TokenPrices(float(gap), positive, excess[positive], len(excess))

    def _scores(self, space: Space, form: ScoreForm, means: Floats, dtype: type) -> Floats:
        """Scores of all tokens, or of those outside the working set where that is most of them."""
        if 2 * len(space.tokens) <= len(self._blocks):
            return self._blocks.scores(form, means, dtype)
        scores = np.empty(len(self._blocks))
        outside = np.setdiff1d(np.arange(len(scores)), space.tokens, assume_unique=True)
        scores[outside] = self._blocks.scores(form, means, dtype, outside)
        return scores
