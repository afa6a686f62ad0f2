"""Bookkeeping of vector wrappers: which lanes acted, at which step, and the observations they reached."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans

__all__ = ["LaneTracker"]


class LaneTracker:
    """Follow the lanes of a vector environment through all three autoreset modes.

    Attributes:
        acted: Lanes whose last step was an action and not an automatic reset, shape (num_envs,).
        ended: Lanes whose episode ended with that action, shape (num_envs,).
        step_index: Step h (0-based) of that action within the lane's episode, shape (num_envs,); only meaningful
            where ``acted``.

    Args:
        env: The vector environment.

    Raises:
        TypeError: If the environment doesn't state its autoreset mode, or its observations are no single array.
    """

    def __init__(self, env: VectorEnv) -> None:
        mode = env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise TypeError(
                "Expected env.metadata['autoreset_mode'] to be a gymnasium.vector.AutoresetMode, got "
                f"{mode!r}; set it on the vector environment."
            )
        if env.observation_space.shape is None:
            raise TypeError(
                "Expected a vector environment with observations as one array (n, ...), got the space "
                f"{type(env.observation_space).__name__}; leave TextObservation off, or flatten the observations "
                "before this wrapper."
            )
        self.mode = mode
        self.num_envs = int(env.num_envs)
        self.step_index: NDArray[np.int64] = np.zeros(self.num_envs, dtype=np.int64)
        self._num_actions: NDArray[np.int64] = np.zeros(self.num_envs, dtype=np.int64)
        self.acted: Booleans = np.zeros(self.num_envs, dtype=np.bool_)
        self.ended: Booleans = np.zeros(self.num_envs, dtype=np.bool_)
        self._ended: Booleans = np.zeros(self.num_envs, dtype=np.bool_)  # and not yet begun again

    @property
    def episode_start(self) -> Booleans:
        """Lanes whose next step is the first action of an episode; what ``predict`` takes as ``episode_start``."""
        return (self._num_actions == 0) & ~self._ended

    def reset_mask(self, options: dict[str, Any] | None) -> Booleans:
        """Lanes that a reset with these options begins; read before the reset, as Gymnasium removes the entry."""
        mask = (options or {}).get("reset_mask")
        return np.ones(self.num_envs, dtype=np.bool_) if mask is None else np.array(mask, dtype=np.bool_)

    def reset(self, mask: Booleans) -> None:
        """Record that the masked lanes begin a new episode."""
        self._num_actions[mask] = 0
        self._ended[mask] = False

    def step(self, observations: Any, terminations: Booleans, truncations: Booleans, infos: dict[str, Any]) -> Any:
        """Record a step and return the observation that each lane reached, before any automatic reset.

        Args:
            observations: As returned by the environment, shape (num_envs, ...).
            terminations: Ended lanes.
            truncations: Cut lanes.
            infos: As returned by the environment; holds ``final_obs`` in mode SAME_STEP.

        Returns:
            The observations, with final ones in place of the first ones of the next episode.
        """
        ended = np.logical_or(terminations, truncations)
        self.acted = ~self._ended if self.mode is AutoresetMode.NEXT_STEP else np.ones_like(self._ended)
        self.ended = ended & self.acted
        self.step_index = self._num_actions
        self._num_actions = np.where(self.acted, self._num_actions + 1, 0)
        if self.mode is not AutoresetMode.SAME_STEP:
            self._ended = ended
            return observations
        reached = np.array(observations)
        if ended.any():
            reached[ended] = np.stack(infos["final_obs"][ended])
        self._num_actions[ended] = 0
        return reached
