"""Questions of complete prompts: PreferenceQuery asks once an episode, when its lanes have finished."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection import collect
from edpbrl_gym.envs.wrappers import PreferenceQuery
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.lane_environments import SIZES, TOKENS, ChainEnv, RaggedEnv, write_summed_world

ID = "edpbrl/PromptConstruction-v0"
ORDER = ["bases", "lighting", "style"]
MODES = ["next_step", "same_step", "disabled"]
D, H, K = 5, 3, 3
TASTE = np.random.default_rng(7).normal(size=D)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_summed_world(tmp_path_factory.mktemp("world"), dimension=D, seed=2)


def make(world, form="own", mode="next_step", lanes=2 * K):
    if form == "own":
        return gymnasium.make_vec(ID, num_envs=lanes, autoreset_mode=mode, **world)
    member = {"next_step": "NextStep", "same_step": "SameStep", "disabled": "Disabled"}[mode]
    return SyncVectorEnv([lambda: gymnasium.make(ID, **world)] * lanes, autoreset_mode=member)


def query(env, user=None):
    return PreferenceQuery(env, lanes=K, oracle=user or SyntheticUser(TASTE), feedback="prompt")


class Trajectories:
    """The features of what a chain environment has reached: one-hot states, and the calls."""

    calls = 0

    def trajectory_features(self, observations):
        type(self).calls += 1
        return np.eye(self.mdp.num_states)[np.asarray(observations)].astype(np.float32)


class ChainOfStates(Trajectories, ChainEnv):
    pass


class RaggedChain(Trajectories, RaggedEnv):
    pass


@pytest.mark.parametrize("form", ["own", "sync"])
@pytest.mark.parametrize("mode", MODES)
def test_the_questions_are_those_of_a_hand_written_loop(world, mode, form):
    """The actions of every lane are kept by hand; when three are there, they are a prompt."""
    venv = query(make(world, form, mode))
    encoder = venv.unwrapped.encoder if form == "own" else venv.unwrapped.envs[0].unwrapped.encoder
    rng, built, expected = np.random.default_rng(3), [[] for _ in range(2 * K)], []
    venv.reset(seed=0)
    while len(expected) < 6:
        step = len(built[0])
        actions = rng.integers(SIZES[step], size=2 * K)
        _, rewards, terminations, _, infos = venv.step(actions)
        for lane, action in zip(built, actions, strict=True):
            lane.append(TOKENS[ORDER[step]][action])
        if step + 1 < H:
            assert not rewards.any() and not infos["_question"].any() and (infos["preference"] == -1).all()
            assert "question" not in infos
            continue
        prompts = [", ".join(lane) for lane in built]
        rows = encoder.encode(prompts).reshape(2, K, D)
        best = (rows @ TASTE).argmax(axis=1)
        wanted = np.zeros((2, K))
        wanted[[0, 1], best] = 1.0
        np.testing.assert_array_equal(rewards, wanted.ravel())
        np.testing.assert_array_equal(infos["preference"], best)
        assert infos["question"].tolist() == [prompts[:K], prompts[K:]] and infos["_question"].all()
        expected += [(prompts[:K], rows[0], best[0]), (prompts[K:], rows[1], best[1])]
        built = [[] for _ in range(2 * K)]
        if mode == "disabled":
            venv.reset(options={"reset_mask": terminations.copy()})
        elif mode == "next_step":
            _, rewards, *_, infos = venv.step(np.zeros(2 * K, dtype=int))  # resets only
            assert not rewards.any() and not infos["_question"].any()
    found = venv.comparisons
    assert found.texts == [texts for texts, _, _ in expected]
    np.testing.assert_array_equal(found.features, np.stack([rows for _, rows, _ in expected]))
    assert found.choice.tolist() == [best for _, _, best in expected]
    assert found.episode.tolist() == list(range(6)) and (found.step == H - 1).all()
    assert found.metadata["feedback"] == "prompt"


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_another_environment_is_asked_when_it_has_ended(mode):
    """The features are those of the last state before the reset, computed once an episode."""
    env = SyncVectorEnv([ChainOfStates] * (2 * K), autoreset_mode=mode)
    venv = query(env, SyntheticUser(np.arange(5.0)))
    observations, _ = venv.reset(seed=0)
    ChainOfStates.calls, horizon, finals = 0, env.envs[0].unwrapped.mdp.horizon, []
    while len(finals) < 3:
        observations, _, terminations, _, infos = venv.step(np.zeros(2 * K, dtype=int))
        if terminations.any():
            reached = observations
            if env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
                reached = np.array([infos["final_obs"][lane] for lane in range(2 * K)])
            finals.append(reached)
            if mode == "Disabled":
                venv.reset(options={"reset_mask": terminations.copy()})
    found = venv.comparisons
    assert ChainOfStates.calls == 3 and found.texts is None
    np.testing.assert_array_equal(found.features, np.eye(5)[np.concatenate(finals)].reshape(6, K, 5))
    assert (found.step == horizon - 1).all() and found.episode.tolist() == list(range(6))


def test_lanes_that_end_at_different_steps_are_an_error_at_once():
    venv = query(SyncVectorEnv([RaggedChain] * (2 * K)), SyntheticUser(np.ones(5)))
    venv.reset(seed=0)
    with pytest.raises(RuntimeError, match="same step and to end together.*different lengths"):
        for _ in range(4):
            venv.step(np.zeros(2 * K, int))


def test_an_episode_without_its_end_is_no_question(world):
    venv = query(make(world))
    venv.reset()
    venv.step(np.zeros(2 * K, int))
    venv.reset()
    with pytest.raises(RuntimeError, match="No question was answered"):
        venv.comparisons  # noqa: B018
    for _ in range(2):
        venv.step(np.zeros(2 * K, int))
    venv.clear()  # in the middle of the episode
    venv.step(np.zeros(2 * K, int))
    assert venv.comparisons.episode.tolist() == [0, 1] and venv.comparisons.step.tolist() == [2, 2]


@pytest.mark.parametrize("vector", [False, True])
def test_collect_returns_one_question_an_episode(world, vector):
    env = make(world, lanes=2 * K)
    agent = make_agent("random", env, num_options=K, episodes=5, seed=1)
    where = {"env": env} if vector else {"env": ID, "env_arguments": world}
    found = collect(agent=agent, oracle=SyntheticUser(TASTE), episodes=5, feedback="prompt", **where)
    assert found.episode.tolist() == list(range(5)) and (found.step == H - 1).all()
    assert all(text.count(", ") == H - 1 for question in found.texts for text in question)


def test_an_environment_without_trajectories_is_refused():
    with pytest.raises(TypeError, match='trajectory_features.*feedback="prompt"'):
        PreferenceQuery(SyncVectorEnv([ChainEnv] * K), lanes=K, oracle=SyntheticUser(np.ones(3)), feedback="prompt")


@pytest.mark.parametrize("name", ["adaptive", "bald", "random_distinct"])
def test_a_planner_agent_learns_from_one_answer_an_episode(world, name):
    venv = PreferenceQuery(make(world, lanes=2), lanes=2, oracle=SyntheticUser(TASTE), feedback="prompt")
    agent = make_agent(name, venv, num_options=2, episodes=4, seed=3, feedback="prompt").learn()
    told = collect(venv.env, agent, SyntheticUser(TASTE), episodes=4, feedback="prompt", observe=True)
    assert len(told) == 4 and agent.planner.asked == 4 * H
    assert all(len(set(texts)) == 2 for texts in told.texts)
    twin = make_agent(name, venv, num_options=2, episodes=4, seed=3, feedback="prompt").learn()
    twin.observe(told)
    np.testing.assert_allclose(agent.planner.estimate.theta, twin.planner.estimate.theta, rtol=1e-6, atol=1e-9)
    assert agent.planner.estimate.theta.any()


@pytest.mark.parametrize(("name", "options"), [("deep", {}), ("reinforce-network", {}), ("tuples", {"criterion": "D"})])
def test_agents_that_design_every_step_refuse_complete_prompts(world, name, options):
    with pytest.raises(ValueError, match="'truncated', 'state', got 'prompt'; .* designs a question for every step"):
        make_agent(name, make(world), num_options=K, episodes=2, feedback="prompt", **options)
