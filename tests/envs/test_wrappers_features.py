"""StateActionFeatures, LearnedReward and TextObservation."""

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym._base_environment import base_environment
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.envs.wrappers import (
    LearnedReward,
    LearnedRewardVector,
    PreferenceQuery,
    StateActionFeatures,
    TextObservation,
)
from edpbrl_gym.estimation import cosine_error, estimate
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.lane_environments import BareEnv, ChainEnv, write_summed_world, write_vocabulary

ID = "edpbrl/PromptConstruction-v0"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_summed_world(tmp_path_factory.mktemp("world"), dimension=5, seed=0)


@pytest.mark.needs("rl")
def test_the_outermost_wrapper_with_features_describes_the_lanes(world):
    from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

    plain = gymnasium.make(ID, **world)
    assert base_environment(plain) is plain.unwrapped
    wrapped = StateActionFeatures(plain)
    assert base_environment(TextObservation(wrapped)) is wrapped
    assert base_environment(SyncVectorEnv([lambda: wrapped])) is wrapped
    assert base_environment(VecMonitor(DummyVecEnv([lambda: wrapped]))) is wrapped


def test_what_the_environment_lacks_the_wrapper_lacks():
    wrapped = StateActionFeatures(BareEnv())
    for name in ("mdp", "features", "trajectory_features", "encoder", "_private", "anything"):
        assert not hasattr(wrapped, name)
    assert copy.deepcopy(wrapped).feature_maps == wrapped.feature_maps


@pytest.mark.filterwarnings("ignore:.*WARN.*")  # about wrappers in general
def test_the_last_action_is_observed(world):
    check_env(StateActionFeatures(gymnasium.make(ID, **world)), skip_render_check=True)
    env = StateActionFeatures(ChainEnv())
    assert env.observation_space == MultiDiscrete([5, 4])
    first, _ = env.reset(seed=0)
    assert first[1] == 3  # none yet
    second, *_ = env.step(2 if first[0] != 1 else 0)
    assert second[1] == (2 if first[0] != 1 else 0)


def test_a_tabular_environment_has_a_row_for_each_pair():
    env = ChainEnv()
    wrapped = StateActionFeatures(env)
    mdp = wrapped.mdp
    assert mdp.num_rows == mdp.num_pairs == len(wrapped.features) == 14
    for pair in range(14):
        state, action = int(mdp.pair_state[pair]), int(mdp.pair_action[pair])
        np.testing.assert_allclose(wrapped.features[pair], [*env.features[state], *np.eye(3)[action]])
    policy = env.mdp.uniform_policy()
    np.testing.assert_allclose(mdp.occupancy(policy), env.mdp.occupancy(policy))


def test_prompts_with_their_last_token(world):
    env = StateActionFeatures(gymnasium.make(ID, **world))
    actions, vocabulary = env.action_space.n, env.vocabulary
    observation, _ = env.reset(seed=0)
    for action in (1, 2, 3):
        observation, *_ = env.step(action)
    assert env.trajectory_texts(observation[None]) == [vocabulary.prompt([1, 2, 3])]
    raw = env.unwrapped.trajectory_features(observation[None, :-1])
    np.testing.assert_allclose(env.trajectory_features(observation[None])[0], [*raw[0], *np.eye(actions)[3]])
    assert env.mdp is env.unwrapped.mdp and env.features.shape == (env.mdp.num_rows, 5 + actions)
    assert not hasattr(env, "encoder")  # its embeddings are not these features


class PlugIn(ChainEnv):
    """A third party's environment whose partial trajectories have features too."""

    def trajectory_features(self, observations):
        return self.features[np.asarray(observations)]


@pytest.mark.parametrize("feedback", ["state", "truncated"])
def test_a_taste_about_actions_is_learnt(feedback):
    taste = np.array([0.0, 0.0, 0.0, 2.0, -1.0, -1.0])  # likes action 0, whatever the state
    lanes = SyncVectorEnv([lambda: StateActionFeatures(PlugIn())] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    oracle = SyntheticUser(taste, mode="sampled", scale=1.5, seed=3)
    query = PreferenceQuery(lanes, lanes=2, oracle=oracle, feedback=feedback)
    settings = {"num_options": 2, "episodes": 60, "criterion": "D", "regularization": 0.5, "seed": 0}
    agent = make_agent("newton" if feedback == "state" else "random", query, **settings).learn()
    observations, _ = query.reset(seed=0)
    state = None
    for _ in range(60 * 4):
        actions, state = agent.predict(observations, state, query.episode_start)
        observations, *_ = query.step(actions)
    found = query.comparisons
    assert found.metadata["feature_map"] == ["actions(3, concatenated)"]
    assert cosine_error(estimate(found, regularization=0.5).theta, taste) < 0.1


class Continuous(BareEnv):
    def __init__(self):
        super().__init__()
        self.action_space = Box(-1, 1, (2,))


class Floats(BareEnv):
    def __init__(self):
        super().__init__()
        self.observation_space = Box(-1, 1, (2,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StateActionFeatures(gymnasium.make_vec("CartPole-v1", num_envs=2)), "integers from 0"),
        (lambda: StateActionFeatures(SyncVectorEnv([ChainEnv])), "not of lanes"),
        (lambda: StateActionFeatures(Floats()), "integers from 0"),
        (lambda: StateActionFeatures(Continuous()), r"Discrete\(A\) from 0"),
        (lambda: TextObservation(BareEnv()), "vocabulary and trajectory_texts.*BareEnv"),
    ],
)
def test_wrong_environments_are_named(make, message):
    with pytest.raises(TypeError, match=message):
        make()


