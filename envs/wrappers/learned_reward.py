"""The reward of a learned taste: theta . phi(partial prompt)."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._base_environment import base_environment
from edpbrl_gym.envs.common import LaneTracker

__all__ = ["LearnedReward", "LearnedRewardVector"]

Kind = Literal["final", "step"]


class LearnedReward(gymnasium.Wrapper, RecordConstructorArgs):
    """Reward theta . phi(tau[1:h]) with an estimated or true taste theta, so that any RL algorithm can optimise it.

    Args:
        env: An environment whose ``unwrapped`` has ``trajectory_features(observations) -> (n, d)``.
        theta: The taste, shape (d,).
        kind: "final" rewards the complete episode only; "step" rewards the partial prompt after every step.

    Raises:
        TypeError: If the environment has no ``trajectory_features`` or is a vector environment.
        ValueError: If theta has the wrong dimension or isn't finite, or ``kind`` is unknown.
    """

    def __init__(self, env: gymnasium.Env, theta: ArrayLike, kind: Kind = "final") -> None:
        if isinstance(env, VectorEnv):
            raise TypeError("Expected a single environment, got a vector environment; use LearnedRewardVector.")
        # a list, so that the spec of the wrapped environment can be written as JSON
        RecordConstructorArgs.__init__(self, theta=np.asarray(theta).tolist(), kind=kind)
        gymnasium.Wrapper.__init__(self, env)
        self._base = base_environment(env)
        self.theta = _check_theta(theta, self._base)
        self.kind = _check_kind(kind)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step; the reward is that of the taste."""
        observation, _, terminated, truncated, info = self.env.step(action)
        reward = 0.0
        if self.kind == "step" or terminated or truncated:
            reward = float(_scores(self._base, np.asarray(observation)[None], self.theta)[0])
        return observation, reward, terminated, truncated, info


class LearnedRewardVector(VectorWrapper, RecordConstructorArgs):
    """``LearnedReward`` for a vector environment: one encoder call per step for all lanes.

    A step that only resets a lane (autoreset mode NEXT_STEP) has reward 0.
    """

    def __init__(self, env: VectorEnv, theta: ArrayLike, kind: Kind = "final") -> None:
        RecordConstructorArgs.__init__(self, theta=np.asarray(theta).tolist(), kind=kind)
        VectorWrapper.__init__(self, env)
        self._base = base_environment(env)
        self._tracker = LaneTracker(env)
        self.theta = _check_theta(theta, self._base)
        self.kind = _check_kind(kind)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all lanes or those of ``options["reset_mask"]``."""
        mask = self._tracker.reset_mask(options)
        result = self.env.reset(seed=seed, options=options)
        self._tracker.reset(mask)
        return result

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step all lanes; the rewards are those of the taste."""
        observations, _, terminations, truncations, infos = self.env.step(actions)
        reached = self._tracker.step(observations, terminations, truncations, infos)
        scored = self._tracker.acted.copy()
        if self.kind == "final":
            scored &= np.logical_or(terminations, truncations)
        rewards = np.zeros(self.num_envs)
        if scored.any():
            rewards[scored] = _scores(self._base, reached[scored], self.theta)
        return observations, rewards, terminations, truncations, infos


def _check_kind(kind: Kind) -> Kind:
    if kind not in ("final", "step"):
        raise ValueError(f'Expected kind to be "final" or "step", got {kind!r}.')
    return kind


def _check_theta(theta: ArrayLike, base: Any) -> NDArray[np.float64]:
    if not hasattr(base, "trajectory_features"):
        raise TypeError(
            f"Expected {type(base).__name__} to have trajectory_features(observations) -> (n, d), which the learned "
            "reward scores; add that method."
        )
    vector = np.array(theta, dtype=np.float64)
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise ValueError(f"Expected theta as a finite vector (d,), got shape {vector.shape}.")
    encoder = getattr(base, "encoder", None)
    if encoder is not None:
        _check_dimension(vector, int(encoder.dimension))
    return vector


def _check_dimension(theta: NDArray[np.float64], dimension: int) -> None:
    if theta.size != dimension:
        raise ValueError(
            f"Expected theta of dimension {dimension}, the environment's feature dimension, got {theta.size}; use the "
            "encoder that theta was estimated with."
        )


def _scores(base: Any, observations: NDArray[Any], theta: NDArray[np.float64]) -> NDArray[np.float64]:
    features = np.asarray(base.trajectory_features(observations), dtype=np.float64)
    _check_dimension(theta, features.shape[1])
    return features @ theta
