"""The diffusion environment, single and vector."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

import edpbrl_gym as eg
from edpbrl_gym.diffusion import enumerate_episodes
from edpbrl_gym.features.strokes import StrokeEncoder
from tests.helpers.tiny_diffusion import save_tiny_stable_diffusion
from tests.helpers.tiny_digits import save_tiny_digits

pytestmark = pytest.mark.needs("images")

ID = "edpbrl/DiffusionGuidance-v0"
CLOSE = 2e-4  # sums of another batch are rounded in another order


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    model = str(save_tiny_digits(tmp_path_factory.mktemp("digits") / "model"))
    return {"model": model, "conditions": [1, 7], "weights": [1.0, 3.0], "blocks": 3, "steps": 6}


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


def test_same_seed_same_images(arguments):
    images = []
    for seed in (5, 5, 6):
        env = gymnasium.make(ID, render_mode="rgb_array", **arguments)
        env.reset(seed=seed)
        frames = [env.render()]
        for action in (1, 2, 3):
            env.step(action)
            frames.append(env.render())
        images.append(np.stack(frames))
    np.testing.assert_array_equal(images[0], images[1])
    assert (images[0] != images[2]).any()


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


def test_model_calls_are_counted(arguments):
    lanes = gymnasium.make_vec(ID, num_envs=6, **arguments)
    model = lanes.unwrapped.model
    lanes.reset(seed=0)
    assert model.model_calls == 0  # noise costs nothing
    for step in range(1, 4):
        lanes.step(np.arange(6) % 4)
        assert model.model_calls == 2 * step  # one for each of a block's two denoising steps, whatever the lanes
    lanes.step(np.zeros(6, dtype=int))  # only begins anew
    assert model.model_calls == 6


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_lanes_equal_single_environments(arguments, mode):
    own = gymnasium.make_vec(ID, num_envs=3, autoreset_mode=mode, **arguments)
    modes = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP}
    sync = gymnasium.make_vec(
        ID, num_envs=3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": modes[mode]}, **arguments
    )
    rng = np.random.default_rng(0)
    pairs = [(own.reset(seed=4), sync.reset(seed=4))]
    for _ in range(9):
        actions = rng.integers(4, size=3)
        pairs.append((own.step(actions), sync.step(actions)))
    for first, second in pairs:
        np.testing.assert_allclose(first[0], second[0], atol=CLOSE)
        for one, two in zip(first[1:-1], second[1:-1], strict=True):
            np.testing.assert_array_equal(one, two)
        assert first[-1].keys() == second[-1].keys()
        for key in ("noise_seed", "step", "directions", "action_mask", "_step"):
            np.testing.assert_array_equal(first[-1][key], second[-1][key])
        if "final_obs" in first[-1]:
            for one, two in zip(first[-1]["final_obs"], second[-1]["final_obs"], strict=True):
                np.testing.assert_allclose(one, two, atol=CLOSE)


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
    env = gymnasium.make(ID, **arguments).unwrapped
    with pytest.raises(ResetNeeded, match="not started yet"):
        env.step(0)
    env.reset(seed=0)
    for wrong in (4, -1):
        with pytest.raises(ValueError, match=rf"action in 0\.\.3, got {wrong}"):
            env.step(wrong)
    with pytest.raises(TypeError, match="integer action"):
        env.step(0.5)
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
        ({"weights": []}, "weights"),
        ({"weights": 2.0}, "weights as a list"),
        ({"conditions": 7}, "conditions as a list"),
        ({"weights": [float("nan")]}, "weight"),
        ({"model": "/no/such/folder"}, "no such folder"),
        ({"encoder": "minilm"}, "image encoder of one of the forms.*'strokes'"),
        ({"num_noises": 0}, "num_noises"),
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


def test_a_taste_from_questions_about_images(arguments):
    """PreferenceQuery, a simulated user and the estimate, without anything that knows of diffusion."""
    lanes = gymnasium.make_vec(ID, num_envs=24, shared_noise=4, **arguments)
    user = eg.SyntheticUser(StrokeEncoder().direction(ink=1, slant=1), mode="sampled", scale=20.0, seed=1)
    agent = eg.make_agent("random", lanes, num_options=4, episodes=12, seed=1)
    comparisons = eg.collect(lanes, agent, user, episodes=12, seed=1)
    assert len(comparisons) == 36 and comparisons.dimension == 12
    assert comparisons.metadata["encoder"] == "strokes"
    estimate = eg.estimate(comparisons, regularization=0.1)
    assert estimate.theta @ user.theta > 0.3 * np.linalg.norm(estimate.theta)


def test_a_learned_reward(arguments):
    theta = StrokeEncoder().direction(thickness=1)
    env = eg.LearnedReward(gymnasium.make(ID, **arguments), theta)
    env.reset(seed=0)
    rewards = [env.step(action)[1] for action in (0, 1, 2)]
    observation = env.unwrapped._observation
    assert rewards[:2] == [0.0, 0.0]
    assert rewards[2] == pytest.approx(float(env.unwrapped.trajectory_features(observation)[0] @ theta))