ORDER = ["bases", "lighting", "style"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def theta(minilm):
    return minilm.encode(["a moody watercolor at night"])[0].astype(float)


@pytest.mark.parametrize("kind", ["final", "step"])
def test_the_reward_is_theta_times_the_embedding(folder, theta, minilm, kind):
    env = LearnedReward(gymnasium.make(ID, vocabulary=folder, order=ORDER), theta, kind=kind)
    env.reset(seed=0)
    for step, action in enumerate((1, 2, 3)):
        _, reward, _, _, info = env.step(action)
        assert isinstance(reward, float)
        expected = float(minilm.encode([info["prompt"]])[0] @ theta) if kind == "step" or step == 2 else 0.0
        assert reward == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["final", "step"])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_rewards_equal_those_of_single_environments(folder, theta, mode, kind):
    arguments = {"vocabulary": folder, "order": ORDER}
    own = LearnedRewardVector(gymnasium.make_vec(ID, num_envs=3, autoreset_mode=mode, **arguments), theta, kind=kind)
    serial = SyncVectorEnv(
        [lambda: LearnedReward(gymnasium.make(ID, **arguments), theta, kind=kind)] * 3, autoreset_mode=mode
    )
    again = LearnedRewardVector(
        SyncVectorEnv([lambda: gymnasium.make(ID, **arguments)] * 3, autoreset_mode=mode), theta, kind=kind
    )
    environments = (own, serial, again)
    for env in environments:
        env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(8):
        actions = rng.integers(2, size=3)
        results = [env.step(actions) for env in environments]
        for result in results[1:]:
            np.testing.assert_allclose(result[1], results[0][1], atol=1e-5)
        if mode is AutoresetMode.DISABLED and results[0][2].any():
            for env in environments:
                env.reset(options={"reset_mask": np.ones(3, dtype=bool)})


def test_a_wrapped_environment_passes_the_checks_and_is_remade_from_its_spec(folder, theta):
    env = LearnedReward(gymnasium.make(ID, vocabulary=folder, order=ORDER), theta, kind="step")
    text = env.spec.to_json()
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(text))
    np.testing.assert_array_equal(again.get_wrapper_attr("theta"), theta)
    for one in (env, again):
        one.reset()
    assert env.step(1)[1] == again.step(1)[1]


@pytest.mark.parametrize("wrapper", [LearnedReward, LearnedRewardVector])
def test_wrong_theta(folder, theta, wrapper):
    single = wrapper is LearnedReward
    env = gymnasium.make(ID, vocabulary=folder) if single else gymnasium.make_vec(ID, num_envs=2, vocabulary=folder)
    with pytest.raises(ValueError, match="dimension 384.*got 5"):
        wrapper(env, np.ones(5))
    with pytest.raises(ValueError, match="finite vector"):
        wrapper(env, np.full(384, np.nan))
    with pytest.raises(ValueError, match="finite vector"):
        wrapper(env, np.ones((1, 384)))
    with pytest.raises(ValueError, match="kind"):
        wrapper(env, theta, kind="sometimes")
    bare = BareEnv() if single else SyncVectorEnv([BareEnv])
    with pytest.raises(TypeError, match=r"BareEnv to have trajectory_features"):
        wrapper(bare, theta)


@pytest.mark.filterwarnings("error")
def test_text_observations(folder):
    env = TextObservation(gymnasium.make(ID, vocabulary=folder, order=ORDER))
    assert env.observation_space.max_length == len("a lighthouse on a cliff, overcast sky, pencil sketch")
    observation, info = env.reset(seed=0)
    assert observation == "" and observation in env.observation_space
    for action in (0, 2, 1):
        observation, *_, info = env.step(action)
        assert observation == info["prompt"] and observation in env.observation_space
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.reset()[0] == ""


def test_gymnasiums_check_over_the_wrappers(folder, theta, recwarn):
    base = gymnasium.make(ID, vocabulary=folder, order=ORDER)
    for env in (TextObservation(base), LearnedReward(base, theta, kind="step")):
        check_env(env, skip_render_check=True)
    expected = "is different from the unwrapped version"
    assert all(expected in str(warning.message) for warning in recwarn)
