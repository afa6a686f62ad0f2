"""Map illegal actions to legal ones, so that algorithms without action masks can play."""

from __future__ import annotations

import operator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans
from edpbrl_gym.envs.common import check_lane_actions

__all__ = ["LegalActions", "LegalActionsVector", "legal_actions"]

Actions = NDArray[np.int64]


def legal_actions(mask: ArrayLike) -> Actions:
    """Return the legal action that each of the V actions stands for, shape (V,).

    A legal action stands for itself. With n legal and m illegal actions, the i-th illegal one (i = 0..m-1) stands for
    the legal one number floor(i * n / m), so every legal action is played by floor(V / n) or ceil(V / n) of the V
    actions: no fixed map is closer to uniform. The remainder is spread evenly over the legal ones.

    Args:
        mask: Which actions are legal, (V,), at least one.

    Raises:
        ValueError: No action is legal.
    """
    allowed = np.asarray(mask, dtype=np.bool_)
    legal, illegal = np.flatnonzero(allowed), np.flatnonzero(~allowed)
    if not legal.size:
        raise ValueError(f"Expected at least one legal action among {allowed.size}, got a mask of zeros.")
    table = np.arange(allowed.size)
    table[illegal] = legal[np.arange(illegal.size) * legal.size // max(illegal.size, 1)]
    return table


def _table(mask: Booleans) -> Actions:
    """``legal_actions`` of a mask; every action stands for itself where none is legal (an episode's end)."""
    return legal_actions(mask) if mask.any() else np.arange(mask.size)


def _check_range(action: int, count: int) -> int:
    if not 0 <= action < count:
        raise ValueError(f"Expected an action in 0..{count - 1}, got {action}.")
    return action


def _played(action: Any, mask: Booleans) -> int:
    """Return the action that one stands for under a mask."""
    try:
        index = operator.index(action)
    except TypeError:
        raise TypeError(f"Expected an integer action, got {type(action).__name__}: {action!r}.") from None
    return int(_table(mask)[_check_range(index, mask.size)])


class LegalActions(gymnasium.Wrapper, RecordConstructorArgs):
    """Let algorithms without action masks (PPO, A2C, DQN, ...) play an environment with illegal actions.

    Files of a vocabulary differ in size, so not every action is legal at every step, and an illegal one is an error.
    Here each of the V actions plays a legal one, as ``info["action_mask"]`` says what is legal: a legal action plays
    itself, illegal ones are spread evenly over the legal ones (``legal_actions`` is the map). ``action_space`` is a
    plain ``Discrete(V)``.

    The cost: every policy of the environment can still be played, so the best return is the same; but where V
    is no multiple of the number n of legal actions, a policy that is uniform over the V actions plays each legal one
    with probability floor(V / n) / V or ceil(V / n) / V, not 1 / n, and several actions of a step have the same effect,
    which the algorithm has to learn. An algorithm with masks (MaskablePPO) has neither drawback.

    ``info["played_action"]`` is the action that the environment received. Make it the outermost wrapper that sees
    actions: those inside, such as ``PreferenceQuery``, then see what was played.

    Args:
        env: An environment with a ``Discrete`` action space from 0 whose infos have ``action_mask``.

    Raises:
        TypeError: A vector environment, or another action space; at ``reset``, infos without ``action_mask``.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        if isinstance(env, VectorEnv):
            raise TypeError("Expected a single environment, got a vector environment; use LegalActionsVector.")
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self._count = _check_space(env.action_space)
        self.action_space = Discrete(self._count)
        self._mask: Booleans = np.zeros(self._count, dtype=np.bool_)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._mask = _mask_of(info, (self._count,))
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play the legal action that ``action`` stands for.

        Raises:
            ValueError: An action outside 0..V-1.
            TypeError: An action that is no integer.
        """
        played = _played(action, self._mask)
        observation, reward, terminated, truncated, info = self.env.step(played)
        self._mask = _mask_of(info, (self._count,))
        return observation, reward, terminated, truncated, {**info, "played_action": played}


class LegalActionsVector(VectorWrapper, RecordConstructorArgs):
    """``LegalActions`` for a vector environment; ``infos["played_action"]`` is an integer array (num_envs,)."""

    def __init__(self, env: VectorEnv) -> None:
        RecordConstructorArgs.__init__(self)
        VectorWrapper.__init__(self, env)
        self._count = _check_space(env.single_action_space)
        self.single_action_space = Discrete(self._count)
        self.action_space = MultiDiscrete(np.full(self.num_envs, self._count))
        self._masks: Booleans = np.zeros((self.num_envs, self._count), dtype=np.bool_)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all lanes or those of ``options["reset_mask"]``."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._update_masks(infos)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Play in each lane the legal action that its action stands for.

        Raises:
            ValueError: Actions that are not integers in 0..V-1 of shape (num_envs,).
        """
        chosen = check_lane_actions(actions, self.num_envs)
        keys = [mask.tobytes() for mask in self._masks]
        tables = {key: _table(mask) for key, mask in dict(zip(keys, self._masks, strict=True)).items()}
        pairs = zip(chosen.tolist(), keys, strict=True)
        played = np.array([tables[key][_check_range(action, self._count)] for action, key in pairs], dtype=np.int64)
        observations, rewards, terminations, truncations, infos = self.env.step(played)
        self._update_masks(infos)
        infos["played_action"] = played
        return observations, rewards, terminations, truncations, infos

    def _update_masks(self, infos: dict[str, Any]) -> None:
        """Update the masks of the lanes in the infos."""
        masks = _mask_of(infos, (self.num_envs, self._count))
        present = np.asarray(infos.get("_action_mask", np.ones(self.num_envs)), dtype=np.bool_)
        self._masks[present] = masks[present]


def _check_space(space: Any) -> int:
    """Return V of a ``Discrete(V)`` that begins at 0."""
    if not isinstance(space, Discrete) or space.start != 0:
        raise TypeError(f"Expected an action space Discrete(V) from 0, got {space}; there is nothing to map.")
    return int(space.n)


def _mask_of(infos: dict[str, Any], shape: tuple[int, ...]) -> Booleans:
    if "action_mask" not in infos:
        raise TypeError(
            "Expected infos with action_mask, which says what is legal, got "
            f"{sorted(infos) or 'none'}; add it to the environment's reset() and step()."
        )
    mask = np.asarray(infos["action_mask"])
    if mask.shape != shape:
        raise TypeError(f"Expected action_mask of shape {shape}, got {mask.shape}.")
    return mask.astype(np.bool_)
