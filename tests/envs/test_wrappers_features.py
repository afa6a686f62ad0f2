"""Wrappers that redefine features: mapped ones, and those of state-action pairs."""

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym._base_environment import base_environment
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.comparisons import map_comparisons
from edpbrl_gym.envs.wrappers import (
    LearnedReward,
    LearnedRewardVector,
    MappedFeatures,
    MappedFeaturesVector,
    PreferenceQuery,
    StateActionFeatures,
    StateActionFeaturesVector,
    TextObservation,
)
from edpbrl_gym.estimation import cosine_error, estimate
from edpbrl_gym.features import RandomFourierFeatures, WithLinear
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.lane_environments import BareEnv, ChainEnv, write_summed_world

PROMPT = "edpbrl/PromptConstruction-v0"
MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_summed_world(tmp_path_factory.mktemp("world"), dimension=5, seed=0)


def fourier(inputs, size=12):
    return WithLinear(RandomFourierFeatures(inputs, size, bandwidth=0.8, seed=2))


class Drift(gymnasium.Env):
    """Floats in a box, drifting by the action, for three steps."""

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2, 2), np.float32)
        self.action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.normal(size=(2, 2)).astype(np.float32), 0
        return self.place.copy(), {}

    def step(self, action):
        self.place = (self.place + action).astype(np.float32)
        self.steps += 1
        return self.place.copy(), 0.0, self.steps == 3, False, {}

    def trajectory_features(self, observations):
        return np.asarray(observations, dtype=np.float64).reshape(len(observations), -1)[:, :3]


def play(query, agent, episodes, horizon, seed=0):
    observations, _ = query.reset(seed=seed)
    state = None
    for _ in range(episodes * horizon):
        actions, state = agent.predict(observations, state, query.episode_start)
        observations, *_ = query.step(actions)
    return query.comparisons


# -- who describes the lanes -----------------------------------------------------------------------------------------


@pytest.mark.needs("rl")
def test_the_outermost_wrapper_with_features_describes_the_lanes(world):
    plain = gymnasium.make(PROMPT, **world)
    assert base_environment(plain) is plain.unwrapped
    inner = MappedFeatures(plain, fourier(5))
    outer = MappedFeatures(inner, fourier(17))
    assert base_environment(inner) is inner
    assert base_environment(TextObservation(outer)) is outer
    assert base_environment(SyncVectorEnv([lambda: outer])) is outer
    from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

    assert base_environment(VecMonitor(DummyVecEnv([lambda: inner]))) is inner


def test_what_the_environment_lacks_the_wrapper_lacks():
    wrapped = MappedFeatures(BareEnv(), fourier(5))
    for name in ("mdp", "features", "trajectory_features", "encoder", "_private", "anything"):
        assert not hasattr(wrapped, name)
    assert copy.deepcopy(wrapped).feature_map.name == fourier(5).name


# -- mapped features -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feedback", ["truncated", "state"])
def test_questions_about_mapped_features_are_mapped_questions(world, feedback):
    found = []
    for wrap in (lambda env: env, lambda env: MappedFeaturesVector(env, fourier(5))):
        lanes = wrap(gymnasium.make_vec(PROMPT, num_envs=4, vectorization_mode="vector_entry_point", **world))
        dimension = 5 if lanes.unwrapped is lanes else 22 - 5
        query = PreferenceQuery(lanes, lanes=2, oracle=SyntheticUser(np.zeros(dimension)), feedback=feedback)
        agent = make_agent("random", query, num_options=2, episodes=4, seed=1)
        found.append(play(query, agent, 2, 4))
    plain, mapped = found
    expected = map_comparisons(plain, fourier(5))
    np.testing.assert_allclose(mapped.features, expected.features, atol=1e-6)
    for key in ("encoder", "encoder_fingerprint", "feature_map"):
        assert mapped.metadata[key] == expected.metadata[key]
    assert [list(row) for row in mapped.texts] == [list(row) for row in plain.texts]


def test_a_tabular_environment_has_mapped_rows():
    env = ChainEnv()
    wrapped = MappedFeatures(env, fourier(3))
    np.testing.assert_allclose(wrapped.features, fourier(3)(env.features))
    assert wrapped.features is wrapped.features and wrapped.mdp is env.mdp
    agent = make_agent("newton", wrapped, num_options=2, episodes=10, criterion="D").learn()
    assert agent.design.problem.dimension == 15


