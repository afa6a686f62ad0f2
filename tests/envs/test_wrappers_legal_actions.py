"""Illegal actions stand for legal ones, so that algorithms without masks can play."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.envs.wrappers import LearnedReward, LegalActions, LegalActionsVector, PreferenceQuery
from edpbrl_gym.envs.wrappers.legal_actions import legal_actions
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.extras import skip_without
from tests.helpers.lane_environments import ChainEnv, write_summed_world

pytestmark = pytest.mark.needs("text", "rl")

PROMPTS, TEXT = "edpbrl/PromptConstruction-v0", "edpbrl/TextGeneration-v0"


@pytest.fixture(scope="module")
def arguments(gpt2, tmp_path_factory):
    """Arguments of both environments, by id; the files of the prompts' vocabulary have 2, 3 and 4 tokens."""
    folder = tmp_path_factory.mktemp("worlds")
    text = {"model": gpt2, "words": 3, "max_tokens": 10}
    return {PROMPTS: write_summed_world(folder, dimension=3, seed=1), TEXT: text}


@given(st.lists(st.booleans(), min_size=1, max_size=60).filter(any))
def test_the_map_keeps_legal_actions_and_deals_the_others_evenly(mask):
    table = legal_actions(np.array(mask, dtype=np.int8))
    legal = np.flatnonzero(mask)
    np.testing.assert_array_equal(table[legal], legal)
    counts = np.bincount(table, minlength=len(mask))
    assert not counts[~np.array(mask)].any()
    assert set(counts[legal].tolist()) <= {len(mask) // len(legal), -(-len(mask) // len(legal))}


def test_the_actions_that_get_one_more_are_spread():
    assert legal_actions([1] * 6 + [0] * 3).tolist() == [0, 1, 2, 3, 4, 5, 0, 2, 4]
    with pytest.raises(ValueError, match="at least one legal action among 2"):
        legal_actions([0, 0])


@pytest.mark.parametrize("env_id", [PROMPTS, TEXT])
def test_every_action_plays_a_legal_one(env_id, arguments):
    env = LegalActions(gymnasium.make(env_id, **arguments[env_id]))
    plain = gymnasium.make(env_id, **arguments[env_id])
    assert type(env.action_space) is Discrete and env.action_space == plain.action_space
    env.action_space.seed(0)
    changed = 0
    for _ in range(30):
        _, info = env.reset()
        plain.reset()
        done = False
        while not done:
            action = env.action_space.sample()
            wanted = legal_actions(info["action_mask"])[action]
            observation, _, done, _, info = env.step(action)
            assert info["played_action"] == wanted
            np.testing.assert_array_equal(observation, plain.step(wanted)[0])
            changed += wanted != action
    assert changed


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("made", ["own", "sync"])
def test_lanes_play_what_single_environments_play(made, mode, arguments):
    given = arguments[PROMPTS]
    member = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP}.get(mode)
    member = member or AutoresetMode.DISABLED
    if made == "own":
        lanes = gymnasium.make_vec(PROMPTS, num_envs=3, autoreset_mode=mode, **given)
    else:
        lanes = SyncVectorEnv([lambda: gymnasium.make(PROMPTS, **given)] * 3, autoreset_mode=member)
    env = LegalActionsVector(lanes)
    assert env.single_action_space == Discrete(4) and env.action_space.shape == (3,)
    env.action_space.seed(1)
    _, infos = env.reset(seed=0)
    steps = np.zeros(3, dtype=int)
    sizes = np.array([2, 3, 4, 0])
    for _ in range(25):
        actions = env.action_space.sample()
        expected = [
            actions[lane] if steps[lane] == 3 else legal_actions(np.arange(4) < sizes[steps[lane]])[actions[lane]]
            for lane in range(3)
        ]
        _, _, terminations, _, infos = env.step(actions)
        np.testing.assert_array_equal(infos["played_action"], expected)
        steps = np.where(steps == 3, 0, steps + 1)
        if mode == "same_step":
            steps[terminations] = 0
        if mode == "disabled" and terminations.any():
            env.reset(options={"reset_mask": terminations})
            steps[terminations] = 0


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_stable_baselines3_without_masks(algorithm, arguments):
    """Files of unequal sizes: without the wrapper the first illegal action ends the training."""
    skip_without("rl")
    import stable_baselines3
    from stable_baselines3.common.env_checker import check_env

    plain = LearnedReward(gymnasium.make(PROMPTS, **arguments[PROMPTS]), np.array([1.0, -1.0, 0.5]), kind="step")
    options = {"PPO": {"n_steps": 96, "batch_size": 32}, "DQN": {"learning_starts": 50}}[algorithm]
    make = getattr(stable_baselines3, algorithm)
    with pytest.raises(ValueError, match="Expected an action in 0"):
        make("MlpPolicy", plain, seed=0, device="cpu", **options).learn(150)
    env = LegalActions(plain)
    check_env(env)
    model = make("MlpPolicy", env, seed=0, device="cpu", **options).learn(150)
    observation, _ = env.reset()
    for _ in range(3):
        action, _ = model.predict(observation, deterministic=True)
        observation, _, done, _, _ = env.step(action)
    assert done and (observation < [2, 3, 4]).all()


def test_questions_about_what_was_played(arguments):
    lanes = gymnasium.make_vec(PROMPTS, num_envs=4, **arguments[PROMPTS])
    query = PreferenceQuery(lanes, lanes=2, oracle=SyntheticUser(np.ones(3)))
    env = LegalActionsVector(query)
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.full(4, 3))
    assert len(query.comparisons) == 6


def test_what_can_not_be_mapped(arguments):
    given = arguments[PROMPTS]
    env = LegalActions(gymnasium.make(PROMPTS, **given))
    env.reset()
    with pytest.raises(ValueError, match=r"action in 0\.\.3, got -1"):
        env.step(-1)
    with pytest.raises(TypeError, match="integer action, got float"):
        env.step(0.5)
    lanes = LegalActionsVector(gymnasium.make_vec(PROMPTS, num_envs=2, **given))
    lanes.reset()
    with pytest.raises(ValueError, match=r"integers of shape \(2,\)"):
        lanes.step([0.5, 1])
    with pytest.raises(ValueError, match=r"action in 0\.\.3, got 4"):
        lanes.step(np.array([0, 4]))
    with pytest.raises(TypeError, match="use LegalActionsVector"):
        LegalActions(lanes)
    with pytest.raises(TypeError, match=r"Discrete\(V\) from 0, got Box"):
        LegalActions(gymnasium.make("Pendulum-v1"))
    with pytest.raises(TypeError, match="infos with action_mask.*got none"):
        LegalActions(ChainEnv()).reset(seed=0)
    again = gymnasium.make(env.spec)
    assert isinstance(again, LegalActions)
