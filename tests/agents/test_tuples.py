"""The agent that plays a realised query set."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from edpbrl_gym.agents.design import DesignAgent
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import collect
from edpbrl_gym.design import Restrictions
from edpbrl_gym.envs.wrappers import PreferenceQuery
from edpbrl_gym.mdp import FiniteHorizonMDP
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.lane_environments import ChainEnv, write_vocabulary

pytestmark = pytest.mark.needs("text")

ID = "edpbrl/PromptConstruction-v0"
K, T = 2, 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words"))


def lanes(folder, count):
    return gymnasium.make_vec(ID, num_envs=count, vocabulary=folder, order=["bases", "lighting", "style"])


def agent_for(env, **options):
    arguments = {"num_options": K, "episodes": T, "criterion": "D", "seed": 3, **options}
    return make_agent("tuples", env, **arguments)


@pytest.mark.parametrize("groups", [1, 2, T])
def test_every_trajectory_of_the_set_is_asked_once(folder, minilm, groups):
    env = lanes(folder, groups * K)
    agent = agent_for(env).learn()
    user = SyntheticUser.from_text("a small boat", minilm, mode="argmax")
    found = collect(env, agent, user, episodes=T, feedback="truncated")
    shown = {
        (episode, step): texts
        for episode, step, texts in zip(found.episode.tolist(), found.step.tolist(), found.texts, strict=True)
    }
    for step in range(3):
        expected = agent.questions.texts(env.unwrapped.vocabulary, step=step)
        asked = sorted(tuple(shown[episode, step]) for episode in range(T))
        assert asked == sorted(tuple(texts) for texts in expected)


def test_lane_b_times_k_plus_q_plays_trajectory_b_q(folder):
    env = lanes(folder, T * K)
    agent = agent_for(env).learn()
    observation, _ = env.reset(seed=0)
    state, played = None, []
    for _ in range(3):
        actions, state = agent.predict(observation, state, np.zeros(T * K, bool))
        played.append(actions)
        observation, *_ = env.step(actions)
    np.testing.assert_array_equal(np.stack(played, axis=1).reshape(T, K, 3), agent.questions.tokens)


def test_the_set_begins_again_after_its_last_episode(folder):
    env = lanes(folder, K)
    agent = agent_for(env).learn()
    start = np.full((K, 3), 4)
    state = None
    firsts = []
    for _ in range(T + 2):
        actions, state = agent.predict(start, state, np.ones(K, bool))  # a lane at its first step begins an episode
        firsts.append(actions)
    np.testing.assert_array_equal(firsts[:T], agent.questions.tokens[:, :, 0])
    np.testing.assert_array_equal(firsts[T:], agent.questions.tokens[:2, :, 0])


def test_restrictions_reach_the_set(folder):
    env = lanes(folder, K)
    agent = agent_for(env, restrictions=Restrictions(shared_base="episode", forbidden=((2, 5),))).learn()
    assert (agent.questions.tokens[:, 0, 0] == agent.questions.tokens[:, 1, 0]).all()
    assert not agent.query_settings.restrictions.rules(env.unwrapped.mdp).violations(agent.questions.tokens)


def test_truncated_feedback_uses_the_encoder(folder):
    env = lanes(folder, K)
    agent = agent_for(env, feedback="truncated", text_budget=400, num_options=2).learn()
    assert agent.questions.feedback == "truncated" and 0 < agent.questions.encoded_texts <= 400
    with pytest.raises(TypeError, match="needs env.unwrapped to have .encoder"):
        agent_for(ChainEnv(), feedback="truncated").learn()


def test_a_saved_agent_plays_the_same_set(folder, tmp_path):
    env = lanes(folder, K)
    agent = agent_for(env, restrictions=Restrictions(no_overlap=True)).learn()
    agent.save(tmp_path)
    copy = DesignAgent.load(tmp_path, env)
    np.testing.assert_array_equal(copy.questions.tokens, agent.questions.tokens)
    assert copy.query_settings == agent.query_settings and copy.questions.value == agent.questions.value
    agent_for(env).save(tmp_path)
    with pytest.raises(RuntimeError, match="no query set yet"):
        DesignAgent.load(tmp_path, env).predict(np.full((K, 3), 4))


def test_an_environment_that_moves_at_random_is_refused():
    with pytest.raises(ValueError, match="deterministic transitions and one initial state"):
        agent_for(ChainEnv()).learn()


def test_a_deterministic_environment_is_played_through():
    rng = np.random.default_rng(0)
    dense = np.eye(4)[rng.integers(4, size=(4, 3))]
    env = ChainEnv()
    env.mdp = FiniteHorizonMDP.from_dense(dense, np.eye(4)[1], 4, allow_unreachable=True)
    env.features = rng.normal(size=(4, 3))
    agent = agent_for(env, restrictions=Restrictions(distinct=False)).learn()
    venv_lanes = K * T
    states, state = np.ones(venv_lanes, dtype=int), None
    seen = []
    for step in range(4):
        actions, state = agent.predict(states, state, np.full(venv_lanes, step == 0))
        seen.append(states)
        states = dense[states, actions].argmax(axis=1)
    np.testing.assert_array_equal(np.stack(seen, axis=1).reshape(T, K, 4), agent.questions.rows)


def test_a_question_wrapper_fits(folder, minilm):
    env = PreferenceQuery(
        lanes(folder, K), lanes=K, oracle=SyntheticUser.from_text("calm sea", minilm, mode="argmax"), feedback="state"
    )
    agent = agent_for(env).learn()
    observation, _ = env.reset(seed=1)
    state = None
    for _ in range(2 * T):
        actions, state = agent.predict(observation, state, env.episode_start)
        observation, *_ = env.step(actions)
    assert len(env.comparisons) >= T
