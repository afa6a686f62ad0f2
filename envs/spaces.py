"""Action spaces whose unmasked samples are tokens that are legal in every state."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Indices

__all__ = ["LegalDiscrete", "LegalMultiDiscrete"]


class LegalDiscrete(Discrete):
    """``Discrete(n)`` whose ``sample()`` without a mask draws from the actions that are legal in every state.

    It compares equal to ``Discrete(n)``. Code that samples without knowing of masks (both ``check_env``s, a first
    random rollout) never plays an illegal action; pass ``mask=info["action_mask"]`` to draw from all legal ones.

    Args:
        n: Number of actions.
        always_legal: The actions that are legal in every state, at least one.
        seed: Seed of the sampler.
    """

    def __init__(self, n: int, always_legal: ArrayLike, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(n, seed=seed)
        self.always_legal: Indices = np.asarray(always_legal, dtype=np.int64)

    def sample(self, mask: NDArray[np.int8] | None = None, probability: Any = None) -> np.int64:
        """Draw an action; without arguments one that is legal in every state, else as ``Discrete.sample``."""
        if mask is None and probability is None:
            return np.int64(self.always_legal[self.np_random.integers(self.always_legal.size)])
        return np.int64(super().sample(mask, probability))


class LegalMultiDiscrete(MultiDiscrete):
    """A batch of ``LegalDiscrete`` spaces, one for each lane of a vector environment.

    Args:
        n: Number of actions of each lane.
        always_legal: The actions that are legal in every state.
        num_envs: Number of lanes.
        seed: Seed of the sampler.
    """

    def __init__(
        self, n: int, always_legal: ArrayLike, num_envs: int, seed: int | np.random.Generator | None = None
    ) -> None:
        super().__init__(np.full(num_envs, n, dtype=np.int64), seed=seed)
        self.always_legal: Indices = np.asarray(always_legal, dtype=np.int64)

    def sample(self, mask: tuple[NDArray[np.int8], ...] | None = None, probability: Any = None) -> NDArray[np.int64]:
        """Draw one action per lane; for masked draws pass ``mask=tuple(infos["action_mask"])``."""
        if mask is None and probability is None:
            return self.always_legal[self.np_random.integers(self.always_legal.size, size=self.shape)]
        return super().sample(mask, probability)


@batch_space.register(LegalDiscrete)
def _batch_legal(space: LegalDiscrete, n: int = 1) -> Any:
    # as Gymnasium's own registrations do, the batch samples from a copy of the space's generator
    from copy import deepcopy

    return LegalMultiDiscrete(int(space.n), space.always_legal, n, seed=deepcopy(space.np_random))
