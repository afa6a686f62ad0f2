"""Checks over every registered environment."""

import pickle
import warnings
from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import SyncVectorEnv

import edpbrl_gym  # noqa: F401  (registers the environments)

IDS = sorted(name for name in gymnasium.registry if name.startswith("edpbrl/"))
pytestmark = [pytest.mark.parametrize("env_id", IDS), pytest.mark.needs("text", "images", "rl")]


@pytest.fixture
def arguments(env_id, request):
    """What an environment needs to be made at all, by id."""
    if env_id == "edpbrl/DiffusionGuidance-v0":  # the package's own model
        return {"conditions": [1, 7], "blocks": 3, "steps": 3}
    if env_id == "edpbrl/TextGeneration-v0":
        return {"model": request.getfixturevalue("gpt2"), "words": 3, "max_tokens": 10}
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


def test_gymnasiums_check(env_id, arguments):
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


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_lanes_are_single_environments_side_by_side(env_id, arguments, mode):
    """Ends, infos and rendered texts equal; pictures to rounding, as sums of another batch are rounded otherwise."""
    own = gymnasium.make_vec(env_id, num_envs=3, autoreset_mode=mode, render_mode="ansi", **arguments)
    member = own.metadata["autoreset_mode"]
    makers = [lambda: gymnasium.make(env_id, render_mode="ansi", **arguments)] * 3
    serial = SyncVectorEnv(makers, autoreset_mode=member)
    assert own.observation_space == serial.observation_space and own.action_space == serial.action_space
    assert own.single_observation_space == serial.single_observation_space and own.metadata == serial.metadata
    rng = np.random.default_rng(2)
    pairs = [(own.reset(seed=4), serial.reset(seed=4))]
    for _ in range(14):
        ended = pairs[-1][0][2] if len(pairs[-1][0]) == 5 else np.zeros(3, dtype=bool)
        if mode == "disabled" and ended.any():
            pairs.append(tuple(env.reset(options={"reset_mask": ended.copy()}) for env in (own, serial)))
        actions = np.array(
            [rng.choice(np.flatnonzero(row)) if row.any() else 0 for row in own.unwrapped.action_masks()]
        )
        pairs.append((own.step(actions), serial.step(actions)))
        assert own.render() == tuple(serial.render())
    for first, second in pairs:
        np.testing.assert_allclose(first[0], second[0], atol=2e-4)
        assert data_equivalence(first[1:-1], second[1:-1], exact=True)
        infos, others = dict(first[-1]), dict(second[-1])
        for one, other in zip(infos.pop("final_obs", ()), others.pop("final_obs", ()), strict=True):
            np.testing.assert_allclose(one if one is not None else 0, other if other is not None else 0, atol=2e-4)
        assert data_equivalence(deepcopy(infos), others, exact=True)


def test_async_lanes_with_spawn_equal_sync_lanes(env_id, arguments):
    if env_id == "edpbrl/DiffusionGuidance-v0":
        pytest.skip("two more processes that load a diffusion model, for what the other environments show")
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
