"""State-action rewards r(s, a): the last action becomes part of the observation and of the features."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.utils import RecordConstructorArgs

from edpbrl_gym._arrays import Floats
from edpbrl_gym._base_environment import base_environment, mdp_states
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP

__all__ = ["StateActionFeatures"]


class StateActionFeatures(gymnasium.Wrapper, RecordConstructorArgs):
    """Features [phi(s), e_a] of state and action, for r(s, a) = f(s) + g(a): the paper's S' = S x A (section 3).

    The last action is appended to the observation, A before the first one, whose indicators e_a are zeros. A tabular
    environment gets a feature row for each pair. For several lanes put wrapped environments into a ``SyncVectorEnv``.
    Actions must be ``Discrete(A)`` and observations integers, both from 0.
    """

    describes_lanes = True  # to ``base_environment``

    def __init__(self, env: gymnasium.Env) -> None:
        seen, actions = env.observation_space, env.action_space
        if not isinstance(seen, Discrete | MultiDiscrete) or np.any(seen.start):
            raise TypeError(f"Expected observations of integers from 0, got {seen}.")
        if not isinstance(actions, Discrete) or actions.start != 0:
            raise TypeError(f"Expected an environment, not of lanes, with actions Discrete(A) from 0, got {actions}.")
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self._base, self._num_actions = base_environment(env), int(actions.n)
        sizes = np.ravel(seen.n if isinstance(seen, Discrete) else seen.nvec).tolist()
        self.observation_space = MultiDiscrete([*sizes, self._num_actions + 1])
        self.feature_maps = (f"actions({actions.n}, concatenated)",)  # in the metadata of answers

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; no action was taken yet."""
        observation, info = self.env.reset(seed=seed, options=options)
        return np.append(observation, self._num_actions), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action and observe it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return np.append(observation, int(action)), reward, terminated, truncated, info

    def mdp_state(self, observations: Any) -> Any:
        """MDP state of each lane, (n,): the last action is no part of it."""
        return mdp_states(self._base, self._before(observations))

    def __getattr__(self, name: str) -> Any:
        """An attribute of the environment, redefined where it is about features; no encoder of texts gives these."""
        if name.startswith("_") or name == "encoder":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        value = getattr(self._base, name)
        if name in ("mdp", "features"):
            return self._pairs[name == "features"]
        if name in ("trajectory_features", "state_features"):
            return lambda rows: np.hstack([value(self._before(rows)), self._one_hot(np.asarray(rows)[:, -1])])
        if name in ("trajectory_texts", "state_texts", "mdp_step"):
            return lambda rows: value(self._before(rows))
        return value

    @cached_property
    def _pairs(self) -> tuple[FiniteHorizonMDP, Floats]:
        mdp: FiniteHorizonMDP = self._base.mdp
        rows = np.hstack([np.asarray(self._base.features)[mdp.pair_row], self._one_hot(mdp.pair_action)])
        if isinstance(mdp, PromptMDP):  # its rows are its pairs
            return mdp, rows
        kept = ("pair_state", "pair_action", "transitions", "initial", "horizon", "admissible")
        arguments: dict[str, Any] = {name: getattr(mdp, name) for name in kept}
        return FiniteHorizonMDP(**arguments, pair_row=np.arange(mdp.num_pairs), allow_unreachable=True), rows

    def _one_hot(self, actions: Any) -> Floats:
        return (actions[:, None] == np.arange(self._num_actions)).astype(np.float64)

    def _before(self, observations: Any) -> Any:
        space = self.env.observation_space
        return np.asarray(observations)[:, :-1].reshape(-1, *(space.shape or ())).astype(space.dtype)
