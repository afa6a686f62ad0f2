"""Play given policies of a finite-horizon MDP, and the baseline: uniformly random legal actions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._base_environment import mdp_states
from edpbrl_gym.agents.base import Agent, EpisodeStart, State, write_arrays
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["RandomAgent", "TabularAgent", "draw_actions", "environment_mdp", "require"]


def require(base: Any, *attributes: str, who: str) -> None:
    """Raise a TypeError that says what the environment must provide if it lacks one of the attributes."""
    purpose = {
        "mdp": ".mdp (an edpbrl_gym.mdp.FiniteHorizonMDP)",
        "features": ".features (an array (N, d), one row for each feature row of the MDP)",
        "vocabulary": ".vocabulary (an edpbrl_gym.vocabulary.Vocabulary)",
        "encoder": ".encoder (an edpbrl_gym.features.TextEncoder)",
    }
    missing = [purpose[name] for name in attributes if not hasattr(base, name)]
    if missing:
        raise TypeError(
            f"The agent {who!r} needs env.unwrapped to have {' and '.join(missing)}; {type(base).__name__} has not. "
            "Add it, or use an agent that needs no model."
        )


def environment_mdp(base: Any, *, who: str) -> FiniteHorizonMDP:
    """Return the environment's MDP; raise a TypeError if it has none or one of another kind."""
    require(base, "mdp", who=who)
    if not isinstance(base.mdp, FiniteHorizonMDP):
        raise TypeError(
            f"The agent {who!r} needs env.unwrapped to have .mdp (an edpbrl_gym.mdp.FiniteHorizonMDP); "
            f"{type(base).__name__} has one of type {type(base.mdp).__name__}. Build it with "
            "FiniteHorizonMDP.from_dense(transitions, initial, horizon)."
        )
    return base.mdp


class TabularAgent(Agent):
    """Lane i plays policy i mod K of an array of policies (K, H, M) on the environment's MDP.

    The MDP's state comes from ``env.unwrapped.mdp_state(observations)``, or is the observation itself where that is a
    plain integer. The step within the episode is counted in the agent's ``state`` and set to 0 by ``episode_start``;
    where the environment has ``mdp_step(observations)``, that is used instead, so a lane is never out of step. One
    step beyond the horizon the action is 0 (a vector environment that resets in its next step ignores it); beyond
    that ``predict`` raises a ValueError, since ``episode_start`` was not passed.

    Raises:
        TypeError: If the environment has no ``.mdp``.
    """

    name = "tabular"

    def __init__(self, env: Any, *, policies: ArrayLike | None = None, **arguments: Any) -> None:
        super().__init__(env, **arguments)
        self.mdp = environment_mdp(self.base, who=self.name)
        self._policies: NDArray[np.float64] | None = None
        if policies is not None:
            self.set_policies(policies)

    @property
    def policies(self) -> NDArray[np.float64]:
        """The policies, shape (K, H, M).

        Raises:
            RuntimeError: If the agent has none yet.
        """
        return self._made(self._policies, "policies")

    def set_policies(self, policies: ArrayLike) -> None:
        """Check and take over policies of shape (K, H, M)."""
        table = np.array(policies, dtype=np.float64)
        expected = (self.num_options, self.mdp.horizon, self.mdp.num_pairs)
        if table.shape != expected:
            raise ValueError(f"Expected policies of shape (K, H, M) = {expected}, got {table.shape}.")
        for policy in table:
            self.mdp.occupancy(policy)  # raises for what is no policy of this MDP
        self._policies = table

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """Draw an action for each lane, or take the most probable one."""
        observations, single = self._batch(observation)
        count = len(observations)
        steps = self._steps(observations, state, episode_start)
        states = mdp_states(self.base, observations)
        actions = np.zeros(count, dtype=np.int64)
        draws = self.rng.random(count)  # one draw for every lane, so that lanes don't affect each other
        option = np.arange(count) % self.num_options
        for step in np.unique(steps[steps < self.mdp.horizon]):
            for policy in range(self.num_options):
                lanes = np.flatnonzero((steps == step) & (option == policy))
                if lanes.size:
                    table = self.mdp.action_probabilities(self.policies[policy], int(step), states[lanes])
                    _check_actions_exist(table, lanes, states, int(step))
                    actions[lanes] = draw_actions(table, draws[lanes], deterministic)
        new_state = (steps + 1,)
        return (actions[0] if single else actions), new_state

    def option_weights(self, observation: Any, step: int, option: int) -> Iterator[NDArray[np.float64]]:
        """The option's own policy, then the mean of all K."""
        if self._policies is None:
            return
        state = mdp_states(self.base, np.asarray(observation)[None])
        yield self.mdp.action_probabilities(self._policies[option], step, state)[0]
        yield np.mean([self.mdp.action_probabilities(policy, step, state)[0] for policy in self._policies], axis=0)

    def _steps(self, observations: NDArray[Any], state: State, episode_start: EpisodeStart) -> NDArray[np.int64]:
        count = len(observations)
        if hasattr(self.base, "mdp_step"):
            return np.asarray(self.base.mdp_step(observations), dtype=np.int64)
        if state is None:
            return np.zeros(count, dtype=np.int64)
        steps = np.array(state[0], dtype=np.int64)
        if steps.shape != (count,):
            raise ValueError(f"Expected the state of {count} lanes, got one of shape {steps.shape}.")
        if episode_start is not None:
            steps[np.asarray(episode_start, dtype=np.bool_)] = 0
        if (steps > self.mdp.horizon).any():
            lane = int(np.argmax(steps))
            raise ValueError(
                f"Expected every lane within its episode, lane {lane} is at step {steps[lane]} of an episode of "
                f"{self.mdp.horizon} steps; pass episode_start (PreferenceQuery has it) to predict."
            )
        return steps

    def _save(self, folder: Path) -> None:
        (folder / "policies.npz").unlink(missing_ok=True)  # of an agent saved here earlier
        if self._policies is not None:
            write_arrays(folder / "policies.npz", {"policies": self._policies})

    def _load(self, folder: Path) -> None:
        if (folder / "policies.npz").is_file():
            with np.load(folder / "policies.npz", allow_pickle=False) as data:
                self.set_policies(data["policies"])


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


def _check_actions_exist(
    table: NDArray[np.float64], lanes: NDArray[np.intp], states: NDArray[np.intp], step: int
) -> None:
    """Raise a ValueError for a lane in a state where the policy has no action: the MDP never reaches it."""
    bad = lanes[table.sum(axis=1) == 0]
    if bad.size:
        raise ValueError(
            f"Expected an environment that moves as its .mdp says, lane {bad[0]} is in state {states[bad[0]]} at "
            f"step {step}, where the MDP's policy has no action; correct .mdp."
        )


def draw_actions(table: NDArray[np.float64], draws: NDArray[np.float64], deterministic: bool) -> NDArray[np.int64]:
    """One action for each row of probabilities (n, A), by inverse CDF; never one of probability 0."""
    if deterministic:
        return np.argmax(table, axis=1).astype(np.int64)
    cumulative = np.cumsum(table, axis=1)
    actions = (cumulative <= (draws * cumulative[:, -1])[:, None]).sum(axis=1)
    last = table.shape[1] - 1 - np.argmax(table[:, ::-1] > 0, axis=1)
    return np.minimum(actions, last).astype(np.int64)
