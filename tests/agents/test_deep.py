"""Frank-Wolfe with a deep RL oracle: lanes, legality, mixtures, saving, Ctrl-C."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from edpbrl_gym.agents.deep import DeepDesignAgent
from edpbrl_gym.agents.lanes import LegalMasks, RewardLanes
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.design import frank_wolfe
from edpbrl_gym.envs.wrappers import PreferenceQuery, StateActionFeatures
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.lane_environments import SIZES, BareEnv, ChainEnv, RaggedEnv, write_summed_world

pytestmark = pytest.mark.needs("rl")

ID = "edpbrl/PromptConstruction-v0"
TINY = {
    "num_options": 2,
    "episodes": 10,
    "criterion": "D",
    "iterations": 2,
    "timesteps": 48,
    "rollouts": 40,
    "num_envs": 8,
    "hyperparameters": {"n_steps": 3, "batch_size": 24, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]}},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_summed_world(tmp_path_factory.mktemp("world"), dimension=3, seed=0)


@pytest.fixture(scope="module")
def env(world):
    return gymnasium.make_vec(ID, num_envs=4, **world)


@pytest.fixture(scope="module")
def learned(env):
    return make_agent("deep", env, **TINY, feedback="state").learn()


def chain_lanes(num_envs: int, kind=ChainEnv) -> SyncVectorEnv:
    return SyncVectorEnv([kind] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def same_step(world, num_envs: int = 4):
    return gymnasium.make_vec(ID, num_envs=num_envs, autoreset_mode="same_step", **world)


def test_lanes_reward_what_they_show(world):
    """Against the environment's own features of the reached observations, for both kinds of feedback."""
    rng = np.random.default_rng(0)
    for feedback in ("truncated", "state"):
        seen = []

        def reward(features, steps, seen=seen):
            seen.append((np.array(features), np.array(steps)))
            return np.arange(len(features)) + 10.0 * np.asarray(steps)

        lanes = RewardLanes(same_step(world), feedback=feedback, reward=reward)
        lanes.reset(seed=1)
        tokens = rng.integers(np.array(SIZES), size=(4, 3))
        for step in range(3):
            assert lanes.action_masks().sum(axis=1).tolist() == [SIZES[step]] * 4
            observations, rewards, done, reached = lanes.step(tokens[:, step])
            expected = lanes.base.trajectory_features if feedback == "truncated" else lanes.base.state_features
            np.testing.assert_array_equal(seen[-1][0], expected(reached))
            assert seen[-1][1].tolist() == [step] * 4 and rewards.tolist() == [10 * step + i for i in range(4)]
            assert done.tolist() == [step == 2] * 4
        np.testing.assert_array_equal(reached, tokens)
        assert (observations == lanes.base.model.padding).all()  # the next episode has begun


def test_legal_actions_of_every_kind_of_environment(world):
    prompt = gymnasium.make(ID, **world)
    masks = LegalMasks(prompt, 4)
    steps = np.arange(4)
    padded = np.full((4, 3), 4)
    for step in steps:
        padded[step, :step] = 0
    assert masks(padded, steps).sum(axis=1).tolist() == [*SIZES, 4]  # beyond the end all are "legal"
    chain = LegalMasks(ChainEnv(), 3)
    assert chain(np.array([0, 1]), np.zeros(2, int)).tolist() == [[True] * 3, [True, True, False]]
    assert LegalMasks(BareEnv(), 3).unrestricted

    class Told(BareEnv):
        def action_masks(self):
            return np.array([1, 0, 1], dtype=np.int8)

    told = SyncVectorEnv([Told] * 2)
    assert LegalMasks(told, 3)(np.zeros(2, int), np.zeros(2, int)).tolist() == [[True, False, True]] * 2
    with pytest.raises(ValueError, match=r"shape \(n, A\) = \(5, 3\) .* play_on"):
        LegalMasks(told, 3)(np.zeros(5, int), np.zeros(5, int))


def test_the_design_is_that_of_its_moments(env, learned):
    mixture = learned.mixture
    assert mixture.restricted and len(mixture.policies) == 3 and mixture.policies[0] is None
    assert mixture.weights.sum() == pytest.approx(1.0)
    problem = make_agent("newton", env, num_options=2, episodes=10, criterion="D").problem()
    assert learned.problem.baseline == problem.baseline
    optimum = frank_wolfe(problem, tolerance=1e-6).upper_bound
    assert learned.problem.value(learned.moments) == pytest.approx(mixture.value)
    assert mixture.value < optimum + 0.2  # moments of 40 episodes are noisy
    values = [record.value for record in learned.history]
    assert values == sorted(values)  # corrective weights never lose value
    uniform = problem.mdp.row_occupancy(problem.mdp.occupancy(problem.mdp.uniform_policy()))
    assert mixture.moments[0].means == pytest.approx(uniform @ problem.features, abs=0.5)


def test_the_same_seed_gives_the_same_design_and_leaves_global_generators_alone(env, learned):
    import torch

    np.random.seed(5)
    torch.manual_seed(5)
    expected = (np.random.random(), float(torch.rand(1)))
    np.random.seed(5)
    torch.manual_seed(5)
    again = make_agent("deep", env, **TINY, feedback="state").learn()
    assert (np.random.random(), float(torch.rand(1))) == expected
    np.testing.assert_array_equal(again.mixture.weights, learned.mixture.weights)
    np.testing.assert_array_equal(again.moments.second, learned.moments.second)
    observations = np.full((6, 3), 4)
    np.testing.assert_array_equal(make_agent("deep", env, **TINY, seed=1).learn().predict(observations)[0].shape, (6,))


