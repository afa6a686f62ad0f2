"""The diffusion environment, single and vector."""

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.diffusion import enumerate_episodes
from edpbrl_gym.features.strokes import StrokeEncoder
from tests.helpers.tiny_diffusion import save_tiny_stable_diffusion

pytestmark = pytest.mark.needs("images")

ID = "edpbrl/DiffusionGuidance-v0"
CLOSE = 2e-4  # sums of another batch are rounded in another order


@pytest.fixture
def arguments(digits):
    return {"model": digits, "conditions": [1, 7], "weights": [1.0, 3.0], "blocks": 3, "steps": 6}


def test_an_episode(arguments):
    env = gymnasium.make(ID, render_mode="rgb_array", **arguments)
    model = env.unwrapped.model
    assert model.directions == [(1, 1.0), (1, 3.0), (7, 1.0), (7, 3.0)] and env.action_space.n == 4
    observation, info = env.reset(seed=3)
    latent, clean, done = model.split(observation)
    assert latent.shape == (1, 1, 8, 8) and not clean.any() and done.tolist() == [0] and info["directions"] == ""
    assert 0.7 < latent.std() < 1.3
    for number, action in enumerate((0, 3, 2), 1):
        observation, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (0.0, number == 3, False)
        assert info["step"] == number and env.observation_space.contains(observation)
    assert info["directions"] == "1 x 1, 7 x 3, 7 x 1" and not info["action_mask"].any()
    latent, clean, done = model.split(observation)
    np.testing.assert_array_equal(latent, clean)
    assert done.tolist() == [3]
    image = env.unwrapped.trajectory_images(observation)[0]
    np.testing.assert_array_equal(env.render(), image.repeat(16, axis=0).repeat(16, axis=1))
    features = env.unwrapped.trajectory_features(observation)
    from PIL import Image

    np.testing.assert_array_equal(features, StrokeEncoder().encode_images([Image.fromarray(image)]))
    with pytest.raises(ResetNeeded, match="complete"):
        env.unwrapped.step(0)


def test_a_noise_by_its_number(arguments):
    env = gymnasium.make(ID, **arguments)
    first, info = env.reset(seed=1, options={"noise_seed": 17})
    assert info["noise_seed"] == 17
    again, _ = env.reset(seed=2, options={"noise_seed": 17})
    np.testing.assert_array_equal(first, again)
    other, info = env.reset()
    assert info["noise_seed"] != 17 and (other != first).any()
    for wrong in (-1, 2**31):
        with pytest.raises(ValueError, match="noise_seed"):
            env.reset(options={"noise_seed": wrong})
    few = gymnasium.make(ID, num_noises=3, **arguments)
    seen = {few.reset(seed=seed)[1]["noise_seed"] for seed in range(40)}
    assert seen == {0, 1, 2}
    with pytest.raises(ValueError, match=r"0\.\.2, got 3"):
        few.reset(options={"noise_seed": 3})


def test_lanes_at_different_blocks(arguments):
    lanes = gymnasium.make_vec(ID, num_envs=2, autoreset_mode="disabled", **arguments)
    start, _ = lanes.reset(options={"noise_seed": [8, 9]})
    once, *_ = lanes.step([1, 2])
    back, info = lanes.reset(options={"reset_mask": np.array([True, False]), "noise_seed": [8, 9]})
    np.testing.assert_array_equal(back[0], start[0])
    np.testing.assert_array_equal(back[1], once[1])
    assert info["_step"].tolist() == [True, False]
    mixed, *_ = lanes.step([1, 3])
    np.testing.assert_allclose(mixed[0], once[0], atol=CLOSE)
    assert lanes.unwrapped.model.split(mixed)[2].tolist() == [1, 2]


