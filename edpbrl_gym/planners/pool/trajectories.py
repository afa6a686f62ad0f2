"""Random trajectories as the items of a pool: what sampling-based methods choose from where an option is a prompt."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_count
from edpbrl_gym.planners.option_features import ComposedFeatures, OptionFeatures

__all__ = ["Followed", "sample_trajectories", "trajectory_features"]


def sample_trajectories(sizes: tuple[int, ...], size: int, rng: np.random.Generator) -> Indices:
    """Different prompts of uniformly drawn tokens, at most ``size``, fewer where some come again, (n, H)."""
    count = check_count(size, "size")
    drawn = np.stack([rng.integers(own, size=count) for own in sizes], axis=1)
    _, first = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(first)]


def trajectory_features(options: OptionFeatures, tokens: Indices) -> Floats:
    """Features of whole trajectories, (n, d), of their tokens (n, H).

    Partial prompts: those of the last one, the complete prompt, which `ComposedFeatures` has its encoder for. Tokens:
    the sum over the steps.
    """
    last = tokens.shape[1] - 1
    if isinstance(options, ComposedFeatures):
        texts = [options.vocabulary.prompt(row) for row in tokens]
        return np.asarray(options.encoder.encode(texts), dtype=np.float64)
    offsets = options.offsets(tokens[:, :last])
    if offsets.any():
        return np.asarray(options.tokens(last)[tokens[:, last]] + offsets)
    return np.asarray(sum(options.tokens(step)[tokens[:, step]] for step in range(last + 1)))


@dataclass
class Followed:
    """Chosen trajectories that are being played, K at a time.

    Attributes:
        sizes: Tokens of each step, (H,).
        episodes: Tokens of each episode's trajectories, (K, H) each, oldest first.
    """

    sizes: tuple[int, ...]
    episodes: list[Indices] = field(default_factory=list)

    def begin(self, tokens: Indices) -> None:
        """Play these trajectories, (K, H), from their first tokens."""
        self.episodes.append(tokens)

    def next(self, before: Indices) -> Indices | None:
        """The tokens (K,) that come after ``before``, (K, h); None where that is the beginning of none of them."""
        step = before.shape[1]
        for place, tokens in enumerate(self.episodes):
            if np.array_equal(tokens[:, :step], before):
                if step + 1 == len(self.sizes):
                    del self.episodes[place]
                return tokens[:, step]
        return None
