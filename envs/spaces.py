"""Action spaces whose unmasked samples are legal at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

__all__ = ["TokenDiscrete", "TokenMultiDiscrete"]


class TokenDiscrete(Discrete):
    """``Discrete(n)`` for steps that allow different numbers of actions, always the first ones.

    The space contains 0..n-1, as ``Discrete(n)`` does and compares equal to it. Only ``sample()`` without a mask
    differs: it draws from the ``always_legal`` first actions, which every step allows. Code that samples without
    knowing of masks (Gymnasium's and SB3's ``check_env``, a first random rollout) then never plays an illegal action;
    pass ``mask=info["action_mask"]`` to draw from everything that the current step allows.

    Args:
        n: Number of actions of the step that allows most.
        always_legal: Number of actions of the step that allows fewest, 1 <= always_legal <= n.
        seed: Seed of the sampler.
    """

    def __init__(self, n: int, always_legal: int, seed: int | np.random.Generator | None = None) -> None:
        if not 1 <= always_legal <= n:
            raise ValueError(f"Expected 1 <= always_legal <= n = {n}, got {always_legal}.")
        super().__init__(n, seed=seed)
        self.always_legal = int(always_legal)

    def sample(self, mask: NDArray[np.int8] | None = None, probability: Any = None) -> np.int64:
        """Draw an action; without arguments one that is legal at every step, else as ``Discrete.sample``."""
        if mask is None and probability is None:
            return np.int64(self.np_random.integers(self.always_legal))
        return np.int64(super().sample(mask, probability))


class TokenMultiDiscrete(MultiDiscrete):
    """A batch of ``TokenDiscrete`` spaces, one for each lane of a vector environment.

    Args:
        n: Number of actions of each lane.
        always_legal: Number of actions that every step allows.
        num_envs: Number of lanes.
        seed: Seed of the sampler.
    """

    def __init__(self, n: int, always_legal: int, num_envs: int, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(np.full(num_envs, n, dtype=np.int64), seed=seed)
        self.always_legal = int(always_legal)

    def sample(
        self,
        mask: tuple[NDArray[np.int8], ...] | None = None,
        probability: Any = None,
    ) -> NDArray[np.int64]:
        """Draw one action per lane; for masked draws pass ``mask=tuple(infos["action_mask"])``."""
        if mask is None and probability is None:
            return self.np_random.integers(self.always_legal, size=self.shape, dtype=np.int64)
        return super().sample(mask, probability)


@batch_space.register(TokenDiscrete)
def _batch_tokens(space: TokenDiscrete, n: int = 1) -> Any:
    # as Gymnasium's own registrations do, the batch samples from a copy of the space's generator
    from copy import deepcopy

    return TokenMultiDiscrete(int(space.n), space.always_legal, n, seed=deepcopy(space.np_random))
