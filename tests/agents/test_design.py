"""The agents that play different policies, and realised query sets."""

import gymnasium
import numpy as np
import pytest

from edpbrl_gym.agents.design import DesignAgent
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import collect
from edpbrl_gym.design import Restrictions, exact_information
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


def agent_for(env, name="tuples", **options):
    return make_agent(name, env, **{"num_options": K, "episodes": T, "criterion": "D", "seed": 3, **options})


def test_exact_plays_different_policies_with_a_certificate():
    agent = agent_for(ChainEnv(), "exact").learn()
    problem, design = agent.design.problem, agent.design
    rows = problem.mdp.row_occupancy(design.occupancies)
    value = problem.criterion.value(exact_information(problem.features, rows, T) + problem.prior)
    assert design.value == pytest.approx(value) and design.solver == "exact"
    assert np.abs(agent.policies[0] - agent.policies[1]).max() > 0.01


def test_options_reach_the_solver_and_a_saved_agent_plays_on(tmp_path):
    seen = []
    agent = agent_for(ChainEnv(), "exact", max_iterations=3, tolerance=1e-12, options={"callback": seen.append})
    assert agent.learn().design.iterations == 3 and len(seen) == 4 and agent.tolerance == 1e-12
    agent.save(tmp_path)
    copy = DesignAgent.load(tmp_path, ChainEnv())
    np.testing.assert_array_equal(copy.policies, agent.policies)
    assert copy.design.value == agent.design.value and copy.options == {"max_iterations": 3, "tolerance": 1e-12}


@pytest.mark.parametrize("groups", [1, 2, T])
def test_every_prompt_of_the_set_is_asked_once(folder, minilm, groups):
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


def test_lane_b_times_k_plus_q_plays_prompt_b_q(folder):
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
    agent = agent_for(lanes(folder, K)).learn()
    start = np.full((K, 3), 4)
    state = None
    firsts = []
    for _ in range(T + 2):
        actions, state = agent.predict(start, state, np.ones(K, bool))  # a lane at its first step begins an episode
        firsts.append(actions)
    np.testing.assert_array_equal(firsts[:T], agent.questions.tokens[:, :, 0])
    np.testing.assert_array_equal(firsts[T:], agent.questions.tokens[:2, :, 0])


def test_restrictions_reach_the_set_and_a_saved_agent_plays_the_same(folder, tmp_path):
    env = lanes(folder, K)
    wanted = Restrictions(shared_base="episode", forbidden=((2, 5),))
    agent = agent_for(env, restrictions=wanted).learn()
    assert (agent.questions.tokens[:, 0, 0] == agent.questions.tokens[:, 1, 0]).all()
    assert not wanted.rules(env.unwrapped.mdp).violations(agent.questions.tokens)
    agent.save(tmp_path)
    copy = DesignAgent.load(tmp_path, env)
    np.testing.assert_array_equal(copy.questions.tokens, agent.questions.tokens)
    assert copy.restrictions == wanted and copy.questions.value == agent.questions.value
    agent_for(env).save(tmp_path)
    with pytest.raises(RuntimeError, match="no query set yet"):
        DesignAgent.load(tmp_path, env).predict(np.full((K, 3), 4))
