"""The own vector environment against Gymnasium's SyncVectorEnv over single environments."""

from __future__ import annotations

import pickle
from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from edpbrl_gym.envs.prompt_construction_vector import PromptConstructionVectorEnv
from tests.helpers.lane_environments import write_vocabulary

ID = "edpbrl/PromptConstruction-v0"
ORDER = ["bases", "lighting", "style"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words"))


def pair_of_environments(folder, mode, lanes=4, **arguments):
    arguments = {"vocabulary": folder, "order": ORDER, **arguments}
    own = gymnasium.make_vec(ID, num_envs=lanes, autoreset_mode=mode, **arguments)
    member = own.metadata["autoreset_mode"]
    # no PassiveEnvChecker: it hands back the same arrays, but adds nothing here
    serial = SyncVectorEnv([lambda: gymnasium.make(ID, **arguments)] * lanes, autoreset_mode=member)
    return own, serial


# deep copies of the own infos are plain dicts, as Gymnasium's infos are: equivalence asks for equal types


def legal(rng, infos):
    return np.array([rng.choice(np.flatnonzero(mask)) if mask.any() else 0 for mask in infos["action_mask"]])


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("render_mode", [None, "ansi", pytest.param("rgb_array", marks=pytest.mark.needs("images"))])
def test_step_by_step_the_same_as_single_environments(folder, mode, render_mode):
    own, serial = pair_of_environments(folder, mode, render_mode=render_mode)
    assert own.observation_space == serial.observation_space and own.action_space == serial.action_space
    assert own.single_observation_space == serial.single_observation_space
    assert own.metadata == serial.metadata
    rng = np.random.default_rng(0)
    first, second = own.reset(seed=3), serial.reset(seed=3)
    assert data_equivalence(deepcopy(first), second, exact=True)
    finished = 0
    for _ in range(18):
        if mode == "disabled" and finished:
            mask = first[2]
            first = own.reset(options={"reset_mask": mask.copy()})
            second = serial.reset(options={"reset_mask": mask.copy()})
            assert data_equivalence(deepcopy(first), second, exact=True)
        actions = legal(rng, first[-1])
        first, second = own.step(actions), serial.step(actions)
        assert data_equivalence(deepcopy(first), second, exact=True)
        if render_mode is not None:
            assert data_equivalence(tuple(own.render()), tuple(serial.render()), exact=True)
        finished = int(first[2].sum())
    assert finished or mode != "disabled"


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_lanes_at_different_steps(folder, mode):
    own, serial = pair_of_environments(folder, mode)
    rng = np.random.default_rng(1)
    first, second = own.reset(), serial.reset()
    first, second = own.step(np.zeros(4, int)), serial.step(np.zeros(4, int))
    mask = np.array([True, False, True, False])
    first = own.reset(options={"reset_mask": mask.copy()})
    second = serial.reset(options={"reset_mask": mask.copy()})
    assert data_equivalence(deepcopy(first), second, exact=True)
    masks = own.action_masks()
    for _ in range(2 if mode == "disabled" else 11):
        actions = np.array([rng.choice(np.flatnonzero(row)) if row.any() else 0 for row in masks])
        first, second = own.step(actions), serial.step(actions)
        assert data_equivalence(deepcopy(first), second, exact=True)
        masks = own.action_masks()


def test_seeds_by_lane_as_gymnasium_takes_them(folder):
    own, serial = pair_of_environments(folder, "disabled")
    seeds = [3, None, 5, 3]
    assert data_equivalence(deepcopy(own.reset(seed=seeds)), serial.reset(seed=seeds), exact=True)
    mask = np.array([True, False, False, True])
    first = own.reset(seed=seeds, options={"reset_mask": mask.copy()})
    assert data_equivalence(deepcopy(first), serial.reset(seed=seeds, options={"reset_mask": mask.copy()}), exact=True)
    with pytest.raises(ValueError, match="one seed for each of 4 lanes, got 3"):
        own.reset(seed=[1, 2, 3])


@pytest.mark.parametrize("num_envs", [2.5, "2", None])
def test_lanes_that_are_no_count(num_envs):
    with pytest.raises(TypeError, match="Expected num_envs as an integer, got"):
        PromptConstructionVectorEnv(num_envs)


def test_the_reset_mask_stays_in_the_options_of_the_caller(folder):
    own, _ = pair_of_environments(folder, "disabled")
    own.reset()
    options = {"reset_mask": np.array([True, False, False, False])}
    own.reset(options=options)
    assert list(options) == ["reset_mask"]


@pytest.mark.parametrize("mask", [[True] * 4, np.ones(4), np.ones(3, dtype=bool), np.zeros(4, dtype=bool)], ids=str)
def test_wrong_reset_masks(folder, mask):
    own, _ = pair_of_environments(folder, "disabled")
    own.reset()
    with pytest.raises(ValueError, match="reset_mask"):
        own.reset(options={"reset_mask": mask})


def test_illegal_actions_name_the_lane_and_change_nothing(folder):
    own, _ = pair_of_environments(folder, "next_step")
    observations, _ = own.reset()
    with pytest.raises(ValueError, match=r"0\.\.1 at step 0 \('bases' has 2 tokens\) in lane 2, got 3"):
        own.step(np.array([0, 1, 3, 0]))
    np.testing.assert_array_equal(own.step(np.array([0, 1, 1, 0]))[0][:, 0], [0, 1, 1, 0])
    for wrong in (np.zeros(3, int), np.zeros(4), np.zeros((4, 1), int)):
        with pytest.raises(ValueError, match=r"integers of shape \(4,\)"):
            own.step(wrong)


def test_stepping_without_a_reset(folder):
    own, _ = pair_of_environments(folder, "disabled")
    with pytest.raises(ResetNeeded, match="reset"):
        own.step(np.zeros(4, int))
    own.reset()
    for _ in range(3):
        own.step(np.zeros(4, int))
    with pytest.raises(ResetNeeded, match=r"\[0, 1, 2, 3\] are complete"):
        own.step(np.zeros(4, int))


def test_unmasked_samples_of_the_batched_space_are_legal(folder):
    for env in pair_of_environments(folder, "next_step"):
        env.action_space.seed(0)
        _, infos = env.reset()
        for _ in range(12):
            env.step(env.action_space.sample())
        sampled = env.action_space.sample(mask=tuple(np.array([[0, 0, 0, 1]] * 4, dtype=np.int8)))
        assert sampled.tolist() == [3] * 4


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


def test_pickle_in_the_middle_of_an_episode(folder):
    own, _ = pair_of_environments(folder, "next_step")
    own.reset(seed=0)
    own.step(np.array([0, 1, 0, 1]))
    copy = pickle.loads(pickle.dumps(own))
    for actions in ([2, 1, 0, 2], [3, 0, 1, 2], [0, 0, 0, 0]):
        assert data_equivalence(own.step(np.array(actions)), copy.step(np.array(actions)), exact=True)


def test_attributes_for_all_lanes(folder, minilm):
    own, _ = pair_of_environments(folder, "next_step")
    observations, _ = own.reset()
    observations, *_ = own.step(np.array([0, 1, 0, 1]))
    assert own.trajectory_texts(observations) == ["a lighthouse on a cliff", "a city street"] * 2
    np.testing.assert_allclose(
        own.trajectory_features(observations), own.features[[0, 1, 0, 1]], atol=1e-5
    )  # a partial prompt of one token is that token
    assert own.mdp_state(observations).tolist() == [1, 1, 1, 1]