def test_a_lane_follows_one_policy_until_its_episode_ends(env, learned):
    observations = np.full((200, 3), 4)
    _, state = learned.predict(observations)
    first = state[0].copy()
    assert set(first) <= {0, 1, 2} and len(set(first)) > 1
    observations[:, 0] = 0
    _, state = learned.predict(observations, state, np.zeros(200, dtype=bool))
    np.testing.assert_array_equal(state[0], first)
    starts = np.arange(200) < 100
    observations[:, 1] = 0
    observations[starts] = 4
    _, state = learned.predict(observations, state, starts)
    np.testing.assert_array_equal(state[0][100:], first[100:])
    assert (state[0][:100] != first[:100]).any() and (state[1] == np.where(starts, 1, 3)).all()


def test_policies_are_played_by_their_weights_and_deterministic_play_takes_the_likeliest(learned):
    _, state = learned.predict(np.full((4000, 3), 4))
    np.testing.assert_allclose(np.bincount(state[0], minlength=3) / 4000, learned.mixture.weights, atol=0.05)
    actions = {int(learned.predict(np.full(3, 4), deterministic=True)[0]) for _ in range(5)}
    assert len(actions) == 1 and actions <= {0, 1}
    batch, state = learned.predict(np.full((7, 3), 4), deterministic=True)
    assert set(batch.tolist()) == actions and set(state[0]) == {int(np.argmax(learned.mixture.weights))}


def test_saving_and_loading(tmp_path, env, learned):
    learned.save(tmp_path / "agent")
    loaded = DeepDesignAgent.load(tmp_path / "agent", env)
    loaded.rng.bit_generator.state = learned.rng.bit_generator.state
    observations = np.full((50, 3), 4)
    for a, b in zip(learned.predict(observations), loaded.predict(observations), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.history == learned.history and loaded.mixture.value == learned.mixture.value
    assert loaded.problem.value(loaded.moments) == pytest.approx(loaded.mixture.value)
    np.testing.assert_array_equal(loaded.moments.means, learned.moments.means)
    fresh = make_agent("deep", env, **TINY)
    fresh.save(tmp_path / "agent")  # over the old one: nothing of it is left
    with pytest.raises(RuntimeError, match="learn"):
        DeepDesignAgent.load(tmp_path / "agent", env).predict(observations)


def test_answers_are_collected_through_the_query(world):
    lanes = PreferenceQuery(gymnasium.make_vec(ID, num_envs=4, **world), lanes=2, oracle=SyntheticUser(np.ones(3)))
    agent = make_agent("deep", lanes, **TINY).learn()
    observations, _ = lanes.reset(seed=0)
    state = None
    for _ in range(8):  # with the automatic resets in between
        actions, state = agent.predict(observations, state, lanes.episode_start)
        observations, *_ = lanes.step(actions)
    assert lanes.comparisons.features.shape == (12, 2, 3)


def test_ctrl_c_leaves_the_finished_iterations(env, monkeypatch):
    from edpbrl_gym.agents import sb3

    train, calls = sb3.DeepOracle.train, []

    def interrupted(self, timesteps):
        calls.append(timesteps)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(self, timesteps)

    monkeypatch.setattr(sb3.DeepOracle, "train", interrupted)
    agent = make_agent("deep", env, **TINY)
    with pytest.raises(KeyboardInterrupt):
        agent.learn()
    assert len(agent.history) == 1 and len(agent.mixture.policies) == len(agent.mixture.weights) == 2
    assert agent.predict(np.full((3, 3), 4))[0].shape == (3,)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda env: make_agent("deep", BareEnv(), **TINY), TypeError, "trajectory_features"),
        (lambda env: make_agent("deep", ChainEnv(), **TINY, feedback="state").learn(), TypeError, "make_lanes"),
        (
            lambda env: make_agent("deep", env, **TINY | {"hyperparameters": {"lr": 0.1}}).learn(),
            TypeError,
            "among learning_rate, .* got 'lr'",
        ),
        (lambda env: make_agent("deep", env, **TINY | {"criterion": "E"}), ValueError, "criterion"),
        (lambda env: make_agent("deep", env, **TINY, v_matrix=np.eye(3)), ValueError, "takes no v_matrix"),
        (lambda env: make_agent("deep", env, **TINY | {"hyperparameters": {"a": np.tanh}}), TypeError, "saved with it"),
        (lambda env: make_agent("deep", env, **TINY).predict(np.full((2, 3), 4)), RuntimeError, "learn"),
        (lambda env: RewardLanes(env), TypeError, "SAME_STEP"),
        (
            lambda env: make_agent("deep", StateActionFeatures(ChainEnv()), **TINY, feedback="state").learn(),
            TypeError,
            "no wrapper redefines, got StateActionFeatures; give make_lanes",
        ),
        (
            lambda env: make_agent(
                "deep", ChainEnv(), **TINY, feedback="state", make_lanes=lambda n: chain_lanes(n, RaggedEnv)
            ).learn(),
            ValueError,
            "fixed horizon",
        ),
    ],
)
def test_messages(env, make, error, message):
    with pytest.raises(error, match=message):
        make(env)
