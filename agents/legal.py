"""Legal actions of many lanes, wherever an environment says what they are."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans, Indices
from edpbrl_gym._base_environment import base_environment, mdp_states
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["LegalMasks", "PlaysLegally", "discrete_actions"]


def discrete_actions(base: Any, *, who: str) -> int:
    """Number of actions of an environment whose actions are 0..A-1, else a TypeError."""
    space = getattr(base, "single_action_space", None) or base.action_space
    if not isinstance(space, Discrete) or int(space.start) != 0:
        raise TypeError(f"The agent {who!r} needs actions Discrete(A) from 0, {type(base).__name__} has {space}.")
    return int(space.n)


class LegalMasks:
    """Which actions each lane may take.

    The environment's ``.mdp`` says it for any observations; without one, its ``action_masks()`` says it for the current
    states of all lanes of ``env``; without either every action is always legal, as it is where the action space says so
    (``always_legal`` holds all actions).

    Args:
        env: Environment or vector environment whose lanes are played.
        num_actions: A.

    Attributes:
        unrestricted: Every action is legal in every state, so that no masks are needed.
    """

    def __init__(self, env: Any, num_actions: int) -> None:
        self._env = getattr(env, "unwrapped", env)
        self._base = base_environment(env)
        self.num_actions = num_actions
        mdp = getattr(self._base, "mdp", None)
        self._mdp = mdp if isinstance(mdp, FiniteHorizonMDP) else None
        self._uniform = None if self._mdp is None else self._mdp.uniform_policy()
        if self._mdp is not None:
            complete = self._mdp.num_pairs == self._mdp.num_states * num_actions
            self.unrestricted = bool(complete and self._mdp.admissible.all())
        else:
            space = getattr(self._base, "single_action_space", None) or self._base.action_space
            masked = hasattr(self._env, "action_masks") or hasattr(self._base, "action_masks")
            self.unrestricted = not masked or np.size(getattr(space, "always_legal", ())) == num_actions

    def __call__(self, observations: NDArray[Any], steps: Indices) -> Booleans:
        """Legal actions of n lanes, shape (n, A); all of them where an episode is over.

        Args:
            observations: Of the lanes, as the environment itself gives them.
            steps: Step of each lane's next action.

        Raises:
            ValueError: If the environment tells the masks of another number of lanes only.
        """
        count = len(observations)
        if self.unrestricted:
            return np.ones((count, self.num_actions), dtype=np.bool_)
        masks = self._told(count) if self._mdp is None else self._of_mdp(observations, steps)
        masks[~masks.any(axis=1)] = True
        return masks

    def _of_mdp(self, observations: NDArray[Any], steps: Indices) -> Booleans:
        assert self._mdp is not None and self._uniform is not None
        masks = np.zeros((len(observations), self.num_actions), dtype=np.bool_)
        states = mdp_states(self._base, observations)
        for step in np.unique(steps[steps < self._mdp.horizon]):
            lanes = np.flatnonzero(steps == step)
            table = self._mdp.action_probabilities(self._uniform, int(step), states[lanes])
            masks[lanes, : table.shape[1]] = table > 0
        return masks

    def _told(self, count: int) -> Booleans:
        """``action_masks()`` of the lanes: of a vector environment, of each lane of one over single ones, or of one."""
        if hasattr(self._env, "action_masks"):
            masks = np.array(self._env.action_masks(), dtype=np.bool_)
        else:
            lanes = getattr(self._env, "envs", [self._base])
            masks = np.stack([np.asarray(lane.unwrapped.action_masks(), dtype=np.bool_) for lane in lanes])
        masks = np.atleast_2d(masks)
        if masks.shape != (count, self.num_actions):
            raise ValueError(
                f"Expected action_masks() of shape (n, A) = {(count, self.num_actions)} for the lanes that are played, "
                f"got {masks.shape}; make the agent on these lanes, or call play_on(env)."
            )
        return masks


class PlaysLegally:
    """What agents share that ask the lanes themselves for their legal actions."""

    env: Any
    base: Any
    num_actions: int
    _legal: LegalMasks

    def play_on(self, env: Any) -> Self:
        """From now on play these lanes, of the same kind; their legal actions are asked of them."""
        self.env, self.base = env, base_environment(env)
        self._legal = LegalMasks(env, self.num_actions)
        return self