@pytest.mark.parametrize("kind", ["final", "step"])
def test_learned_rewards_see_the_mapped_features(world, kind):
    theta = np.random.default_rng(0).normal(size=17)
    single = LearnedReward(MappedFeatures(gymnasium.make(PROMPT, **world), fourier(5)), theta, kind)
    lanes = gymnasium.make_vec(PROMPT, num_envs=1, vectorization_mode="vector_entry_point", **world)
    vector = LearnedRewardVector(MappedFeaturesVector(lanes, fourier(5)), theta, kind)
    single.reset(seed=0), vector.reset(seed=0)
    for step, action in enumerate((1, 2, 3)):
        observation, reward, *_ = single.step(action)
        raw = single.unwrapped.trajectory_features(observation[None])
        expected = float(fourier(5)(raw)[0] @ theta) if kind == "step" or step == 2 else 0.0
        assert reward == pytest.approx(expected, abs=1e-6)
        assert vector.step(np.array([action]))[1][0] == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match="dimension 17"):
        LearnedReward(MappedFeatures(gymnasium.make(PROMPT, **world), fourier(5)), theta[:5])


# -- state-action pairs ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*WARN.*")  # about wrappers in general, and boxes without ends
def test_single_environments_pass_the_check(world):
    check_env(StateActionFeatures(Drift()), skip_render_check=True)
    check_env(StateActionFeatures(gymnasium.make(PROMPT, **world)), skip_render_check=True)


def test_the_last_action_is_observed():
    env = StateActionFeatures(ChainEnv())
    assert env.observation_space == MultiDiscrete([5, 4])
    first, _ = env.reset(seed=0)
    assert first[1] == 3  # none yet
    second, *_ = env.step(2 if first[0] != 1 else 0)
    assert second[1] == (2 if first[0] != 1 else 0)
    drift = StateActionFeatures(Drift())
    first, _ = drift.reset(seed=0)
    assert first.shape == (7,) and first.dtype == np.float32 and not first[4:].any()
    second, *_ = drift.step(1)
    np.testing.assert_array_equal(second[4:], [0, 1, 0])
    np.testing.assert_allclose(second[:4], first[:4] + 1)
    np.testing.assert_allclose(drift.trajectory_features(np.stack([first, second]))[:, 3:], [[0, 0, 0], [0, 1, 0]])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [ChainEnv, Drift])
def test_the_vector_form_is_that_of_single_environments(make, mode):
    inside = SyncVectorEnv([lambda: StateActionFeatures(make())] * 3, autoreset_mode=mode)
    outside = StateActionFeaturesVector(SyncVectorEnv([make] * 3, autoreset_mode=mode))
    assert inside.observation_space == outside.observation_space
    rng = np.random.default_rng(0)
    left, right = inside.reset(seed=5)[0], outside.reset(seed=5)[0]
    np.testing.assert_array_equal(left, right)
    for _ in range(11):
        actions = rng.integers(2, size=3)
        (left, _, ended, _, left_info), (right, _, _, _, right_info) = inside.step(actions), outside.step(actions)
        np.testing.assert_array_equal(left, right)
        if mode is AutoresetMode.SAME_STEP and ended.any():
            np.testing.assert_array_equal(np.stack(left_info["final_obs"]), np.stack(right_info["final_obs"]))
        if mode is AutoresetMode.DISABLED and ended.any():
            np.testing.assert_array_equal(
                inside.reset(options={"reset_mask": ended})[0], outside.reset(options={"reset_mask": ended})[0]
            )


@pytest.mark.parametrize("join", ["concatenated", "products"])
def test_a_tabular_environment_has_a_row_for_each_pair(join):
    env = ChainEnv()
    wrapped = StateActionFeatures(env, join)
    mdp = wrapped.mdp
    assert mdp.num_rows == mdp.num_pairs == len(wrapped.features) == 14
    np.testing.assert_array_equal(mdp.pair_row, np.arange(14))
    for pair in range(14):
        state, action = int(mdp.pair_state[pair]), int(mdp.pair_action[pair])
        phi, indicator = env.features[state], np.eye(3)[action]
        expected = np.concatenate([phi, indicator]) if join == "concatenated" else np.kron(phi, indicator)
        np.testing.assert_allclose(wrapped.features[pair], expected)
    policy = env.mdp.uniform_policy()
    np.testing.assert_allclose(mdp.occupancy(policy), env.mdp.occupancy(policy))


