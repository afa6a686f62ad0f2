"""LearnedReward and TextObservation."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from edpbrl_gym.envs.wrappers import LearnedReward, LearnedRewardVector, TextObservation
from tests.helpers.lane_environments import BareEnv, write_vocabulary

ID = "edpbrl/PromptConstruction-v0"
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


def test_each_wrapper_names_the_other(folder, theta):
    with pytest.raises(TypeError, match="use LearnedRewardVector"):
        LearnedReward(gymnasium.make_vec(ID, num_envs=2, vocabulary=folder), theta)
    with pytest.raises(TypeError, match="VectorEnv"):
        LearnedRewardVector(gymnasium.make(ID, vocabulary=folder), theta)


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


def test_text_space_covers_the_built_in_vocabulary():
    env = TextObservation(gymnasium.make(ID))
    env.action_space.seed(0)
    for _ in range(30):
        _, info = env.reset()
        done = False
        while not done:
            observation, _, done, _, info = env.step(env.action_space.sample(info["action_mask"]))
            assert observation in env.observation_space


def test_gymnasiums_check_over_the_wrappers(folder, theta, recwarn):
    base = gymnasium.make(ID, vocabulary=folder, order=ORDER)
    for env in (TextObservation(base), LearnedReward(base, theta, kind="step")):
        check_env(env, skip_render_check=True)
    expected = "is different from the unwrapped version"
    assert all(expected in str(warning.message) for warning in recwarn)


def test_text_observation_needs_a_prompt_environment():
    with pytest.raises(TypeError, match="vocabulary and trajectory_texts.*BareEnv"):
        TextObservation(BareEnv())
