"""The baseline: uniformly random legal actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from edpbrl_gym.agents.base import Agent, EpisodeStart, State
from edpbrl_gym.agents.tabular import TabularAgent, environment_mdp

__all__ = ["RandomAgent"]


class RandomAgent(Agent):
    """Each lane draws uniformly from the actions that its state allows (the paper's Random).

    With ``env.unwrapped.mdp`` the legal actions are the MDP's. Without it the agent draws from the single action space,
    which is right where every action is always legal.
    """

    name = "random"

    def __init__(self, env: Any, **arguments: Any) -> None:
        super().__init__(env, **arguments)
        self._player: TabularAgent | None = None
        if hasattr(self.base, "mdp"):
            uniform = environment_mdp(self.base, who=self.name).uniform_policy()
            self._player = TabularAgent(
                env, policies=np.broadcast_to(uniform, (self.num_options, *uniform.shape)), **arguments
            )
            self._player.rng = self.rng
        self._space = getattr(self.base, "single_action_space", None) or self.base.action_space
        if self._player is None and not isinstance(self._space, Discrete):
            raise TypeError(
                f"The agent 'random' needs a Discrete action space or .mdp on the environment, got {self._space}."
            )

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """Draw a legal action for each lane; ``deterministic`` takes the first legal one."""
        if self._player is not None:
            return self._player.predict(observation, state, episode_start, deterministic)
        space = getattr(self.base, "single_observation_space", None) or self.base.observation_space
        array = np.asarray(observation)
        single = array.shape == space.shape
        count = 1 if single else len(array)
        draws = self.rng.integers(int(self._space.n), size=count)
        actions = int(self._space.start) + (np.zeros_like(draws) if deterministic else draws)
        return (actions[0] if single else actions), state