def test_prompts_with_their_last_token(world):
    env = StateActionFeatures(gymnasium.make(PROMPT, **world))
    actions, vocabulary = env.action_space.n, env.vocabulary
    observation, _ = env.reset(seed=0)
    for action in (1, 2, 3):
        observation, *_ = env.step(action)
    assert env.trajectory_texts(observation[None]) == [vocabulary.prompt([1, 2, 3])]
    raw = env.unwrapped.trajectory_features(observation[None, :-1])
    np.testing.assert_allclose(env.trajectory_features(observation[None])[0], [*raw[0], *np.eye(actions)[3]])
    assert env.mdp is env.unwrapped.mdp and env.features.shape == (env.mdp.num_rows, 5 + actions)
    assert not hasattr(env, "encoder")  # its embeddings are not these features
    TextObservation(env).reset(seed=0)


class PlugIn(ChainEnv):
    """A third party's environment whose partial trajectories have features too."""

    def trajectory_features(self, observations):
        return self.features[np.asarray(observations)]


@pytest.mark.parametrize("feedback", ["state", "truncated"])
def test_a_taste_about_actions_is_learnt(feedback):
    taste = np.array([0.0, 0.0, 0.0, 2.0, -1.0, -1.0])  # likes action 0, whatever the state
    lanes = StateActionFeaturesVector(SyncVectorEnv([PlugIn] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    query = PreferenceQuery(
        lanes, lanes=2, oracle=SyntheticUser(taste, mode="sampled", scale=1.5, seed=3), feedback=feedback
    )
    agent = make_agent(
        "newton" if feedback == "state" else "random",
        query,
        num_options=2,
        episodes=60,
        criterion="D",
        regularization=0.5,
        seed=0,
    ).learn()
    found = play(query, agent, 60, 4)
    assert found.dimension == 6
    assert found.metadata["feature_map"] == ["actions(3, concatenated)"]
    assert cosine_error(estimate(found, regularization=0.5).theta, taste) < 0.1


def test_maps_and_actions_can_be_stacked():
    lanes = SyncVectorEnv([PlugIn] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    stacked = MappedFeaturesVector(StateActionFeaturesVector(lanes), fourier(6))
    assert base_environment(stacked) is stacked
    np.testing.assert_allclose(stacked.features, fourier(6)(StateActionFeatures(PlugIn()).features))
    query = PreferenceQuery(stacked, lanes=2, oracle=SyntheticUser(np.ones(18)), feedback="state")
    found = play(query, make_agent("random", query, num_options=2, episodes=2), 2, 4)
    assert found.dimension == 18
    assert found.metadata["feature_map"] == ["actions(3, concatenated)", fourier(6).name]


# -- errors ----------------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_named(world):
    lanes = gymnasium.make_vec(PROMPT, num_envs=2, vectorization_mode="vector_entry_point", **world)
    with pytest.raises(TypeError, match="use MappedFeaturesVector"):
        MappedFeatures(lanes, fourier(5))
    with pytest.raises(TypeError, match="use StateActionFeaturesVector"):
        StateActionFeatures(lanes)
    with pytest.raises(TypeError, match="Expected a feature map"):
        MappedFeaturesVector(lanes, np.cos)
    query = PreferenceQuery(MappedFeaturesVector(lanes, fourier(6)), lanes=2, oracle=SyntheticUser(np.ones(5)))
    query.reset(seed=0)
    with pytest.raises(ValueError, match="Expected rows of 6 features"):
        query.step(np.array([0, 1]))
    with pytest.raises(ValueError, match="join"):
        StateActionFeatures(ChainEnv(), "sum")

    class Nested(BareEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = Dict({"place": Discrete(2)})

    with pytest.raises(TypeError, match="flatten them"):
        StateActionFeatures(Nested())

    class Continuous(BareEnv):
        def __init__(self):
            super().__init__()
            self.action_space = Box(-1, 1, (2,))

    with pytest.raises(TypeError, match=r"Discrete\(A\) from 0"):
        StateActionFeatures(Continuous())
