"""Lanes that agents without a table play: their legal actions, rewards for the features they show, whole episodes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats, Floats32, Indices
from edpbrl_gym._base_environment import base_environment, check_shows, mdp_states, shown_features
from edpbrl_gym._validation import check_count, check_feedback
from edpbrl_gym.design.moments import GradientReward
from edpbrl_gym.design.trees import StepReward
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["LegalMasks", "RewardLanes", "StandardReward", "play_episodes", "remade_lanes"]

# what new lanes get anew, or, as ``shared_noise``, what says how the lanes of a question go together
_OF_LANES = (
    *("num_envs", "vectorization_mode", "vector_kwargs", "wrappers", "autoreset_mode", "render_mode"),
    "shared_noise",
)


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


class StandardReward:
    """A reward less its mean at every step, divided by its standard deviation, both over given episodes.

    Neither changes which policy is best over a fixed horizon, but learning rates and clipping then mean the same for
    every T, criterion and iteration.

    Args:
        reward: The reward.
        features: Episodes, shape (n, H, d).
    """

    def __init__(self, reward: GradientReward, features: NDArray[np.floating]) -> None:
        count, horizon, dimension = features.shape
        flat = reward(features.reshape(-1, dimension), np.tile(np.arange(horizon), count)).reshape(count, horizon)
        self.reward = reward
        self.offsets: Floats = flat.mean(axis=0)
        spread = float(np.sqrt(((flat - self.offsets) ** 2).mean()))
        self.scale = spread if spread > 0 else 1.0

    def __call__(self, features: ArrayLike, steps: ArrayLike) -> Floats:
        """Reward (n,) of features (n, d) at steps (n,)."""
        return np.asarray((self.reward(features, steps) - self.offsets[np.asarray(steps)]) / self.scale)


class RewardLanes:
    """A vector environment whose lanes are rewarded for the features they show.

    The features of all lanes come from one call for each step, which one encoder batch serves. A lane begins its next
    episode in the step that ends the last one.

    Args:
        env: Vector environment with ``autoreset_mode`` "same_step" and observations in one array.
        feedback: "truncated" or "state", as in ``PreferenceQuery``.
        reward: Reward of features (n, d) shown at steps (n,); None gives 0, and features are still computed.

    Attributes:
        reward: May be replaced between steps.
        features: Features that the last step showed, shape (num_envs, d); None before the first step.
        steps: Step h of each lane's next action, shape (num_envs,).
        restricted: Whether some lane has had an illegal action so far.
        base: The innermost environment.
        num_actions: A.

    Raises:
        TypeError: If the environment can't give the features, or its lanes restart in another way.
    """

    def __init__(self, env: VectorEnv, *, feedback: str = "truncated", reward: StepReward | None = None) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            raise TypeError(
                f"Expected lanes with autoreset_mode AutoresetMode.SAME_STEP, got {mode!r}; make them with "
                'autoreset_mode="same_step".'
            )
        if env.observation_space.shape is None:
            raise TypeError(
                f"Expected observations as one array (n, ...), got the space {type(env.observation_space).__name__}."
            )
        self.env = env
        self.base = base_environment(env)
        self.feedback = check_feedback(feedback, every_step="a reward of every step")
        check_shows(self.base, feedback)
        self.reward = reward
        self.num_envs = int(env.num_envs)
        self.num_actions = discrete_actions(self.base, who="deep")
        self.legal = LegalMasks(env, self.num_actions)
        self.features: Floats32 | None = None
        self.restricted = False
        self.steps: Indices = np.zeros(self.num_envs, dtype=np.int64)
        self._observations: NDArray[Any] = np.empty(0)

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Space of one lane's observation."""
        return self.env.single_observation_space

    def reset(self, seed: int | None = None) -> NDArray[Any]:
        """Begin an episode in all lanes; returns their observations."""
        observations, _ = self.env.reset(seed=seed)
        self._observations = np.array(observations)
        self.steps = np.zeros(self.num_envs, dtype=np.int64)
        return self._observations.copy()

    def step(self, actions: ArrayLike) -> tuple[NDArray[Any], Floats, Booleans, NDArray[Any]]:
        """Step all lanes.

        Returns:
            Observations, with the first ones of a new episode where one ended; rewards (num_envs,); lanes whose episode
            ended (num_envs,); the observations that the step reached.
        """
        taken = np.asarray(actions)
        observations, _, terminations, truncations, infos = self.env.step(taken)
        done = np.logical_or(terminations, truncations)
        reached = np.array(observations)
        if done.any():
            reached[done] = np.stack(infos["final_obs"][done])
        self.features = shown_features(
            self.base, self.feedback, reached=reached, previous=self._observations, actions=taken
        )
        rewards = np.zeros(self.num_envs)
        if self.reward is not None:
            rewards = np.asarray(self.reward(self.features, self.steps), dtype=np.float64)
        self.steps = np.where(done, 0, self.steps + 1)
        self._observations = np.array(observations)
        return self._observations.copy(), rewards, done, reached

    def action_masks(self) -> Booleans:
        """Legal actions of each lane, shape (num_envs, A)."""
        masks = self.legal(self._observations, self.steps)
        self.restricted |= not masks.all()
        return masks

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def play_episodes(
    lanes: RewardLanes,
    choose: Callable[[NDArray[Any], Booleans], Indices],
    *,
    episodes: int,
    seed: int | None = None,
) -> Floats32:
    """Play some episodes with one policy; the lanes are reset first, and once more for each further batch of episodes.

    Args:
        lanes: The lanes; all must end their episodes at the same step.
        choose: Actions (n,) for observations (n, ...) and legal actions (n, A).
        episodes: Number of episodes, at least 1.
        seed: Of the reset of the first batch; later ones go on with the environment's own generator.

    Returns:
        What each showed at each step, shape (n, H, d).

    Raises:
        ValueError: If episodes have different lengths: a design needs a fixed horizon.
    """
    wanted = check_count(episodes, "episodes")
    features: list[Floats32] = []
    while sum(len(part) for part in features) < wanted:
        observations = lanes.reset(seed)
        seed = None
        shown: list[Floats32] = []
        done = np.zeros(lanes.num_envs, dtype=np.bool_)
        while not done.any():
            observations, _, done, _ = lanes.step(choose(observations, lanes.action_masks()))
            assert lanes.features is not None
            shown.append(lanes.features)
        if not done.all() or (features and len(shown) != features[0].shape[1]):
            raise ValueError(
                f"Expected episodes of one length, some ended after {len(shown)} steps and others did not; a design "
                "needs a fixed horizon."
            )
        features.append(np.stack(shown, axis=1))
    return np.concatenate(features)[:wanted]


