"""Checks over every registered environment."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeAwareObservation

import edpbrl_gym  # noqa: F401  (registers the environments)
from tests.helpers.tiny_language_model import write_tiny_model

IDS = sorted(name for name in gymnasium.registry if name.startswith("edpbrl/"))
pytestmark = [pytest.mark.parametrize("env_id", IDS), pytest.mark.needs("text", "images", "rl")]


@pytest.fixture(scope="module")
def tiny_language_model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def arguments(env_id, request):
    """What an environment needs to be made at all, by id."""
    if env_id == "edpbrl/DiffusionGuidance-v0":  # the package's own model
        return {"conditions": [1, 7], "blocks": 3, "steps": 3}
    if env_id == "edpbrl/TextGeneration-v0":
        return {"model": request.getfixturevalue("tiny_language_model"), "words": 3, "max_tokens": 10}
    return {}


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def rollout(env, seed, episodes=3):
    """Everything an environment returns over some episodes of masked random actions."""
    env.action_space.seed(seed)
    found = [env.reset(seed=seed)]
    for _ in range(episodes):
        info, done = found[-1][-1], False
        while not done:
            found.append(env.step(env.action_space.sample(info["action_mask"])))
            info, done = found[-1][-1], found[-1][2] or found[-1][3]
        found.append(env.reset())
    return found


@pytest.mark.parametrize("repeat", range(3))
def test_gymnasiums_check(env_id, arguments, repeat):
    check_env(gymnasium.make(env_id, **arguments).unwrapped)


@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_stable_baselines3s_check(env_id, arguments, render_mode):
    from stable_baselines3.common.env_checker import check_env as check

    check(gymnasium.make(env_id, render_mode=render_mode, **arguments), skip_render_check=False)
    check(gymnasium.make(env_id, **arguments).unwrapped)


def test_same_seed_and_actions_same_everything(env_id, arguments):
    first, second = (rollout(gymnasium.make(env_id, **arguments), seed=7) for _ in range(2))
    assert data_equivalence(tuple(first), tuple(second), exact=True)


def test_returned_arrays_are_fresh(env_id, arguments):
    env = gymnasium.make(env_id, **arguments)
    seen = [entry[0] for entry in rollout(env, seed=1)]
    copies = [np.copy(observation) for observation in seen]
    for observation in seen:
        observation += 1
    for observation, copy in zip(seen, copies, strict=True):
        np.testing.assert_array_equal(observation, copy + 1)


def test_pickle(env_id, arguments):
    env = gymnasium.make(env_id, **arguments)
    copy = pickle.loads(pickle.dumps(env))
    assert data_equivalence(tuple(rollout(env, 3)), tuple(rollout(copy, 3)), exact=True)


def test_spec_round_trip(env_id, arguments):
    env = gymnasium.make(env_id, **arguments)
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    assert again.spec.id == env_id and again.spec.kwargs == env.spec.kwargs
    assert again.observation_space == env.observation_space and again.action_space == env.action_space
    vector = gymnasium.make_vec(env_id, num_envs=3, **arguments)
    assert EnvSpec.from_json(vector.spec.to_json()).kwargs == vector.spec.kwargs
    vector_again = gymnasium.make_vec(EnvSpec.from_json(vector.spec.to_json()))
    assert vector_again.num_envs == 3


def test_the_spec_says_the_longest_episode(env_id, arguments):
    """Known from the arguments, so no TimeLimit is there; in an environment made from the spec it changes no end."""
    env = gymnasium.make(env_id, **arguments)
    longest = env.unwrapped.model.horizon
    assert env.spec.max_episode_steps == longest and gymnasium.spec(env_id).max_episode_steps is None
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    ends = [[entry[2:4] for entry in rollout(one, 7) if len(entry) == 5] for one in (env, again)]
    assert not any(truncated for _, truncated in ends[0])
    assert [terminated for terminated, _ in ends[0]] == [terminated for terminated, _ in ends[1]]
    lanes = gymnasium.make_vec(env_id, num_envs=2, **arguments)
    assert lanes.spec.max_episode_steps == longest
    assert gymnasium.make_vec(EnvSpec.from_json(lanes.spec.to_json())).spec.max_episode_steps == longest
    with pytest.raises(ValueError, match=f"max_episode_steps of at least {longest}, the longest episode, got 1"):
        gymnasium.make_vec(env_id, num_envs=2, max_episode_steps=1, **arguments)


def test_observations_with_the_time(env_id, arguments):
    from stable_baselines3.common.env_checker import check_env as check

    env = TimeAwareObservation(gymnasium.make(env_id, **arguments), flatten=False)
    (start, _), *steps, _ = rollout(env, 3, episodes=1)
    assert [entry[0]["time"].tolist() for entry in steps] == [[number] for number in range(1, len(steps) + 1)]
    assert all(env.observation_space.contains(entry[0]) for entry in steps) and start["time"].tolist() == [0]
    check(TimeAwareObservation(gymnasium.make(env_id, **arguments), normalize_time=True))


def test_an_unknown_encoder_is_told_at_once(env_id, arguments):
    """No model is loaded to find out, neither for a known encoder."""
    pictures = env_id == "edpbrl/DiffusionGuidance-v0"
    for name in ("nonsense", "open_clip", ""):
        for make in (gymnasium.make, gymnasium.make_vec):
            known = "an image encoder of one of the forms.*'strokes'" if pictures else "an encoder of one of the forms"
            with pytest.raises(ValueError, match=f"Expected {known}.*got {name!r}"):
                make(env_id, encoder=name, **arguments)
    with pytest.raises(TypeError, match="encoder as a string"):
        gymnasium.make(env_id, encoder=3, **arguments)
    source = "open_clip:local-dir:" if pictures else "sentence-transformers:"
    gymnasium.make(env_id, encoder=f"{source}/no/such/folder", **arguments)


def test_vector_entry_point_states_its_autoreset_mode(env_id, arguments):
    vector = gymnasium.make_vec(env_id, num_envs=2, **arguments)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_module_form_of_the_id_imports_the_package(env_id, arguments):
    code = f"import gymnasium; print(gymnasium.make('edpbrl_gym:{env_id}', **{arguments}).spec.id)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == env_id


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_infos_that_are_read_late_are_those_of_their_step(env_id, arguments, mode):
    lanes = [gymnasium.make_vec(env_id, num_envs=3, autoreset_mode=mode, **arguments) for _ in range(2)]
    at_once, late = ([env.reset(seed=5)] for env in lanes)
    for _ in range(12):
        lanes[0].action_space.seed(0)
        actions = lanes[0].action_space.sample(mask=tuple(lanes[0].unwrapped.action_masks()))
        at_once[-1] = deepcopy(at_once[-1])  # a plain dict
        at_once.append(lanes[0].step(actions))
        late.append(lanes[1].step(actions))
    assert data_equivalence(deepcopy(at_once), deepcopy(late), exact=True)


def test_async_lanes_with_spawn_equal_sync_lanes(env_id, arguments):
    parallel = gymnasium.make_vec(
        env_id, num_envs=2, vectorization_mode="async", vector_kwargs={"context": "spawn"}, **arguments
    )
    serial = gymnasium.make_vec(env_id, num_envs=2, vectorization_mode="sync", **arguments)
    try:
        for env in (parallel, serial):
            env.action_space.seed(0)
        results = [[env.reset(seed=5)] for env in (parallel, serial)]
        for _ in range(8):
            for env, seen in zip((parallel, serial), results, strict=True):
                seen.append(env.step(env.action_space.sample(mask=tuple(seen[-1][-1]["action_mask"]))))
        assert data_equivalence(tuple(results[0]), tuple(results[1]), exact=True)
    finally:
        parallel.close()
        serial.close()


def test_the_docstring_is_the_page(env_id, arguments):
    sections = ["Description", "Action Space", "Observation Space", "Starting State", "Rewards", "Episode End"]
    sections += ["Information", "Arguments", "References", "Version History"]
    page = gymnasium.make(env_id, **arguments).unwrapped.__doc__
    positions = [page.index(f"## {section}\n") for section in sections]
    assert positions == sorted(positions)
