"""From a deep design to its gap, in a world without a table whose only randomness is the first observation."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from edpbrl_gym.agents.deep import DeepDesignAgent
from edpbrl_gym.agents.lanes import RewardLanes
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.design import EpisodeTrees, GapEstimate, enumerated_gap, gap_bound
from edpbrl_gym.design.moments import GradientReward

A, H = 3, 3
MOVES = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])


def features_of(points: np.ndarray) -> np.ndarray:
    """Unit-norm features (..., 3) of points (..., 2)."""
    rows = np.concatenate([np.tanh(points), np.ones((*points.shape[:-1], 1))], axis=-1)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


class Walk(gymnasium.Env):
    """A point that starts anywhere and walks; the observation is the point and the time."""

    metadata = {"render_modes": []}
    observation_space = Box(-np.inf, np.inf, shape=(3,))
    action_space = Discrete(A)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.point, self.steps = self.np_random.normal(size=2), 0
        return self._observation(), {}

    def step(self, action):
        self.point = self.point + MOVES[action]
        self.steps += 1
        return self._observation(), 0.0, self.steps == H, False, {}

    def _observation(self):
        return np.array([*self.point, self.steps / H], dtype=np.float32)

    def trajectory_features(self, observations):
        return features_of(np.asarray(observations, dtype=np.float64)[:, :2]).astype(np.float32)


def walks(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([Walk] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def trees_from(noises: np.ndarray) -> EpisodeTrees:
    levels, points = [], noises[:, None].astype(np.float64)
    for _ in range(H):
        points = (points[:, :, None] + MOVES).reshape(len(noises), -1, 2)
        levels.append(features_of(points))
    return EpisodeTrees(levels)


def played_on(agent: DeepDesignAgent, count: int, draws: int, seed: int) -> tuple[EpisodeTrees, np.ndarray]:
    """Trees of fresh noises, and what the mixture plays on each of them in some independent draws, (n, R, H)."""
    lanes = RewardLanes(walks(count))
    played = np.empty((count, draws, H), dtype=np.int64)
    for draw in range(draws):
        observations = lanes.reset(seed)
        trees, state, shown = trees_from(observations[:, :2]), None, []
        for h in range(H):
            actions, state = agent.predict(observations, state)
            played[:, draw, h] = actions
            observations, *_ = lanes.step(actions)
            shown.append(lanes.features)
        # the trees hold what the lanes show
        np.testing.assert_allclose(trees.path_features(played[:, draw]), np.stack(shown, axis=1), atol=1e-6)
    return trees, played


@pytest.fixture(scope="module")
def agent() -> DeepDesignAgent:
    return make_agent(
        "deep",
        Walk(),
        num_options=2,
        episodes=20,
        criterion="D",
        seed=1,
        iterations=2,
        timesteps=768,
        rollouts=300,
        num_envs=32,
        hyperparameters={"n_steps": 6, "batch_size": 64, "learning_rate": 3e-3, "policy_kwargs": {"net_arch": [16]}},
        make_lanes=walks,
    ).learn()


def test_the_gap_of_a_deep_design(agent):
    """An interval from 60 fresh noises holds the gap of a population of 1,000 others."""
    reward: GradientReward = agent.problem.gradient(agent.moments)

    def gap(noises: int, seed: int) -> GapEstimate:
        trees, played = played_on(agent, noises, 4, seed)
        return enumerated_gap(trees, reward, played)

    population, estimate = gap(1000, 1000), gap(60, 5000)
    assert estimate.low <= population.mean <= estimate.high
    assert 0 < population.mean < gap_bound(reward, agent.moments, radius=1.0)


def test_training_finds_most_of_the_best_reward(agent):
    trees, _ = played_on(agent, 400, 1, seed=20_000)
    first = agent.mixture.moments[0]
    reward = agent.problem.gradient(first)
    best, uniform = trees.best_values(reward).mean(), reward.expected(first)
    trained = reward.expected(agent.mixture.moments[1])
    assert uniform + 0.3 * (best - uniform) < trained < best
    assert agent.history[0].achieved_gap == pytest.approx(trained - uniform)