def remade_lanes(env: Any, num_envs: int) -> VectorEnv:
    """Make new lanes of the kind that an environment is, by its spec; each begins its next episode in the same step.

    Each has a noise of its own, whatever the lanes of ``env`` share.

    Args:
        env: Environment or vector environment made by ``gymnasium.make`` or ``make_vec``, wrapped or not; wrappers are
            left off.
        num_envs: Number of lanes.

    Raises:
        TypeError: If the environment has no spec, or a wrapper redefines its features.
    """
    base = base_environment(env)
    if getattr(type(base), "describes_lanes", False):
        raise TypeError(
            f"Expected an environment whose features no wrapper redefines, got {type(base).__name__}; give make_lanes, "
            'a function of the number of lanes that wraps a vector environment with autoreset_mode "same_step".'
        )
    spec = getattr(base, "spec", None) or getattr(getattr(env, "unwrapped", env), "spec", None)
    if spec is None:
        raise TypeError(
            f"Expected an environment of gymnasium.make or make_vec, whose spec says how to make more of its lanes, "
            f"got {type(base).__name__} without one; give make_lanes, a function of the number of "
            'lanes that returns a vector environment with autoreset_mode "same_step".'
        )
    plain = copy.deepcopy(spec)
    plain.kwargs = {name: value for name, value in spec.kwargs.items() if name not in _OF_LANES}
    plain.additional_wrappers = ()
    if plain.vector_entry_point is not None:
        return gymnasium.make_vec(
            plain, num_envs=num_envs, vectorization_mode="vector_entry_point", autoreset_mode="same_step"
        )
    plain.disable_env_checker = True
    return gymnasium.make_vec(
        plain,
        num_envs=num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
