"""The prompt environment, single and vector: rules, masks, texts, features, rendering, errors."""

import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.envs.prompt_construction import PromptConstructionEnv, PromptConstructionVectorEnv
from edpbrl_gym.features import save_precomputed
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.lane_environments import SIZES, TOKENS, write_vocabulary

ID = "edpbrl/PromptConstruction-v0"
ORDER = ["bases", "lighting", "style"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words"))


@pytest.fixture
def env(folder):
    return gymnasium.make(ID, vocabulary=folder, order=ORDER)


def test_an_episode_is_the_prompt_token_by_token(env):
    observation, info = env.reset(seed=0)
    assert observation.tolist() == [4, 4, 4]
    assert info["prompt"] == "" and info["step"] == 0
    assert info["action_mask"].dtype == np.int8 and info["action_mask"].tolist() == [1, 1, 0, 0]
    observation, reward, terminated, truncated, info = env.step(1)
    assert observation.tolist() == [1, 4, 4] and reward == 0.0 and not terminated and not truncated
    assert info["prompt"] == "a city street" and info["action_mask"].tolist() == [1, 1, 1, 0]
    env.step(np.int64(2))
    observation, reward, terminated, truncated, info = env.step(np.array(3))
    assert observation.tolist() == [1, 2, 3] and terminated is True and truncated is False and reward == 0.0
    assert info["prompt"] == "a city street, overcast sky, pixel art" and info["step"] == 3
    assert not info["action_mask"].any()
    with pytest.raises(ResetNeeded, match="complete"):
        env.step(0)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.tuples(*(st.integers(0, size - 1) for size in SIZES)))
def test_any_legal_prompt_is_built_as_the_vocabulary_joins_it(folder, choice):
    env = gymnasium.make(ID, vocabulary=folder, order=ORDER).unwrapped
    env.reset()
    for step, token in enumerate(choice):
        assert env.action_masks().sum() == SIZES[step]
        observation, _, terminated, _, info = env.step(token)
        assert observation in env.observation_space
        assert info["prompt"] == ", ".join(TOKENS[ORDER[h]][choice[h]] for h in range(step + 1))
        assert env.trajectory_texts(observation) == [info["prompt"]]
        assert env.state_texts(observation) == [TOKENS[ORDER[step]][token]]
        assert env.mdp_step(observation).tolist() == [step + 1]
    assert terminated


@pytest.mark.parametrize("action", [2, -1, 0.0, np.array([0, 1])])
def test_an_illegal_action_says_what_was_allowed(env, action):
    env.reset(seed=0)
    said = r"Expected an action in 0\.\.1 at step 0 \('bases' has 2 tokens\), got|Expected an integer action"
    with pytest.raises(ValueError if isinstance(action, int) else TypeError, match=said):
        env.step(action)
    observation, *_ = env.step(1)  # nothing happened before
    assert observation.tolist() == [1, 4, 4]


def test_unmasked_samples_are_legal_at_every_step_and_masked_ones_reach_every_token(env):
    env.action_space.seed(0)
    assert env.action_space == gymnasium.spaces.Discrete(4)
    assert {int(env.action_space.sample()) for _ in range(200)} == {0, 1}
    mask = np.array([1, 1, 1, 0], dtype=np.int8)
    assert {int(env.action_space.sample(mask)) for _ in range(200)} == {0, 1, 2}
    probability = np.array([0.0, 0.0, 0.0, 1.0])
    assert env.action_space.sample(probability=probability) == 3
    copy = pickle.loads(pickle.dumps(env.action_space))
    assert [copy.sample() for _ in range(9)] == [env.action_space.sample() for _ in range(9)]


def test_mdp_and_rows_belong_together(env, minilm):
    inner = env.unwrapped
    assert isinstance(inner.mdp, PromptMDP) and inner.mdp.sizes == SIZES
    assert inner.features.shape == (9, 384)
    np.testing.assert_allclose(inner.features, minilm.encode(inner.vocabulary.all_tokens), atol=1e-5)
    observations = np.array([[0, 4, 4], [1, 2, 4], [1, 0, 3]])
    assert inner.mdp_state(observations).tolist() == [1, 2, 3]
    np.testing.assert_allclose(inner.state_features(observations), inner.features[[0, 4, 8]], atol=1e-5)
    np.testing.assert_allclose(
        inner.trajectory_features(observations),
        minilm.encode([
            "a lighthouse on a cliff",
            "a city street, overcast sky",
            "a city street, golden hour, pixel art",
        ]),
        atol=1e-5,
    )  # fmt: skip
    with pytest.raises(ValueError, match="lane 1 has none"):
        inner.state_features(np.array([[0, 4, 4], [4, 4, 4]]))
    with pytest.raises(ValueError, match=r"shape \(n, H\)"):
        inner.trajectory_texts(np.zeros((2, 5), dtype=int))


