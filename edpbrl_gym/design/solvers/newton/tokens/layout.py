"""Which steps of a prompt problem share a vocabulary, and how weights of tokens are an occupancy.

Steps with exactly the same feature rows share a block b of weight c_b = T times their number: the covariance of a
step is matrix-concave in its weights, so using the mean of their weights at all of them is no worse.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.mdp import PromptMDP

__all__ = ["PromptLayout"]


_CHUNK = 2048  # rows compared at once


class PromptLayout:
    """The blocks of a prompt problem.

    Args:
        problem: A design problem with a `PromptMDP`.

    Attributes:
        steps: Steps of each block.
        rows: Feature rows of each block.
        scale: c_b, shape (B,).
    """

    def __init__(self, problem: DesignProblem) -> None:
        if not isinstance(problem.mdp, PromptMDP):
            raise TypeError(f"Expected a problem with a PromptMDP, got {type(problem.mdp).__name__}.")
        self._mdp = problem.mdp
        slices = [problem.mdp.step_pairs(step) for step in range(problem.horizon)]
        steps: list[list[int]] = []
        for step, pairs in enumerate(slices):
            for block in steps:
                if slices[block[0]] == pairs or _equal(problem.features[slices[block[0]]], problem.features[pairs]):
                    block.append(step)
                    break
            else:
                steps.append([step])
        self.steps = tuple(tuple(block) for block in steps)
        self.rows = [slices[block[0]] for block in steps]
        self.scale: Floats = np.array([problem.episodes * len(block) for block in steps], dtype=np.float64)
        self._starts = np.cumsum([0] + [block.stop - block.start for block in self.rows])

    def occupancy(self, tokens: Positions, weights: Floats) -> Floats:
        """Occupancy (H, M) with the weights of sorted tokens at every step of their block; read-only."""
        mdp = self._mdp
        bounds = np.searchsorted(tokens, self._starts)
        if all(mdp.step_pairs(step) == mdp.step_pairs(0) for step in range(mdp.horizon)):
            result = np.broadcast_to(self._row(0, tokens, weights), (mdp.horizon, mdp.num_pairs))
        else:
            result = np.zeros((mdp.horizon, mdp.num_pairs))
            for number, steps in enumerate(self.steps):
                part = slice(bounds[number], bounds[number + 1])
                for step in steps:
                    result[step] = self._row(step, tokens[part] - self._starts[number], weights[part])
        result.setflags(write=False)
        return result

    def weights(self, occupancy: Floats) -> Floats:
        """Weights of all tokens, shape (n,), from an occupancy (H, M): the mean over the steps of each block."""
        result = []
        for steps in self.steps:
            mean = np.mean([occupancy[step, self._mdp.step_pairs(step)] for step in steps], axis=0)
            result.append(mean / mean.sum())
        return np.concatenate(result)

    def _row(self, step: int, local: Positions, weights: Floats) -> Floats:
        row = np.zeros(self._mdp.num_pairs)
        row[self._mdp.step_pairs(step).start + local] = weights
        return row


def _equal(first: NDArray, second: NDArray) -> bool:
    """Whether two vocabularies are the same; the first rows settle it for most."""
    if first.shape != second.shape or not (first[0] == second[0]).all():
        return False
    parts = [slice(begin, begin + _CHUNK) for begin in range(0, len(first), _CHUNK)]
    return all(bool((first[part] == second[part]).all()) for part in parts)