def test_options_of_a_question_from_one_noise(arguments):
    lanes = gymnasium.make_vec(ID, num_envs=6, shared_noise=3, **arguments)
    observations, info = lanes.reset(seed=2)
    seeds = info["noise_seed"]
    assert len(set(seeds[:3])) == len(set(seeds[3:])) == 1 and seeds[0] != seeds[3]
    np.testing.assert_array_equal(observations[0], observations[2])
    separate = gymnasium.make_vec(ID, num_envs=6, **arguments).reset(seed=2)[1]["noise_seed"]
    assert seeds[[0, 3]].tolist() == separate[[0, 3]].tolist() and len(set(separate)) == 6
    for _ in range(4):
        *_, info = lanes.step(np.arange(6) % 4)
    again = info["noise_seed"]  # the next episode
    assert len(set(again[:3])) == 1 and again[0] != seeds[0]
    with pytest.raises(ValueError, match="shared_noise as a divisor of num_envs = 6, got 4"):
        gymnasium.make_vec(ID, num_envs=6, shared_noise=4, **arguments)


def test_wrong_actions(arguments):
    lanes = gymnasium.make_vec(ID, num_envs=2, **arguments)
    with pytest.raises(ValueError, match="noise_seed"):
        lanes.reset(options={"noise_seed": -1})
    with pytest.raises(ResetNeeded, match="not started yet"):
        lanes.step([0, 0])
    lanes.reset(seed=0)
    with pytest.raises(ValueError, match="got 9 in lane 1"):
        lanes.step([0, 9])
    assert lanes.unwrapped.model.split(lanes.unwrapped._states)[2].tolist() == [0, 0]  # no lane has moved


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": 7}, "multiple of blocks = 3"),
        ({"scheduler": "ddpm"}, "scheduler"),
        ({"conditions": []}, "at least one"),
        ({"conditions": [11]}, r"0\.\.9"),
        ({"conditions": 7}, "conditions as a list"),
        ({"weights": [float("nan")]}, "weight"),
        ({"model": "/no/such/folder"}, "no such folder"),
        ({"encoder": "minilm"}, "image encoder of one of the forms.*'strokes'"),
        ({"render_mode": "text"}, "render_mode"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_loaded(arguments, change, said):
    for make in (gymnasium.make, lambda *args, **kwargs: gymnasium.make_vec(*args, num_envs=2, **kwargs)):
        with pytest.raises((ValueError, FileNotFoundError, gymnasium.error.Error), match=said):
            make(ID, **{**arguments, **change})


def test_texts_as_conditions(tmp_path):
    model = str(save_tiny_stable_diffusion(tmp_path / "model", scheduler="DDIMScheduler"))
    lanes = gymnasium.make_vec(
        ID, num_envs=2, model=model, conditions=["a cat", "a dog"], blocks=2, steps=2, render_mode="rgb_array"
    )
    observations, _ = lanes.reset(seed=0)
    assert observations.shape == (2, 2 * 4 * 8 * 8 + 1)
    *_, info = lanes.step([0, 1])
    assert info["directions"].tolist() == ["a cat x 2", "a dog x 2"]
    assert [frame.shape for frame in lanes.render()] == [(128, 128, 3)] * 2
    with pytest.raises(ValueError, match="Expected conditions, texts to guide towards"):
        gymnasium.make(ID, model=model)


def test_the_trees_are_the_environments_episodes(arguments):
    env = gymnasium.make(ID, **arguments)
    model = env.unwrapped.model
    calls = model.model_calls
    trees = enumerate_episodes(model, [4, 11])
    assert trees.noises == 2 and [level.shape for level in trees.features] == [(2, 4, 12), (2, 16, 12), (2, 64, 12)]
    assert model.model_calls - calls == 2 * 3 * 2  # two noises, three levels, two denoising steps
    rng = np.random.default_rng(0)
    for noise, seed in enumerate((4, 11)):
        actions = rng.integers(4, size=3)
        env.reset(options={"noise_seed": seed})
        seen = [env.unwrapped.trajectory_features(env.step(action)[0])[0] for action in actions]
        path = trees.select([noise]).path_features(actions[None])[0]
        np.testing.assert_allclose(path, seen, atol=0.05)  # a pixel may round to the next of 256 values
    for wrong, error in (([-1], ValueError), ([1.5], TypeError), ([2**40], ValueError)):
        with pytest.raises(error, match="noise"):
            enumerate_episodes(model, wrong)
    with pytest.raises(ValueError, match=r"at most 100,000 sequences of actions, got 10 \*\* 6 = 1,000,000"):
        enumerate_episodes(gymnasium.make(ID, model=arguments["model"], blocks=6, steps=6).unwrapped.model, [0])
