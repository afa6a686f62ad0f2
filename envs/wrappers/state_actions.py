"""State-action rewards r(s, a): the last action becomes part of the observation and of the features."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats, Indices
from edpbrl_gym._base_environment import base_environment, mdp_states
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.envs.common import check_lane_actions
from edpbrl_gym.envs.wrappers.described import DescribesLanes
from edpbrl_gym.envs.wrappers.lanes import LaneTracker
from edpbrl_gym.features.maps import join_actions
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP

__all__ = ["StateActionFeatures", "StateActionFeaturesVector"]

Join = Literal["concatenated", "products"]

_OF_OBSERVATIONS = ("trajectory_texts", "state_texts", "mdp_step")
_NONE = -1  # no action was taken yet


class _Augmentation:
    """Observations with the last action: how they are put together and taken apart.

    Integer observations get one more integer, the action or A for none; others become float32 vectors with the
    indicators of the action at the end, zeros for none.
    """

    def __init__(self, observations: Any, actions: Any) -> None:
        if not isinstance(actions, Discrete) or actions.start != 0:
            raise TypeError(f"Expected an action space Discrete(A) from 0, got {actions}.")
        self.num_actions = int(actions.n)
        self.shape = tuple(observations.shape or ())
        self.space: Any
        if isinstance(observations, Discrete) and observations.start == 0:
            self.space = MultiDiscrete([int(observations.n), self.num_actions + 1])
        elif isinstance(observations, MultiDiscrete) and not observations.start.any():
            self.space = MultiDiscrete([*observations.nvec.ravel().tolist(), self.num_actions + 1])
        elif isinstance(observations, Box):
            low, high = (
                np.concatenate([bound.ravel(), np.full(self.num_actions, end)]).astype(np.float32)
                for bound, end in ((observations.low, 0.0), (observations.high, 1.0))
            )
            self.space = Box(low, high, dtype=np.float32)
        else:
            raise TypeError(f"Expected observations in a Box, or integers from 0, got {observations}; flatten them.")
        self.dtype = observations.dtype

    def augmented(self, observations: Any, actions: Indices) -> NDArray[Any]:
        """Observations (n, ...) and the last actions (n,), -1 for none, as augmented observations."""
        rows = np.asarray(observations).reshape(len(actions), math.prod(self.shape))
        if isinstance(self.space, MultiDiscrete):
            last = np.where(actions == _NONE, self.num_actions, actions)
            return np.concatenate([rows, last[:, None]], axis=1).astype(np.int64)
        return np.concatenate([rows, self._one_hot(actions)], axis=1).astype(np.float32)

    def split(self, observations: ArrayLike) -> tuple[NDArray[Any], Floats]:
        """The observations before, (n, ...), and the indicators of the last actions, (n, A)."""
        rows = np.asarray(observations)
        if rows.ndim != 2 or rows.shape[1:] != self.space.shape:
            raise ValueError(f"Expected observations (n, {self.space.shape[0]}), got shape {rows.shape}.")
        extra = 1 if isinstance(self.space, MultiDiscrete) else self.num_actions
        before = rows[:, :-extra].reshape(len(rows), *self.shape).astype(self.dtype)
        if extra == 1 and isinstance(self.space, MultiDiscrete):
            last = np.where(rows[:, -1] == self.num_actions, _NONE, rows[:, -1])
            return before, self._one_hot(last)
        return before, rows[:, -extra:].astype(np.float64)

    def _one_hot(self, actions: Indices) -> Floats:
        return (actions[:, None] == np.arange(self.num_actions)).astype(np.float64)


class _StateActions(DescribesLanes):
    """The features of state-action pairs, for both wrappers."""

    join: Join
    _augmentation: _Augmentation

    def mdp_state(self, observations: ArrayLike) -> NDArray[np.intp]:
        """MDP state of each lane, (n,): the last action is no part of it."""
        return mdp_states(self._base, self._augmentation.split(observations)[0])

    @cached_property
    def _pairs(self) -> tuple[FiniteHorizonMDP, Floats]:
        """The MDP with a row for each pair, and the rows."""
        mdp: FiniteHorizonMDP = self._base.mdp
        indicators = (mdp.pair_action[:, None] == np.arange(self._augmentation.num_actions)).astype(np.float64)
        rows = join_actions(np.asarray(self._base.features)[mdp.pair_row], indicators, self.join)
        if isinstance(mdp, PromptMDP):  # its rows are its pairs
            return mdp, rows
        paired = FiniteHorizonMDP(
            pair_state=mdp.pair_state,
            pair_action=mdp.pair_action,
            transitions=mdp.transitions,
            initial=mdp.initial,
            horizon=mdp.horizon,
            admissible=mdp.admissible,
            pair_row=np.arange(mdp.num_pairs),
            allow_unreachable=True,  # as the environment's own MDP, which was checked
        )
        return paired, rows

    @property
    def feature_maps(self) -> tuple[str, ...]:
        """Names of the maps so far, the innermost first."""
        return (*getattr(self._base, "feature_maps", ()), f"actions({self._augmentation.num_actions}, {self.join})")

    def _described(self, name: str, value: Any) -> Any:
        if name == "encoder":
            raise AttributeError("no encoder of texts gives the features of state-action pairs")
        if name in ("mdp", "features"):
            return self._pairs[0 if name == "mdp" else 1]
        if name in ("trajectory_features", "state_features"):
            return lambda observations: self._joined(value, observations)
        if name in _OF_OBSERVATIONS:
            return lambda observations: value(self._augmentation.split(observations)[0])
        return value

    def _joined(self, features: Any, observations: ArrayLike) -> Floats:
        before, actions = self._augmentation.split(observations)
        return join_actions(features(before), actions, self.join)


class StateActionFeatures(_StateActions, gymnasium.Wrapper, RecordConstructorArgs):
    """Features of state and action, for tastes about what is done: r(s, a) = theta . phi(s, a).

    The paper's augmentation S' = S x A (section 3): the last action is appended to the flattened observation, and
    ``trajectory_features`` and ``state_features`` join the environment's features with its indicators. A tabular
    environment gets one feature row for each pair (s, a), which ``.features`` lists and ``.mdp`` refers to; its states
    and transitions need not grow for that, since an MDP here shows rows of pairs.

    Before the first action of an episode the indicators are zeros. There is no ``encoder``, as the features are not
    those of texts.

    Args:
        env: An environment with actions ``Discrete(A)`` and observations that are one array.
        join: "concatenated": [phi(s), e_a], one taste for states and one for actions; "products": phi(s) for each
            action, a taste for states that depends on the action.

    Raises:
        TypeError: A vector environment, or another kind of space.
        ValueError: Another ``join``.
    """

    def __init__(self, env: gymnasium.Env, join: Join = "concatenated") -> None:
        if isinstance(env, VectorEnv):
            raise TypeError("Expected a single environment, got a vector environment; use StateActionFeaturesVector.")
        RecordConstructorArgs.__init__(self, join=join)
        gymnasium.Wrapper.__init__(self, env)
        self._base = base_environment(env)
        check_choice_of(join, "join", ("concatenated", "products"))
        self.join = join
        self._augmentation = _Augmentation(env.observation_space, env.action_space)
        self.observation_space = self._augmentation.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; no action was taken yet."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._augmentation.augmented(np.asarray(observation)[None], np.array([_NONE]))[0], info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action and observe it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        augmented = self._augmentation.augmented(np.asarray(observation)[None], np.array([int(action)]))[0]
        return augmented, reward, terminated, truncated, info


class StateActionFeaturesVector(_StateActions, VectorWrapper, RecordConstructorArgs):
    """``StateActionFeatures`` for a vector environment, in all three autoreset modes.

    Args:
        env: A vector environment.
        join: "concatenated" or "products".

    Raises:
        TypeError: Another kind of space, or a vector environment that does not state its autoreset mode.
        ValueError: Another ``join``.
    """

    def __init__(self, env: VectorEnv, join: Join = "concatenated") -> None:
        RecordConstructorArgs.__init__(self, join=join)
        VectorWrapper.__init__(self, env)
        self._base = base_environment(env)
        check_choice_of(join, "join", ("concatenated", "products"))
        self.join = join
        self._tracker = LaneTracker(env)
        self._augmentation = _Augmentation(env.single_observation_space, env.single_action_space)
        self.single_observation_space = self._augmentation.space
        self.observation_space = batch_space(self._augmentation.space, self.num_envs)
        self._last: Indices = np.full(self.num_envs, _NONE, dtype=np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episodes in all lanes, or in those of ``options["reset_mask"]``."""
        mask = self._tracker.reset_mask(options)
        observations, infos = self.env.reset(seed=seed, options=options)
        self._tracker.reset(mask)
        self._last[mask] = _NONE
        return self._augmentation.augmented(observations, self._last), infos

    def step(self, actions: Any) -> tuple[Any, Any, Booleans, Booleans, dict[str, Any]]:
        """Step all lanes; each observes its action, or none where an episode begins."""
        played = check_lane_actions(actions, self.num_envs)
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._tracker.step(observations, terminations, truncations, infos)
        self._last = np.where(self._tracker.acted, played, _NONE)
        if self._tracker.mode is AutoresetMode.SAME_STEP:
            ended = np.logical_or(terminations, truncations)
            infos = self._with_final_actions(infos, ended)
            self._last[ended] = _NONE
        return self._augmentation.augmented(observations, self._last), rewards, terminations, truncations, infos

    def _with_final_actions(self, infos: dict[str, Any], ended: Booleans) -> dict[str, Any]:
        """The infos with the last action in the final observations."""
        if not ended.any():
            return infos
        final = np.full(self.num_envs, None, dtype=object)
        lanes = np.flatnonzero(ended)
        rows = self._augmentation.augmented(np.stack(infos["final_obs"][lanes]), self._last[lanes])
        for lane, row in zip(lanes.tolist(), rows, strict=True):
            final[lane] = row
        infos["final_obs"] = final
        return infos
