"""Pools of trajectories: their items, planners and sessions on them."""

import gymnasium
import numpy as np
import pytest

import edpbrl_gym as eg
from edpbrl_gym.diffusion import TrajectoryPool, enumerate_episodes, enumerate_from, play_sequences
from edpbrl_gym.oracles import SyntheticUser, answers_of
from edpbrl_gym.planners import TokenFeatures, make_planner


@pytest.fixture(scope="module")
def env(digits):
    arguments = {"model": digits, "conditions": [0, 1, 7], "weights": (6.0,), "blocks": 2, "steps": 2}
    return gymnasium.make("edpbrl/DiffusionGuidance-v0", **arguments)


@pytest.fixture(scope="module")
def pool(env):
    return TrajectoryPool.enumerate(env.unwrapped.model, range(4))


def test_the_items_are_the_episodes_of_the_environment(env, pool):
    base = env.unwrapped
    assert len(pool) == 4 * 9 and pool.vocabulary.sizes == (36,) and pool.features.shape == (36, 12)
    trees = enumerate_episodes(base.model, range(4))
    np.testing.assert_allclose(pool.features.reshape(4, 9, 12), trees.features[-1], atol=1e-4)
    np.testing.assert_array_equal(pool.actions[:9], trees.sequences())
    item = 21
    assert pool.vocabulary.tokens[0][item] == "noise 2: 1 x 6, 0 x 6"
    observation, _ = env.reset(options={"noise_seed": 2})
    for action in pool.actions[item]:
        observation, _, terminated, _, info = env.step(action)
    assert terminated and info["directions"] == "1 x 6, 0 x 6"
    np.testing.assert_allclose(pool.observations([item])[0], observation, atol=1e-4)
    difference = pool.images([item])[0].astype(int) - base.trajectory_images(observation)[0]
    assert abs(difference).max() <= 1
    np.testing.assert_array_equal(pool.encode([pool.vocabulary.tokens[0][item]]), pool.features[[item]])


def test_trees_from_observations_are_those_of_the_noises(env):
    model = env.unwrapped.model
    observations = np.stack([env.reset(options={"noise_seed": seed})[0] for seed in (5, 3)])
    trees = enumerate_from(model, observations, features=lambda rows: model.trajectory_features(rows)[:, :2])
    for level, expected in zip(trees.features, enumerate_episodes(model, [5, 3]).features, strict=True):
        np.testing.assert_allclose(level, expected[..., :2], atol=1e-4)


def test_played_in_batches(env):
    model = env.unwrapped.model
    actions = np.array([[0, 1], [2, 2], [1, 0]])
    once, batched = (play_sequences(model, [4, 5, 6], actions, batch_size=size) for size in (2048, 2))
    np.testing.assert_allclose(once, batched, atol=1e-4)


@pytest.mark.parametrize("name", ["adaptive", "bald", "random"])
def test_a_session_learns_a_taste_from_images(pool, name):
    theta = np.random.default_rng(0).normal(size=12)
    theta *= 40 / np.linalg.norm(theta)
    user = SyntheticUser(theta, mode="sampled", seed=1)
    planner = make_planner(name, pool.vocabulary, TokenFeatures(pool.vocabulary, pool.features), num_options=4, seed=2)
    session = eg.Session(planner, vocabulary=pool.vocabulary, encoder=pool, num_options=4)
    centred = pool.features - pool.features.mean(axis=0)
    agreement = []
    for count in range(30):
        question = session.ask()
        assert pool.images(question.tokens[:, 0]).shape == (4, 8, 8, 3)
        session.tell(int(answers_of(user, question.queries).choices[0]))
        if count in (1, 29):
            agreement.append(np.corrcoef(centred @ planner.posterior.mean, centred @ theta)[0, 1])
    assert agreement[1] > max(agreement[0], 0.8)


def test_wrong_items(env, pool):
    model = env.unwrapped.model
    with pytest.raises(ValueError, match="items"):
        pool.images([36])
    with pytest.raises(ValueError, match="names of this pool's items such as 'noise 0: 0 x 6, 0 x 6', got 'a cat'"):
        pool.encode(["a cat"])
    with pytest.raises(ValueError, match="distinct tokens"):
        TrajectoryPool(model, [1, 1], [[0, 1], [0, 1]])
    with pytest.raises(ValueError, match="actions"):
        TrajectoryPool(model, [1], [[0, 3]])
    with pytest.raises(ValueError, match="at least one episode"):
        play_sequences(model, np.empty(0, dtype=int), np.empty((0, 2), dtype=int))