def test_split_and_subset_are_those_of_the_vocabulary():
    train = gymnasium.make(ID, split="train", split_seed=5).unwrapped.vocabulary
    test = gymnasium.make(ID, split="test", split_seed=5).unwrapped.vocabulary
    whole = gymnasium.make(ID).unwrapped.vocabulary
    for kept, held_out, both in zip(train.tokens, test.tokens, whole.tokens, strict=True):
        assert not set(kept) & set(held_out) and set(kept) | set(held_out) == set(both)
    small = gymnasium.make(ID, tokens_per_step=7, subset_seed=2).unwrapped
    assert small.vocabulary.sizes == whole.subset(7, 2).sizes and small.vocabulary.tokens == whole.subset(7, 2).tokens


@pytest.mark.needs("images")
def test_rendering(folder):
    env = gymnasium.make(ID, vocabulary=folder, order=ORDER, render_mode="ansi")
    env.reset()
    assert env.render() == ""
    env.step(1)
    assert env.render() == "a city street"
    env = gymnasium.make(ID, vocabulary=folder, order=ORDER, render_mode="rgb_array")
    env.reset()
    empty = env.render()
    env.step(1)
    image = env.render()
    assert image.dtype == np.uint8 and image.shape == empty.shape and image.shape[2] == 3
    assert (empty == 255).all() and (image < 128).any()
    with pytest.raises(ValueError, match="render_mode"):
        PromptConstructionEnv(vocabulary=folder, render_mode="human3d")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"split": "validation"}, ValueError, "split"),
        ({"vocabulary": object()}, TypeError, "vocabulary as a plain name"),
        ({"encoder": object()}, TypeError, "encoder as a plain name"),
        ({"vocabulary": 5}, TypeError, "vocabulary as a folder's path or None, got 5"),
        ({"tokens_per_step": 0}, ValueError, "tokens_per_step >= 1, got 0"),
        ({"tokens_per_step": 2.5}, TypeError, "tokens_per_step as an integer, got 2.5"),
        ({"split_seed": -1}, ValueError, "split_seed >= 0, got -1"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        gymnasium.make(ID, **arguments)


def test_a_pickled_environment_continues_and_leaves_the_model_behind(env, minilm):
    env.reset(seed=1)
    env.step(0)
    env.unwrapped.features  # noqa: B018
    data = pickle.dumps(env)
    assert len(data) < 20_000
    copy = pickle.loads(data)
    for action in (2, 3):
        np.testing.assert_array_equal(env.step(action)[0], copy.step(action)[0])
    np.testing.assert_array_equal(copy.unwrapped.features, env.unwrapped.features)


@pytest.mark.parametrize("make", ["make", "make_vec"])
def test_making_and_playing_loads_no_model(make):
    code = (
        "import sys, gymnasium; "
        f"env = gymnasium.{make}('edpbrl_gym:{ID}'); env.reset(seed=0); env.step(env.action_space.sample()); "
        "print(sorted({'torch', 'transformers', 'sentence_transformers', 'open_clip', 'cvxpy', 'matplotlib', 'pandas'} "
        "& set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_rewritten_file_of_features_is_read_again(folder, tmp_path):
    """Environments of a process share an encoder, but never a stale one."""
    texts = load_vocabulary(folder, order=ORDER).all_tokens
    found = []
    for seed in (0, 1):
        save_precomputed(tmp_path / "own.npz", texts, np.random.default_rng(seed).standard_normal((len(texts), 3)))
        own = gymnasium.make(ID, vocabulary=folder, order=ORDER, encoder=f"precomputed:{tmp_path / 'own.npz'}")
        found.append(own.unwrapped.features)
    assert not np.allclose(*found)


@pytest.mark.parametrize("mask", [[True] * 4, np.ones(4), np.ones(3, dtype=bool), np.zeros(4, dtype=bool)], ids=str)
def test_wrong_reset_masks(folder, mask):
    own = gymnasium.make_vec(ID, num_envs=4, autoreset_mode="disabled", vocabulary=folder, order=ORDER)
    own.reset()
    with pytest.raises(ValueError, match="reset_mask"):
        own.reset(options={"reset_mask": mask})


def test_autoreset_modes_by_name():
    for mode, member in (
        ("next_step", AutoresetMode.NEXT_STEP),
        ("SameStep", AutoresetMode.SAME_STEP),
        (AutoresetMode.DISABLED, AutoresetMode.DISABLED),
    ):
        env = PromptConstructionVectorEnv(2, tokens_per_step=2, autoreset_mode=mode)
        assert env.metadata["autoreset_mode"] is member
    assert PromptConstructionVectorEnv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    with pytest.raises(ValueError, match="autoreset_mode"):
        PromptConstructionVectorEnv(2, autoreset_mode="later")
    with pytest.raises(ValueError, match="num_envs"):
        PromptConstructionVectorEnv(0)
