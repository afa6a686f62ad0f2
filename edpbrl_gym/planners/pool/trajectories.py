"""Random trajectories as the items of a pool, for sampling-based methods whose options are prompts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_count
from edpbrl_gym.planners.option_features import ComposedFeatures, OptionFeatures

__all__ = ["Playback", "sample_trajectories", "trajectory_features"]


def sample_trajectories(sizes: tuple[int, ...], size: int, rng: np.random.Generator) -> Indices:
    """Distinct prompts of uniformly drawn tokens, (n, H): ``size`` less the duplicates."""
    count = check_count(size, "size")
    tokens = np.stack([rng.integers(step_size, size=count) for step_size in sizes], axis=1)
    _, first = np.unique(tokens, axis=0, return_index=True)
    return tokens[np.sort(first)]


def trajectory_features(options: OptionFeatures, tokens: Indices) -> Floats:
    """Features of whole trajectories, (n, d), of their tokens (n, H).

    For partial prompts those of the complete prompt, embedded by the encoder of `ComposedFeatures`; for tokens the sum
    over the steps.
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
class Playback:
    """Chosen trajectories that are being played, K at a time.

    Attributes:
        sizes: Tokens of each step, (H,).
        episodes: Tokens of each episode's trajectories, (K, H) each, oldest first.
    """

    sizes: tuple[int, ...]
    episodes: list[Indices] = field(default_factory=list)

    def begin(self, tokens: Indices) -> None:
        """Add trajectories to play, (K, H)."""
        self.episodes.append(tokens)

    def next(self, before: Indices) -> Indices | None:
        """The tokens (K,) that follow ``before``, (K, h); None if no episode begins with it."""
        step = before.shape[1]
        for index, tokens in enumerate(self.episodes):
            if np.array_equal(tokens[:, :step], before):
                if step + 1 == len(self.sizes):
                    del self.episodes[index]
                return tokens[:, step]
        return None
