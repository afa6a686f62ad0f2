"""Lanes whose reward is a function of the features they show: what deep RL agents train on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats, Floats32, Indices
from edpbrl_gym._base_environment import base_environment, check_shows, shown_features
from edpbrl_gym._feedback import check_feedback
from edpbrl_gym._validation import check_array, check_count
from edpbrl_gym.agents.legal import LegalMasks, discrete_actions
from edpbrl_gym.design.moments import GradientReward
from edpbrl_gym.design.trees import StepReward

__all__ = ["Episodes", "FinalReward", "RewardLanes", "StandardReward", "play_episodes", "remade_lanes"]

_OF_LANES = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers", "autoreset_mode", "render_mode")
_OF_QUESTIONS = ("shared_noise",)  # how lanes go together


@dataclass(frozen=True, eq=False)
class FinalReward:
    """theta . phi of the last step and 0 before it: the reward of a learned taste.

    Attributes:
        theta: Shape (d,).
        horizon: H.
    """

    theta: Floats
    horizon: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "theta", check_array(self.theta, "theta", shape=("d",)))
        check_count(self.horizon, "horizon (H)")

    def __call__(self, features: ArrayLike, steps: ArrayLike) -> Floats:
        """Reward (n,) of features (n, d) shown at steps (n,)."""
        values = np.asarray(features, dtype=np.float64) @ self.theta
        return np.asarray(np.where(np.asarray(steps) == self.horizon - 1, values, 0.0))


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


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes of equal length.

    Attributes:
        features: What each showed at each step, float32 (n, H, d).
        actions: Its actions, (n, H).
    """

    features: Floats32
    actions: Indices


def play_episodes(
    lanes: RewardLanes,
    choose: Callable[[NDArray[Any], Indices, Booleans], Indices],
    *,
    episodes: int,
    seed: int | None = None,
) -> Episodes:
    """Play some episodes with one policy; the lanes are reset first, and once more for each further batch of episodes.

    Args:
        lanes: The lanes; all must end their episodes at the same step.
        choose: Actions (n,) for observations (n, ...), their steps (n,) and legal actions (n, A).
        episodes: Number of episodes, at least 1.
        seed: Of the reset of the first batch; later ones go on with the environment's own generator.

    Raises:
        ValueError: If episodes have different lengths: a design needs a fixed horizon.
    """
    wanted = check_count(episodes, "episodes")
    features: list[Floats32] = []
    actions: list[Indices] = []
    while sum(len(part) for part in features) < wanted:
        observations = lanes.reset(seed)
        seed = None
        shown: list[Floats32] = []
        taken: list[Indices] = []
        done = np.zeros(lanes.num_envs, dtype=np.bool_)
        while not done.any():
            chosen = choose(observations, lanes.steps, lanes.action_masks())
            observations, _, done, _ = lanes.step(chosen)
            assert lanes.features is not None
            shown.append(lanes.features)
            taken.append(np.asarray(chosen, dtype=np.int64))
        if not done.all() or (features and len(shown) != features[0].shape[1]):
            raise ValueError(
                f"Expected episodes of one length, some ended after {len(shown)} steps and others did not; a design "
                "needs a fixed horizon."
            )
        features.append(np.stack(shown, axis=1))
        actions.append(np.stack(taken, axis=1))
    return Episodes(np.concatenate(features)[:wanted], np.concatenate(actions)[:wanted])


def remade_lanes(env: Any, num_envs: int, *, questions: bool = False) -> VectorEnv:
    """Make new lanes of the kind that an environment is, by its spec; each begins its next episode in the same step.

    Args:
        env: Environment or vector environment made by ``gymnasium.make`` or ``make_vec``, wrapped or not; wrappers are
            left off.
        num_envs: Number of lanes.
        questions: The lanes go together as those of ``env`` do, such as by ``shared_noise``; otherwise each has a noise
            of its own.

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
    left_off = _OF_LANES if questions else (*_OF_LANES, *_OF_QUESTIONS)
    plain.kwargs = {name: value for name, value in spec.kwargs.items() if name not in left_off}
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
